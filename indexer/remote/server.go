package remote

import (
	"sync"
	"sync/atomic"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/kvcache"
)

// Index is the index of a partition as the primary has it: the part of it that is served.
// Safe for concurrent use.
type Index interface {
	// Find is that of indexer.Indexer.
	Find(blocks []kvcache.BlockHash, workers []fleet.Worker, out []kvcache.Overlap)
	// Trusted tells whether the rank's event stream lost nothing.
	Trusted(w fleet.Worker) bool
}

// Partitions are the primary's. Safe for concurrent use.
type Partitions interface {
	// Partition finds a partition's index and the size of its blocks in tokens; ok is
	// false where there is none. It makes none.
	Partition(key fleet.PartitionKey) (x Index, blockSize int, ok bool)
	// Record tells the index of a partition that a rank was given a prompt. It is false
	// where there is no such rank. exact tells that the blocks are those of the prompt's
	// tokens, not of its text. It keeps nothing of blocks.
	Record(key fleet.PartitionKey, w fleet.Worker, blocks []kvcache.BlockHash, exact bool) bool
}

// Server answers clients from the primary's index. It is safe for concurrent use.
type Server struct {
	parts   Partitions
	scratch sync.Pool // of *scratch
	stats   serverCounters
}

// scratch is what one message needs.
type scratch struct {
	blocks   []kvcache.BlockHash
	ranks    []fleet.Worker
	overlaps []kvcache.Overlap
}

// NewServer makes a server.
func NewServer(parts Partitions) *Server {
	return &Server{parts: parts, scratch: sync.Pool{New: func() any { return &scratch{} }}}
}

// ServerStats is what a Server has done since it was made.
type ServerStats struct {
	// Finds and Records are items by outcome.
	Finds, Records map[Outcome]uint64
	// Refused are messages that could not be read.
	Refused uint64
}

type serverCounters struct {
	finds, records [statusNoRank + 1]atomic.Uint64 // by status
	refused        atomic.Uint64
}

// Stats are the counts so far.
func (s *Server) Stats() ServerStats {
	byOutcome := func(counts []atomic.Uint64) map[Outcome]uint64 {
		out := map[Outcome]uint64{}
		for status := range counts {
			out[statusOutcomes[status]] = counts[status].Load()
		}
		return out
	}
	return ServerStats{byOutcome(s.stats.finds[:statusNoRank]), byOutcome(s.stats.records[:]), s.stats.refused.Load()}
}

// Find answers a message of finds. An error wraps ErrMessage. It keeps nothing of the
// message; the caller owns the answer.
func (s *Server) Find(message []byte) ([]byte, error) {
	return s.answer(message, kindFind, maxFinds, leastFind, s.find)
}

// Record answers a message of records, as Find. Those before a bad one are recorded.
func (s *Server) Record(message []byte) ([]byte, error) {
	return s.answer(message, kindRecord, maxRecords, leastRecord, s.record)
}

// answer reads a message's items and has each append its answer.
func (s *Server) answer(message []byte, kind byte, most, least int, item func(*reader, *scratch, []byte) []byte) ([]byte, error) {
	r := &reader{rest: message}
	if len(message) > MaxMessage {
		r.err = bad("it has %d bytes, at most %d are allowed", len(message), MaxMessage)
	}
	n := r.head(kind, most, least)
	sc, _ := s.scratch.Get().(*scratch)
	defer s.scratch.Put(sc)
	out := appendHead(make([]byte, 0, headLength+64*n), kind+1, n)
	for range n {
		out = item(r, sc, out)
	}
	if err := r.end(); err != nil {
		s.stats.refused.Add(1)
		return nil, err
	}
	return out, nil
}

// find answers one find.
func (s *Server) find(r *reader, sc *scratch, out []byte) []byte {
	key, blockSize := r.partition()
	blocks := r.number("hashes", maxBlocks, hashLength)
	ranks := r.number("ranks", maxRanks, rankLength)
	sc.blocks = r.hashes(blocks, sc.blocks[:0])
	sc.ranks = r.ranks(ranks, sc.ranks[:0])
	if r.err != nil {
		return out
	}
	at := len(out)
	out = append(out, 0, 0, 0, 0, statusOK)
	x, status, size := s.partition(key, blockSize)
	out[at+4] = status
	s.stats.finds[status].Add(1)
	switch status {
	case statusSize:
		out = order.AppendUint32(out, size)
	case statusOK:
		if cap(sc.overlaps) < ranks {
			sc.overlaps = make([]kvcache.Overlap, ranks)
		}
		sc.overlaps = sc.overlaps[:ranks]
		x.Find(sc.blocks, sc.ranks, sc.overlaps)
		for i, o := range sc.overlaps {
			out = appendOverlap(out, o, x.Trusted(sc.ranks[i]))
		}
	}
	order.PutUint32(out[at:], uint32(len(out)-at-4))
	return out
}

// partition finds the index that a find or record is for.
func (s *Server) partition(key fleet.PartitionKey, blockSize uint32) (x Index, status byte, size uint32) {
	x, n, ok := s.parts.Partition(key)
	switch {
	case !ok:
		return nil, statusNone, 0
	case uint32(n) != blockSize:
		return nil, statusSize, uint32(n)
	}
	return x, statusOK, blockSize
}

// record takes one record over.
func (s *Server) record(r *reader, sc *scratch, out []byte) []byte {
	key, blockSize := r.partition()
	sc.ranks = r.ranks(1, sc.ranks[:0])
	exact := r.flag("exact")
	sc.blocks = r.hashes(r.number("hashes", maxBlocks, hashLength), sc.blocks[:0])
	if r.err != nil {
		return out
	}
	_, status, _ := s.partition(key, blockSize)
	if status == statusOK && !s.parts.Record(key, sc.ranks[0], sc.blocks, exact) {
		status = statusNoRank
	}
	s.stats.records[status].Add(1)
	return append(out, status)
}
