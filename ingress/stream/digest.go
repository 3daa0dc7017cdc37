package stream

import (
	"cmp"
	"slices"

	"github.com/zeebo/xxh3"
)

// digestsKept is of how many of the last messages a digest is kept, besides those of numbers 0 and 1.
const digestsKept = 1024

type digest struct {
	seq uint64
	sum uint64
	set bool
}

// digests remembers what the first and the last messages were.
type digests struct {
	first [2]digest
	ring  *[digestsKept]digest
}

func (d *digests) keep(seq uint64, payload []byte) {
	d.set(seq, xxh3.Hash(payload))
}

func (d *digests) set(seq, sum uint64) {
	if d.ring == nil {
		d.ring = new([digestsKept]digest)
	}
	*d.slot(seq) = digest{seq, sum, true}
}

// list returns what is remembered, by number.
func (d *digests) list() []digest {
	if d.ring == nil {
		return nil
	}
	all := slices.Concat(d.first[:], d.ring[:])
	all = slices.DeleteFunc(all, func(one digest) bool { return !one.set })
	slices.SortFunc(all, func(a, b digest) int { return cmp.Compare(a.seq, b.seq) })
	return all
}

func (d *digests) slot(seq uint64) *digest {
	if seq < 2 {
		return &d.first[seq]
	}
	return &d.ring[seq%digestsKept]
}

// equal tells whether a payload is the one that was applied under its number, and whether that is still known.
func (d *digests) equal(seq uint64, payload []byte) (same, known bool) {
	if d.ring == nil {
		return false, false
	}
	got := d.slot(seq)
	if !got.set || got.seq != seq {
		return false, false
	}
	return got.sum == xxh3.Hash(payload), true
}
