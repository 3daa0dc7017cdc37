package health

import (
	"cmp"
	"slices"

	"github.com/routerd/routerd/fleet"
)

// group is the workers of a partition. Monitor.mu guards it.
type group struct {
	key     fleet.PartitionKey
	size    int        // workers of any kind
	serving int        // of them, those that serve or would if they were well
	bad     []*watched // of them, those that are unfit, the longest first
}

// allowed is how many of n workers may be out at a time.
func allowed(n, percent int) int { return max(0, min(n*percent/100, n-1)) }

// file puts the worker where its verdict belongs. One that does not serve anyway, or
// has never answered, is out whenever it is unfit.
func (g *group) file(w *watched) {
	counts := w.serving && (w.verdict.state == fit || w.verdict.state == unfit)
	bad := counts && w.verdict.state == unfit
	if counts == w.counted && bad == w.bad {
		return
	}
	g.take(w)
	if w.counted = counts; counts {
		g.serving++
	}
	if w.bad = bad; bad {
		at, _ := slices.BinarySearchFunc(g.bad, w, longest)
		g.bad = slices.Insert(g.bad, at, w)
	}
}

// take removes what file has put.
func (g *group) take(w *watched) {
	if w.counted {
		g.serving--
	}
	if w.bad {
		at := slices.Index(g.bad, w)
		g.bad = slices.Delete(g.bad, at, at+1)
	}
	w.counted, w.bad, w.kept = false, false, false
}

// settle chooses those who are out: of those that are unfit the longest, as many as
// may be. It calls changed for each whose lot changes.
func (g *group) settle(percent int, changed func(*watched)) {
	most := allowed(g.serving, percent)
	for i, w := range g.bad {
		if kept := i >= most; kept != w.kept {
			w.kept = kept
			changed(w)
		}
	}
}

func longest(a, b *watched) int {
	return cmp.Or(a.since.Compare(b.since), cmp.Compare(a.id, b.id))
}
