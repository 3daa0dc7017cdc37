package health

import (
	"time"

	"github.com/routerd/routerd/catalog"
	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
)

// refresh makes the watched workers those that the catalog has.
func (m *Monitor) refresh() {
	m.mu.Lock()
	m.listing++
	listing := m.listing
	m.mu.Unlock()
	views := m.reconciler.Workers()
	var fx effects
	now := time.Now()
	m.mu.Lock()
	there := make(map[fleet.WorkerID]bool, len(views))
	for i := range views {
		if !watchable(&views[i].Record) {
			continue
		}
		there[views[i].ID] = true
		m.take(&views[i], listing, now, &fx)
	}
	for id, w := range m.workers {
		if !there[id] && w.born < listing { // a younger one may have come after the list was made
			m.drop(w, now, &fx)
		}
	}
	m.mu.Unlock()
	m.emit(&fx)
}

// take brings one worker of a list in. mu must be held, as in all below.
func (m *Monitor) take(v *catalog.View, listing uint64, now time.Time, fx *effects) {
	w := m.workers[v.ID]
	switch {
	case w == nil:
		w = m.add(v.Record, now, fx)
		m.schedule(w, now, now.Add(spread(m.cfg.Interval)))
	case w.url == v.URL:
		m.update(w, v.Record, now, fx)
		if w.place < 0 && w.flight == nil {
			m.schedule(w, now, now.Add(spread(m.cfg.Interval)))
		}
	case w.born < listing:
		w = m.add(v.Record, now, fx)
		m.schedule(w, now, now.Add(spread(m.cfg.Interval)))
	default:
		return // it was replaced after the list was made
	}
	if serving := v.Lifecycle == core.Ready || v.Lifecycle == core.Ejected; serving != w.serving {
		w.serving = serving
		m.refile(w, now, fx)
	}
}

// add begins to watch a worker, which replaces one at another place.
func (m *Monitor) add(rec fleet.Record, now time.Time, fx *effects) *watched {
	if old := m.workers[rec.ID]; old != nil {
		m.drop(old, now, fx)
	}
	w := &watched{
		id: rec.ID, name: rec.Name, url: rec.URL, group: m.groupOf(rec.Partition()),
		machine: machine{since: now}, born: m.listing, place: -1, since: now,
	}
	w.group.size++
	m.workers[w.id] = w
	m.govern(w)
	m.review(w, now, fx)
	return w
}

// update takes over what changed in a worker's record.
func (m *Monitor) update(w *watched, rec fleet.Record, now time.Time, fx *effects) {
	w.name = rec.Name
	if key := rec.Partition(); key != w.group.key {
		m.leave(w, now, fx)
		w.group = m.groupOf(key)
		w.group.size++
		m.refile(w, now, fx)
	}
}

// govern puts the configuration in force for a worker.
func (m *Monitor) govern(w *watched) {
	if !m.cfg.asks() {
		w.machine.trust()
	}
}

// drop ends the watch of a worker: the probe under way is cancelled, and none
// begins.
func (m *Monitor) drop(w *watched, now time.Time, fx *effects) {
	delete(m.workers, w.id)
	m.agenda.remove(w)
	m.suspects.Delete(w.id)
	m.endReturn(w.id, now)
	if w.flight != nil {
		w.flight.cancel()
	}
	m.leave(w, now, fx)
}

// leave takes a worker out of its group, which may bring others back.
func (m *Monitor) leave(w *watched, now time.Time, fx *effects) {
	g := w.group
	g.take(w)
	if g.size--; g.size == 0 {
		delete(m.groups, g.key)
		return
	}
	m.settle(g, now, fx)
}

func (m *Monitor) groupOf(key fleet.PartitionKey) *group {
	g := m.groups[key]
	if g == nil {
		g = &group{key: key}
		m.groups[key] = g
	}
	return g
}

// watchable tells whether a worker's health is ours to see to.
func watchable(rec *fleet.Record) bool { return rec.URL != "" && !rec.NoHealthCheck }
