// Package indextest checks an index of any kind against a plain model: maps from engine hashes to paths, replayed event by
// event; of recorded prompts, maps from paths to when they were; beside events, a list of the decisions that none has
// confirmed.
//
//	func TestModel(t *testing.T) {
//		indextest.Run(t, func(blockSize int) indexer.Indexer { return exact.New(blockSize) })
//	}
//
// A failure prints the operations, one JSON object a line; Replay runs such a script again.
package indextest

import (
	"bufio"
	"encoding/json"
	"strings"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/kvcache"
)

// op is one step of a script. Do is stored, removed, cleared, clear, remove, record, forget, pass: hundredths of the TTL
// go by, find, evict: have the index give blocks up, or carry: go on with an index that took over the snapshots of all
// workers.
type op struct {
	Do        string            `json:"do"`
	Worker    uint64            `json:"worker"`
	Rank      uint32            `json:"rank,omitempty"`
	Tier      kvcache.Tier      `json:"tier,omitempty"`
	Group     int32             `json:"group,omitempty"`
	Attention kvcache.Attention `json:"attention,omitempty"`
	Hashes    []uint64          `json:"hashes,omitempty"`
	Raw       bool              `json:"raw,omitempty"` // hashes are byte strings
	Parent    *uint64           `json:"parent,omitempty"`
	Tokens    []uint32          `json:"tokens,omitempty"`
	Bigram    bool              `json:"bigram,omitempty"`
	BlockSize int               `json:"block_size,omitempty"`
	Adapter   string            `json:"adapter,omitempty"`
	Salt      string            `json:"salt,omitempty"`
	Items     [][]uint64        `json:"items,omitempty"`
	Opaque    *int              `json:"opaque,omitempty"`
	Bytes     int64             `json:"bytes,omitempty"` // that are to be given up
	Ticks     int               `json:"ticks,omitempty"` // that pass
}

func (o op) who() fleet.Worker { return fleet.Worker{ID: fleet.WorkerID(o.Worker), Rank: o.Rank} }

func (o op) hash(n uint64) kvcache.EngineHash {
	if !o.Raw {
		return kvcache.NumberHash(n)
	}
	h, _ := kvcache.BytesHash([]byte{'h', byte(n >> 56), byte(n >> 48), byte(n >> 40), byte(n >> 32), byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
	return h
}

// event returns the event that the step applies.
func (o op) event() kvcache.Event {
	kinds := map[string]kvcache.EventKind{"stored": kvcache.Stored, "removed": kvcache.Removed, "cleared": kvcache.Cleared}
	e := kvcache.Event{
		Kind: kinds[o.Do], Tier: o.Tier, Group: o.Group, Attention: o.Attention,
		Tokens: o.Tokens, Bigram: o.Bigram, BlockSize: o.BlockSize, Adapter: o.Adapter, Salt: o.Salt, Items: o.Items,
	}
	for _, n := range o.Hashes {
		e.Hashes = append(e.Hashes, o.hash(n))
	}
	if o.Parent != nil {
		e.Parent, e.HasParent = o.hash(*o.Parent), true
	}
	if o.Opaque != nil {
		e.Opaque, e.OpaqueFrom = true, *o.Opaque
	}
	return e
}

// blocks are the local hashes of the step's tokens.
func (o op) blocks() ([]kvcache.BlockHash, error) {
	how := kvcache.Hashing{Seed: kvcache.Seed(o.Adapter, o.Salt), Bigram: o.Bigram, Items: o.Items}
	return how.Blocks(nil, o.Tokens, blockSize)
}

func script(ops []op) string {
	var b strings.Builder
	for _, o := range ops {
		line, err := json.Marshal(o)
		if err != nil {
			return err.Error()
		}
		b.Write(line)
		b.WriteByte('\n')
	}
	return b.String()
}

func parse(text string) ([]op, error) {
	var ops []op
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		if line := strings.TrimSpace(lines.Text()); line != "" {
			var o op
			if err := json.Unmarshal([]byte(line), &o); err != nil {
				return nil, err
			}
			ops = append(ops, o)
		}
	}
	return ops, lines.Err()
}
