package app

import (
	"fmt"
	"slices"

	"github.com/routerd/routerd/admin"
	"github.com/routerd/routerd/catalog"
	"github.com/routerd/routerd/catalog/adapters"
	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/prompt"
)

// tokenizeUnsupported is the reason of a worker that serves but whose engine
// does not tokenise messages: its chats are routed on load alone.
const tokenizeUnsupported = "tokenize_unsupported"

// adapterFailed begins the reason of a worker that serves but whose engine did not
// load or unload a managed adapter; it is tried again.
const adapterFailed = "adapter_failed: "

// adapterNoSlot begins the reason of a worker whose slots are filled by adapters that
// nobody manages, so that a managed one has no place there.
const adapterNoSlot = "adapter_no_slot: "

// workerList is the catalog's workers with what the core, the tokenizer and the
// manager of adapters know of them.
type workerList struct {
	catalog   *catalog.Reconciler
	core      *core.SelectionCore
	tokenizer *prompt.Tokenizer
	adapters  *adapters.Manager
}

var _ admin.WorkerList = workerList{}

// Workers lists all workers by id.
func (l workerList) Workers() []catalog.View {
	views, ranks, managed := l.catalog.Workers(), l.ranks(), l.adapters.Adapters()
	for i := range views {
		l.add(&views[i], ranks, managed)
	}
	return views
}

// Worker finds a worker by id or name.
func (l workerList) Worker(ref string) (catalog.View, bool) {
	v, ok := l.catalog.Worker(ref)
	if ok {
		l.add(&v, l.ranks(), l.adapters.Adapters())
	}
	return v, ok
}

// ranks are what the core knows of each worker's ranks.
func (l workerList) ranks() map[fleet.WorkerID][]core.RankView {
	out := map[fleet.WorkerID][]core.RankView{}
	for _, p := range l.core.Partitions() {
		for _, r := range p.Ranks {
			out[r.Worker] = append(out[r.Worker], r)
		}
	}
	return out
}

func (l workerList) add(v *catalog.View, ranks map[fleet.WorkerID][]core.RankView, managed []adapters.View) {
	v.Reasons = append(slices.Clone(v.Reasons), rankReasons(v.Reasons, ranks[v.ID])...)
	if l.tokenizer.Refusing(v.Name) {
		v.Reasons = append(v.Reasons, tokenizeUnsupported)
	}
	for _, a := range managed {
		if a.Worker != v.Name || a.Reason == "" {
			continue
		}
		begins := adapterFailed
		if a.State == adapters.NoSlot {
			begins = adapterNoSlot
		}
		v.Reasons = append(v.Reasons, begins+a.Adapter+": "+a.Reason)
	}
}

// rankReasons are the core's reasons that a worker's own are not: once where all of
// its ranks have them, else with the rank.
func rankReasons(own []string, ranks []core.RankView) (out []string) {
	having := map[string]int{}
	for _, r := range ranks {
		for _, reason := range r.Reasons {
			having[reason]++
		}
	}
	for _, r := range ranks {
		for _, reason := range r.Reasons {
			if having[reason] < len(ranks) {
				reason = fmt.Sprintf("rank %d: %s", r.Rank, reason)
			}
			if !slices.Contains(own, reason) && !slices.Contains(out, reason) {
				out = append(out, reason)
			}
		}
	}
	return out
}
