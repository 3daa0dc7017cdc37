package core

import (
	"slices"
	"strings"
	"time"

	"github.com/routerd/routerd/core/affinity"
	"github.com/routerd/routerd/core/load"
	"github.com/routerd/routerd/fleet"
)

// PartitionView is what the core knows of a partition.
type PartitionView struct {
	Model     string     `json:"model"`
	Group     string     `json:"group"`
	BlockSize int        `json:"block_size"`
	Policy    PolicyRef  `json:"policy"`
	Ranks     []RankView `json:"ranks"`
	// Queue has every class, by name, also those in which nothing waits.
	Queue    []QueueView  `json:"queue"`
	Sessions SessionsView `json:"sessions"`
}

// QueueView is what waits in a class of a partition: requests that wait for a
// rank, or for their session's first request, and their prompt tokens.
type QueueView struct {
	Class    string `json:"class"`
	Requests int    `json:"requests"`
	Tokens   int64  `json:"tokens"`
}

// SessionsView counts the sessions of a partition: those that are bound to a
// worker, those whose first request is being decided, and the requests and
// bookings that keep bindings.
type SessionsView struct {
	Bound        int `json:"bound"`
	Initialising int `json:"initialising"`
	Leases       int `json:"leases"`
}

// Stats is what the core holds and what became of sessions, for metrics.
type Stats struct {
	// Reservations are live ones, Pending selections that wait for their booking
	// and PendingBytes what these hold in memory.
	Reservations, Pending int
	PendingBytes          int64
	// Partitions are by model and group.
	Partitions []PartitionStats
}

// PartitionStats is what one partition holds.
type PartitionStats struct {
	Key      fleet.PartitionKey
	Queue    []QueueView // every class, by name
	Sessions affinity.Stats
}

// Stats counts what there is now. Partitions are looked at one after another. The
// caller owns the result. Safe for concurrent use.
func (c *SelectionCore) Stats() Stats {
	s := Stats{Reservations: c.reservations.Len(), Pending: c.pending.Len(), PendingBytes: c.pending.Bytes()}
	for _, p := range c.directory.Load().ordered() {
		ps := PartitionStats{Key: p.key, Sessions: p.sessions.Stats()}
		p.mu.Lock()
		ps.Queue = p.waitingView()
		p.mu.Unlock()
		s.Partitions = append(s.Partitions, ps)
	}
	return s
}

// waitingView is what waits in each class. mu must be held.
func (p *Partition) waitingView() []QueueView {
	out := []QueueView{}
	p.queue.Waiting(func(class string, requests int, tokens int64) {
		out = append(out, QueueView{class, requests, tokens})
	})
	slices.SortFunc(out, func(a, b QueueView) int { return strings.Compare(a.Class, b.Class) })
	return out
}

// PolicyRef names a revision of a policy.
type PolicyRef struct {
	Name     string `json:"name"`
	Revision int    `json:"revision"`
}

// RankView is what the core knows of one rank. Reasons are those of its worker's
// lifecycle, then what keeps requests from it now: inhibited, its adapters that are
// another model's, refusing, overloaded, busy for classes.
type RankView struct {
	Worker    fleet.WorkerID `json:"worker"`
	Name      string         `json:"name"`
	Rank      uint32         `json:"rank"`
	Lifecycle Lifecycle      `json:"lifecycle"`
	Reasons   []string       `json:"reasons"`
	Load      LoadView       `json:"load"`
}

// LoadView is the projected load of a rank.
type LoadView struct {
	PrefillTokens  int64   `json:"prefill_tokens"`
	DecodeBlocks   float64 `json:"decode_blocks"`
	ActiveRequests int64   `json:"active_requests"`
}

// Key is the partition's key.
func (v *PartitionView) Key() fleet.PartitionKey {
	return fleet.PartitionKey{Model: v.Model, Group: v.Group}
}

// Partitions lists all partitions by model and group, with their ranks by
// (worker, rank), as of one moment of the catalog. The caller owns the result.
func (c *SelectionCore) Partitions() []PartitionView {
	c.members.Lock()
	parts := c.directory.Load().partitions
	out := make([]PartitionView, 0, len(parts))
	for _, p := range parts {
		out = append(out, p.status())
	}
	c.members.Unlock()
	for i := range out {
		// Outside the lock: to let go of a revision may close it.
		rev := parts[out[i].Key()].ruling.Load().handle.Active()
		out[i].Policy = PolicyRef{rev.Name(), rev.Number()}
		rev.Release()
	}
	slices.SortFunc(out, func(a, b PartitionView) int { return compareKeys(a.Key(), b.Key()) })
	return out
}

// status is the view of one partition but its policy.
func (p *Partition) status() PartitionView {
	out := PartitionView{Model: p.key.Model, Group: p.key.Group, BlockSize: p.blockSize, Ranks: []RankView{}}
	sessions := p.sessions.Stats()
	out.Sessions = SessionsView{Bound: sessions.Bound, Initialising: sessions.Initialising, Leases: sessions.Leases}
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	out.Queue = p.waitingView()
	rows := p.view.Load().rows
	for i := range rows {
		r := &rows[i]
		l, _ := p.tracker.Load(r.slot, now)
		out.Ranks = append(out.Ranks, RankView{
			Worker: r.worker.ID, Name: r.member.record.Name, Rank: r.worker.Rank,
			Lifecycle: r.member.lifecycle, Reasons: p.reasons(r, now),
			Load: LoadView(l),
		})
	}
	return out
}

// LeastLoaded names the ready worker of a partition with the fewest active
// requests over its ranks, then the fewest tokens to prefill, then the lowest
// id; an inhibited one only where all are. ok is false when none is ready.
func (c *SelectionCore) LeastLoaded(key fleet.PartitionKey) (name, endpoint string, ok bool) {
	p := c.directory.Load().partitions[key.Normalised()]
	if p == nil {
		return "", "", false
	}
	inhibited, now := p.core.inhibited.Load(), time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	var chosen *member
	var chosenOut bool // it is inhibited
	var least, sum load.Load
	rows := p.view.Load().rows
	for i, r := range rows {
		l, _ := p.tracker.Load(r.slot, now)
		sum.ActiveRequests += l.ActiveRequests
		sum.PrefillTokens += l.PrefillTokens
		if i+1 < len(rows) && rows[i+1].member == r.member {
			continue
		}
		out := inhibited.holds(r.member, now)
		if r.member.lifecycle == Ready && (chosen == nil || chosenOut && !out || chosenOut == out && lighter(sum, least)) {
			chosen, chosenOut, least = r.member, out, sum
		}
		sum = load.Load{}
	}
	if chosen == nil {
		return "", "", false
	}
	return chosen.record.Name, chosen.record.URL, true
}

func lighter(a, b load.Load) bool {
	if a.ActiveRequests != b.ActiveRequests {
		return a.ActiveRequests < b.ActiveRequests
	}
	return a.PrefillTokens < b.PrefillTokens
}
