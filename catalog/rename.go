package catalog

import (
	"slices"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
)

// locked takes op of entries, which are sorted by id, as finish locks them.
func locked(all []*entry) (unlock func()) {
	for _, e := range all {
		e.op.Lock()
	}
	return func() {
		for _, e := range all {
			e.op.Unlock()
		}
	}
}

// rename has the core take over the new names of those workers that it has, in one
// change: where two swap names, neither can have its own before the other. What else has
// changed comes with their attempts. planning must be held, those that have left must be
// withdrawn, and the entries sorted by id.
func (r *Reconciler) rename(renamed []*entry) {
	defer locked(renamed)()
	all := slices.DeleteFunc(slices.Clone(renamed), func(e *entry) bool { return e.committed == (fleet.PartitionKey{}) })
	if len(all) == 0 {
		return
	}
	var change core.Change
	for _, e := range all {
		m := e.applied
		m.Record.Name = e.want.Name // nobody changes it while planning is held
		change.Upserts = append(change.Upserts, m)
	}
	if err := r.parts.Core.Commit(change); err != nil {
		r.log.Error("workers not renamed yet; it is tried again", "workers", len(all), "err", err)
		return
	}
	for i, e := range all {
		e.applied = change.Upserts[i]
	}
}
