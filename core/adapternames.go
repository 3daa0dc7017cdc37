package core

import (
	"fmt"

	"github.com/routerd/routerd/fleet"
)

// indexAdapters rebuilds the adapter table as it will be after the plans: what records
// list, and what is managed. An adapter under two bases belongs to the one whose name
// sorts first; one that is called as a base model gets no request.
func (d *directory) indexAdapters(plans map[fleet.PartitionKey]*plan) {
	d.adapters, d.lost = map[fleet.PartitionKey]fleet.PartitionKey{}, map[adapterOf]bool{}
	for id, e := range d.workers {
		m := e.partition.view.Load().byID[id]
		if pl := plans[e.partition.key]; pl != nil && pl.upserts[id] != nil {
			m = pl.upserts[id]
		}
		for _, a := range m.record.Adapters {
			d.nameAdapter(a.Name, e.partition.key)
		}
	}
	for key, p := range d.partitions {
		if t := p.adapters.Load(); t != nil {
			for _, name := range t.names {
				d.nameAdapter(name, key)
			}
		}
	}
}

func (d *directory) nameAdapter(adapter string, base fleet.PartitionKey) {
	name := fleet.PartitionKey{Model: adapter, Group: base.Group}
	other, taken := d.adapters[name]
	switch {
	case taken && other.Model < base.Model:
		d.lost[adapterOf{base, adapter}] = true
	case taken && other != base:
		d.lost[adapterOf{other, adapter}] = true
		d.adapters[name] = base
	default:
		d.adapters[name] = base
	}
	if d.partitions[name] != nil {
		d.lost[adapterOf{base, adapter}] = true
	}
}

// serving is the base model to which requests for a lost adapter go.
func (d *directory) serving(a adapterOf) string {
	name := fleet.PartitionKey{Model: a.adapter, Group: a.base.Group}
	if d.partitions[name] != nil {
		return name.Model
	}
	return d.adapters[name].Model
}

// lostReasons says which adapters of a worker get no request.
func (d *directory) lostReasons(m *member, base fleet.PartitionKey) (reasons []string) {
	if len(d.lost) == 0 {
		return nil
	}
	for _, a := range m.record.Adapters {
		if of := (adapterOf{base, a.Name}); d.lost[of] {
			reasons = append(reasons, fmt.Sprintf("adapter_elsewhere: %s: requests for it go to model %q", a.Name, d.serving(of)))
		}
	}
	return reasons
}

// nameAdapters makes the adapters known that are managed.
func (c *SelectionCore) nameAdapters() {
	c.members.Lock()
	was := c.directory.Load()
	dir := was.clone()
	dir.indexAdapters(nil)
	c.directory.Store(dir)
	c.members.Unlock()
	c.tellLost(was, dir)
}

// tellLost logs adapters that are lost since the directory before.
func (c *SelectionCore) tellLost(was, is *directory) {
	for of := range is.lost {
		if !was.lost[of] {
			c.log.Warn("requests for an adapter go to another model", "adapter", of.adapter, "partition", of.base.String(), "model", is.serving(of))
		}
	}
}
