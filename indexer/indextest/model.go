package indextest

import (
	"encoding/binary"
	"slices"
	"strings"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/kvcache"
)

// place is what an engine hash means: the local hashes from the root, 8 bytes each, and the chain's salt.
type place struct {
	path string
	salt string
}

// residency is the model of one worker and rank.
type residency struct {
	tiers  [kvcache.Tiers]map[kvcache.EngineHash]place
	opaque [kvcache.Tiers]map[kvcache.EngineHash]bool
	main   *int32
	others map[int32]bool
	full   bool

	evicted bool
}

// model replays events into maps, with no sharing between workers and no cleverness.
type model struct {
	blockSize int
	workers   map[fleet.Worker]*residency

	// Of an index that learns from decisions, one of them: without events, or beside them.
	recorded  *stamps
	predicted *predictions
}

func newModel(blockSize int, s *subject) *model {
	m := &model{blockSize: blockSize, workers: map[fleet.Worker]*residency{}}
	switch {
	case s.recorder != nil && s.feed == nil:
		m.recorded = newStamps(s.rules)
	case s.recorder != nil:
		m.predicted = &predictions{rules: s.rules}
	}
	return m
}

// pathOf are blocks as a path.
func pathOf(blocks ...kvcache.BlockHash) string {
	path := make([]byte, 0, 8*len(blocks))
	for _, b := range blocks {
		path = binary.LittleEndian.AppendUint64(path, uint64(b))
	}
	return string(path)
}

func newResidency() *residency {
	r := &residency{others: map[int32]bool{}}
	for t := range r.tiers {
		r.tiers[t] = map[kvcache.EngineHash]place{}
		r.opaque[t] = map[kvcache.EngineHash]bool{}
	}
	return r
}

func (m *model) worker(w fleet.Worker) *residency {
	if m.workers[w] == nil {
		m.workers[w] = newResidency()
	}
	return m.workers[w]
}

func (m *model) apply(w fleet.Worker, e kvcache.Event) kvcache.Applied {
	var res kvcache.Applied
	r := m.worker(w)
	switch e.Kind {
	case kvcache.Cleared:
		m.clear(w)
		res.Cleared = 1
	case kvcache.Removed:
		r.remove(e, &res)
	case kvcache.Stored:
		if len(e.Hashes) > 0 {
			m.store(r, e, &res)
			m.confirm(w, e, res.Stored)
		}
	}
	return res
}

// confirm looks at predictions after a store of n blocks.
func (m *model) confirm(w fleet.Worker, e kvcache.Event, n int) {
	if m.predicted == nil || len(e.Tokens) == 0 || e.Tier != kvcache.Device {
		return
	}
	var stored []kvcache.BlockHash
	for i := range n {
		path := m.workers[w].tiers[e.Tier][e.Hashes[i]].path
		stored = append(stored, kvcache.BlockHash(binary.LittleEndian.Uint64([]byte(path[len(path)-8:]))))
	}
	m.predicted.confirm(w, stored, func(path string) bool {
		return m.reach(w, path)[kvcache.Device] == uint32(len(path)/8)
	})
}

func (m *model) clear(w fleet.Worker) {
	if m.workers[w] != nil {
		m.workers[w] = newResidency()
	}
	m.forget(w)
}

func (m *model) remove(w fleet.Worker) {
	delete(m.workers, w)
	m.forget(w)
}

func (m *model) record(w fleet.Worker, blocks []kvcache.BlockHash) {
	path := pathOf(blocks...)
	switch {
	case path == "":
	case m.recorded != nil:
		m.recorded.record(w, path)
	case m.reach(w, path)[kvcache.Device] < uint32(len(blocks)):
		m.predicted.record(w, path)
	}
}

// forget voids what was recorded for w.
func (m *model) forget(w fleet.Worker) {
	if m.recorded != nil {
		delete(m.recorded.paths, w)
	}
	if m.predicted != nil {
		m.predicted.drop(func(d predicted) bool { return d.worker == w })
	}
}

// carry goes on with what snapshots have.
func (m *model) carry() {
	if m.predicted != nil {
		m.predicted.list = nil
	}
}

func (m *model) store(r *residency, e kvcache.Event, res *kvcache.Applied) {
	drop := func(why kvcache.DropReason) { res.Drops[why] += uint64(len(e.Hashes)) }
	if why, ok := r.group(e); !ok {
		drop(why)
		return
	}
	for i, h := range e.Hashes {
		if slices.Contains(e.Hashes[:i], h) {
			drop(kvcache.DropDuplicateInList)
			return
		}
	}
	if e.HasParent && slices.Contains(e.Hashes, e.Parent) {
		drop(kvcache.DropSelfParent)
		return
	}
	if e.BlockSize == 0 && len(e.Tokens) == 0 {
		r.announce(e, res)
		return
	}
	spare := 0
	if e.Bigram {
		spare = 1
	}
	if e.BlockSize != m.blockSize && e.BlockSize != 0 {
		if e.BlockSize < m.blockSize && len(e.Hashes) == 1 && len(e.Tokens) == e.BlockSize+spare && r.full {
			drop(kvcache.DropPartialBlock)
			r.hide(e, 0)
			return
		}
		drop(kvcache.DropBlockSizeMismatch)
		res.Degraded = true
		return
	}
	if e.BlockSize == 0 || len(e.Tokens) != len(e.Hashes)*m.blockSize+spare {
		drop(kvcache.DropNotDense)
		r.hide(e, 0)
		return
	}
	from := place{salt: e.Salt}
	if e.HasParent {
		var known bool
		if from, known = r.find(e.Tier, e.Parent); !known {
			if r.hidden(e.Parent) {
				drop(kvcache.DropOpaqueParent)
				r.hide(e, 0)
				return
			}
			if r.evicted {
				drop(kvcache.DropEvictedParent)
				return
			}
			drop(kvcache.DropUnknownParent)
			res.Degraded = true
			return
		}
		if e.Salt != "" && e.Salt != from.salt {
			drop(kvcache.DropConflictingSalt)
			r.hide(e, 0)
			return
		}
	}
	m.place(r, e, from, res)
}

func (m *model) place(r *residency, e kvcache.Event, at place, res *kvcache.Applied) {
	n := len(e.Hashes)
	if e.Opaque && e.OpaqueFrom < n {
		n = e.OpaqueFrom
		res.Drops[kvcache.DropMultimodal] += uint64(len(e.Hashes) - n)
		r.hide(e, n)
	}
	for i, h := range e.Hashes[:n] {
		at.path += pathOf(m.local(e, i, at.salt))
		r.tiers[e.Tier][h] = at
		delete(r.opaque[e.Tier], h)
	}
	res.Stored = n
	r.full = true
}

// local hashes block i of a store by itself.
func (m *model) local(e kvcache.Event, i int, salt string) kvcache.BlockHash {
	how := kvcache.Hashing{Seed: kvcache.Seed(e.Adapter, salt), Bigram: e.Bigram}
	if i < len(e.Items) {
		how.Items = e.Items[i : i+1]
	}
	tokens := e.Tokens[i*m.blockSize:]
	size := m.blockSize
	if e.Bigram {
		size++
	}
	got, _ := how.Blocks(nil, tokens[:size], m.blockSize)
	return got[0]
}

func (r *residency) group(e kvcache.Event) (kvcache.DropReason, bool) {
	switch e.Attention {
	case kvcache.AttentionWindowed, kvcache.AttentionUnknown:
		if r.main == nil || *r.main != e.Group {
			r.others[e.Group] = true
		}
		if e.Attention == kvcache.AttentionUnknown {
			return kvcache.DropUnknownAttention, false
		}
		return kvcache.DropOtherGroup, false
	case kvcache.AttentionPrefix:
		if r.main == nil && !r.others[e.Group] {
			r.main = &e.Group
		}
		if r.main == nil || *r.main != e.Group {
			r.others[e.Group] = true
			return kvcache.DropOtherGroup, false
		}
		return 0, true
	}
	if r.main == nil && e.Group == 0 && !r.others[0] {
		r.main = &e.Group
	}
	return r.mainGroup(e.Group)
}

func (r *residency) mainGroup(group int32) (kvcache.DropReason, bool) {
	switch {
	case r.others[group]:
		return kvcache.DropOtherGroup, false
	case r.main != nil && *r.main == group, r.main == nil && group == 0:
		return 0, true
	}
	return kvcache.DropUnknownGroup, false
}

func (r *residency) announce(e kvcache.Event, res *kvcache.Applied) {
	for _, h := range e.Hashes {
		if p, ok := r.find(e.Tier, h); ok {
			r.tiers[e.Tier][h] = p
			delete(r.opaque[e.Tier], h)
			res.Stored++
		} else {
			res.Drops[r.unknown(kvcache.DropUnknownPlaceholder)]++
		}
	}
}

func (r *residency) remove(e kvcache.Event, res *kvcache.Applied) {
	if why, ok := r.mainGroup(e.Group); !ok {
		res.Drops[why] += uint64(len(e.Hashes))
		return
	}
	for _, h := range e.Hashes {
		if _, ok := r.tiers[e.Tier][h]; ok {
			delete(r.tiers[e.Tier], h)
			res.Removed++
		} else if r.opaque[e.Tier][h] {
			delete(r.opaque[e.Tier], h)
		} else {
			res.Drops[r.unknown(kvcache.DropUnknownRemove)]++
		}
	}
}

func (r *residency) unknown(why kvcache.DropReason) kvcache.DropReason {
	if r.evicted {
		return kvcache.DropEvictedBlock
	}
	return why
}

// evict gives up one hash of a worker.
func (m *model) evict(w fleet.Worker, t kvcache.Tier, h kvcache.EngineHash) {
	r := m.worker(w)
	r.evicted = true
	delete(r.tiers[t], h)
	delete(r.opaque[t], h)
}

func (r *residency) hide(e kvcache.Event, from int) {
	for _, h := range e.Hashes[from:] {
		delete(r.tiers[e.Tier], h)
		r.opaque[e.Tier][h] = true
	}
}

func (r *residency) hidden(h kvcache.EngineHash) bool {
	for t := range r.opaque {
		if r.opaque[t][h] {
			return true
		}
	}
	return false
}

func (r *residency) find(own kvcache.Tier, h kvcache.EngineHash) (place, bool) {
	for _, t := range []kvcache.Tier{own, kvcache.Device, kvcache.Host, kvcache.Disk, kvcache.Shared} {
		if p, ok := r.tiers[t][h]; ok {
			return p, true
		}
	}
	return place{}, false
}

// reach is how much of a path a worker holds on a tier and the faster ones, by its events.
func (m *model) reach(w fleet.Worker, path string) (reach [kvcache.Tiers]uint32) {
	r := m.workers[w]
	if r == nil {
		return reach
	}
	held := make([]bool, len(path)/8+1) // by length
	for t := range r.tiers {
		for _, p := range r.tiers[t] {
			if strings.HasPrefix(path, p.path) {
				held[len(p.path)/8] = true
			}
		}
		for reach[t] < uint32(len(path)/8) && held[reach[t]+1] {
			reach[t]++
		}
	}
	return reach
}

func (m *model) overlap(w fleet.Worker, blocks []kvcache.BlockHash) kvcache.Overlap {
	path := pathOf(blocks...)
	if m.recorded != nil {
		return kvcache.Overlap{Device: m.recorded.reach(w, path)}
	}
	reach := m.reach(w, path)
	if m.predicted != nil {
		own := m.predicted.reach(w, path)
		for t := range reach {
			reach[t] = max(reach[t], own)
		}
	}
	return kvcache.Overlap{Device: reach[0], Host: reach[1] - reach[0], Disk: reach[2] - reach[1], Shared: reach[3] - reach[2]}
}

func (m *model) blocks(w fleet.Worker) kvcache.TierCounts {
	var counts kvcache.TierCounts
	if m.recorded != nil {
		m.recorded.expire()
		counts[kvcache.Device] = len(m.recorded.paths[w])
	}
	if r := m.workers[w]; r != nil {
		for t := range r.tiers {
			counts[t] = len(r.tiers[t])
		}
	}
	return counts
}

func (m *model) hashes(w fleet.Worker) map[kvcache.Tier][]kvcache.EngineHash {
	all := map[kvcache.Tier][]kvcache.EngineHash{}
	if r := m.workers[w]; r != nil {
		for t := range r.tiers {
			for h := range r.tiers[t] {
				all[kvcache.Tier(t)] = append(all[kvcache.Tier(t)], h)
			}
		}
	}
	for t := range all {
		slices.SortFunc(all[t], kvcache.EngineHash.Compare)
	}
	return all
}
