// Package dump is the form in which one router hands its indexes to another: a
// JSON object that has, by the partition's name MODEL:GROUP, its block size and the
// events that make its index again. The events are those of Dynamo's services
// (1.6.1, GET /dump: RouterEvent in lib/kv-router/src/protocols.rs), in order;
// what those cannot say stands in `salt` of a chain's first event and in `ranks`, where a
// rank that has much of it stands several times: each element says all but the hashes,
// of which it has a part.
//
// Write holds one worker's tables at a time and locks no index for longer than
// their copying takes. Read keeps no more than it was allowed to. Nothing here
// keeps state or starts goroutines.
package dump

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strconv"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/indexer"
	"github.com/routerd/routerd/kvcache"
)

// Partition is one partition's index.
type Partition struct {
	Key       fleet.PartitionKey
	BlockSize int
	Index     indexer.Snapshots
}

// maxHashes bounds the hashes of an element of ranks: with each of MaxEngineHashBytes it
// is far below maxValue.
const maxHashes = 16 << 10

// rank is what is known of one rank beside its blocks, in JSON, or a part of it.
type rank struct {
	Worker fleet.WorkerID      `json:"worker_id"`
	Rank   uint32              `json:"dp_rank"`
	Main   *int32              `json:"main_group,omitempty"`
	Others []int32             `json:"other_groups,omitempty"`
	Full   bool                `json:"right_size,omitempty"`
	Gone   bool                `json:"evicted,omitempty"`
	Opaque map[string][]hashID `json:"unmatchable,omitempty"` // by tier
}

// event is what is read of one; how it is written, see writer.event.
type event struct {
	Worker fleet.WorkerID `json:"worker_id"`
	Tier   string         `json:"storage_tier"`
	Event  inner          `json:"event"`
}

type inner struct {
	Data data   `json:"data"`
	Rank uint32 `json:"dp_rank"`
}

type data struct {
	Stored  *stored  `json:"stored,omitempty"`
	Removed *removed `json:"removed,omitempty"`
}

type stored struct {
	Parent *hashID `json:"parent_hash"`
	Salt   uint64  `json:"salt,omitempty"`
	Blocks []block `json:"blocks"`
}

type removed struct {
	Hashes []hashID `json:"block_hashes"`
}

type block struct {
	Hash   *hashID           `json:"block_hash"`
	Tokens kvcache.BlockHash `json:"tokens_hash"`
}

// hashID is an engine's hash: a number, or x: and the hexadecimal digits of bytes.
type hashID struct{ kvcache.EngineHash }

// MarshalJSON writes a number or a text.
func (h hashID) MarshalJSON() ([]byte, error) { return appendHash(nil, h.EngineHash), nil }

// UnmarshalJSON reads either.
func (h *hashID) UnmarshalJSON(raw []byte) error {
	if len(raw) > 0 && raw[0] != '"' {
		n, err := strconv.ParseUint(string(raw), 10, 64)
		h.EngineHash = kvcache.NumberHash(n)
		return err
	}
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return err
	}
	parsed, err := kvcache.ParseEngineHash(text)
	h.EngineHash = parsed
	return err
}

// tiers are Dynamo's words for the tiers, by tier.
var tiers = [kvcache.Tiers]string{kvcache.Device: "device", kvcache.Host: "host_pinned", kvcache.Disk: "disk", kvcache.Shared: "external"}

// Write writes the partitions as one JSON object.
func Write(w io.Writer, partitions []Partition) error {
	out := &writer{to: bufio.NewWriterSize(w, 64<<10)}
	out.text("{")
	for i := range partitions {
		if i > 0 {
			out.text(",")
		}
		out.partition(&partitions[i])
	}
	out.text("}")
	if out.err != nil {
		return fmt.Errorf("write dump: %w", out.err)
	}
	if err := out.to.Flush(); err != nil {
		return fmt.Errorf("write dump: %w", err)
	}
	return nil
}

// writer remembers its first error.
type writer struct {
	to     *bufio.Writer
	err    error
	buf    []byte
	number uint64 // of the next event
	comma  bool
}

func (w *writer) text(s string) {
	if w.err == nil {
		_, w.err = w.to.WriteString(s)
	}
}

func (w *writer) value(v any) {
	if w.err != nil {
		return
	}
	b, err := json.Marshal(v)
	if err == nil {
		_, err = w.to.Write(b)
	}
	w.err = err
}

// next writes the comma before all elements of a list but the first.
func (w *writer) next() {
	if w.comma {
		w.text(",")
	}
	w.comma = true
}

func (w *writer) partition(p *Partition) {
	w.value(p.Key.String())
	w.text(`:{"block_size":` + strconv.Itoa(p.BlockSize) + `,"events":[`)
	var ranks []rank
	w.number, w.comma = 0, false
	for _, worker := range p.Index.Workers() {
		s, ok := p.Index.Snapshot(worker)
		if !ok {
			continue // it has gone meanwhile
		}
		for c := range s.Changes {
			w.next()
			w.event(worker, &c)
			if w.err != nil {
				return
			}
		}
		if !s.Rest.None() {
			ranks = append(ranks, ranksOf(worker, &s.Rest)...)
		}
	}
	w.text("]")
	if len(ranks) > 0 {
		w.text(`,"ranks":`)
		w.value(ranks)
	}
	w.text("}")
}

// event writes a change as an event, by hand: a large index has millions of blocks.
func (w *writer) event(worker fleet.Worker, c *indexer.Change) {
	b := w.buf[:0]
	b = append(b, `{"worker_id":`...)
	b = strconv.AppendUint(b, uint64(worker.ID), 10)
	b = append(b, `,"storage_tier":"`...)
	b = append(b, tiers[c.Tier]...)
	b = append(b, `","residency_domain":"worker","event":{"event_id":`...)
	b = strconv.AppendUint(b, w.number, 10)
	w.number++
	if len(c.Removed) > 0 {
		b = append(b, `,"data":{"removed":{"block_hashes":[`...)
		for i, h := range c.Removed {
			b = appendHash(comma(b, i), h)
		}
		b = append(b, `]}}`...)
	} else {
		b = appendStored(append(b, `,"data":{"stored":`...), c)
		b = append(b, '}')
	}
	b = append(b, `,"dp_rank":`...)
	b = strconv.AppendUint(b, uint64(worker.Rank), 10)
	b = append(b, `}}`...)
	w.buf = b
	if w.err == nil {
		_, w.err = w.to.Write(w.buf)
	}
}

func appendStored(b []byte, c *indexer.Change) []byte {
	b = append(b, `{"parent_hash":`...)
	if c.HasParent {
		b = appendHash(b, c.Parent)
	} else {
		b = append(b, `null`...)
	}
	b = append(b, `,"start_position":null,`...)
	if c.Salt != 0 && !c.HasParent {
		b = append(b, `"salt":`...)
		b = strconv.AppendUint(b, c.Salt, 10)
		b = append(b, ',')
	}
	b = append(b, `"blocks":[`...)
	for i := range c.Blocks {
		b = comma(b, i)
		b = append(b, `{"block_hash":`...)
		b = appendHash(b, c.Blocks[i].Hash)
		b = append(b, `,"tokens_hash":`...)
		b = strconv.AppendUint(b, uint64(c.Blocks[i].Local), 10)
		b = append(b, `,"mm_extra_info":null}`...)
	}
	return append(b, `]}`...)
}

// comma writes the comma before all elements of a list but the first.
func comma(b []byte, i int) []byte {
	if i > 0 {
		return append(b, ',')
	}
	return b
}

// appendHash writes a number, or a text of x: and hexadecimal digits.
func appendHash(b []byte, h kvcache.EngineHash) []byte {
	if n, ok := h.Number(); ok {
		return strconv.AppendUint(b, n, 10)
	}
	return strconv.AppendQuote(b, h.String())
}

// ranksOf has at least one element, and more where the hashes are too many for one.
func ranksOf(worker fleet.Worker, rest *indexer.Rest) []rank {
	r := rank{Worker: worker.ID, Rank: worker.Rank, Others: rest.Others, Full: rest.Full, Gone: rest.Evicted}
	if rest.MainKnown {
		r.Main = &rest.Main
	}
	all, room := []rank{r}, maxHashes
	for t, hashes := range rest.Opaque {
		for len(hashes) > 0 {
			if room == 0 {
				all, room = append(all, r), maxHashes
			}
			last, n := &all[len(all)-1], min(room, len(hashes))
			if last.Opaque == nil {
				last.Opaque = map[string][]hashID{}
			}
			last.Opaque[tiers[t]] = hashIDs(hashes[:n])
			hashes, room = hashes[n:], room-n
		}
	}
	return all
}

func hashIDs(hashes []kvcache.EngineHash) []hashID {
	out := make([]hashID, len(hashes))
	for i, h := range hashes {
		out[i] = hashID{h}
	}
	return out
}
