package dump

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/indexer"
	"github.com/routerd/routerd/kvcache"
)

// ErrTooLarge is for a dump that is larger than allowed, or has an event that is.
var ErrTooLarge = errors.New("the dump is larger than allowed")

// maxValue is the most bytes that one event, rank or name may have, so that a dump
// cannot take more memory than what it says is worth.
const maxValue = 8 << 20

// Index is what a dump says of one partition, by rank.
type Index struct {
	BlockSize int
	Ranks     map[fleet.Worker]*Rank
}

// Rank is what a dump says of one rank.
type Rank struct {
	Changes []indexer.Change
	Rest    indexer.Rest
}

// Read reads a dump of at most so many bytes whole, by the partitions' names,
// MODEL:GROUP: they are not taken apart, since either may have colons. It is an error
// if it is larger, no JSON of the form, or ends early. Events of kinds that are not
// known are left out.
func Read(r io.Reader, most int64) (map[string]*Index, error) {
	from := &bounded{from: r, left: most}
	d := json.NewDecoder(from)
	from.decoded = d.InputOffset
	out := map[string]*Index{}
	err := members(d, func(name string) error {
		if !strings.Contains(name, ":") {
			return fmt.Errorf("partition %.80q: the name is not MODEL:GROUP", name)
		}
		x := &Index{Ranks: map[fleet.Worker]*Rank{}}
		out[name] = x
		return x.read(d)
	})
	if err != nil {
		return nil, fmt.Errorf("read dump: %w", err)
	}
	return out, nil
}

// bounded fails once more than allowed was read, or would have to be for one value.
type bounded struct {
	from       io.Reader
	left, read int64
	decoded    func() int64 // how far the last whole value went
}

// Read reads.
func (b *bounded) Read(p []byte) (int, error) {
	// The decoder asks for as much as its buffer has room for, which doubles.
	room := min(b.left, maxValue-(b.read-b.decoded()))
	if room <= 0 {
		return 0, ErrTooLarge
	}
	n, err := b.from.Read(p[:min(int64(len(p)), room)])
	b.left -= int64(n)
	b.read += int64(n)
	return n, err
}

// members calls f before each value of an object, with its key; f reads the value.
func members(d *json.Decoder, f func(key string) error) error {
	if err := delim(d, '{'); err != nil {
		return err
	}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return err
		}
		key, _ := t.(string)
		if err := f(key); err != nil {
			return err
		}
	}
	return delim(d, '}')
}

func delim(d *json.Decoder, want json.Delim) error {
	t, err := d.Token()
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err == nil && t != want {
		err = fmt.Errorf("got %.40v where %q is expected", t, want.String())
	}
	return err
}

func (x *Index) read(d *json.Decoder) error {
	return members(d, func(key string) error {
		switch key {
		case "block_size":
			return d.Decode(&x.BlockSize)
		case "events":
			return x.events(d)
		case "ranks":
			return x.ranks(d)
		}
		var other json.RawMessage
		return d.Decode(&other)
	})
}

func (x *Index) events(d *json.Decoder) error {
	if err := delim(d, '['); err != nil {
		return err
	}
	for d.More() {
		var e event
		if err := d.Decode(&e); err != nil {
			return err
		}
		tier := slices.Index(tiers[:], e.Tier)
		if tier < 0 {
			continue
		}
		r := x.rank(fleet.Worker{ID: e.Worker, Rank: e.Event.Rank})
		c, err := e.Event.Data.change(kvcache.Tier(tier))
		if err != nil {
			return err
		}
		if len(c.Blocks) > 0 || len(c.Removed) > 0 {
			r.Changes = append(r.Changes, c)
		}
	}
	return delim(d, ']')
}

func (x *Index) rank(w fleet.Worker) *Rank {
	r := x.Ranks[w]
	if r == nil {
		r = &Rank{}
		x.Ranks[w] = r
	}
	return r
}

func (d *data) change(tier kvcache.Tier) (c indexer.Change, err error) {
	c.Tier = tier
	switch {
	case d.Stored != nil:
		c.Salt = d.Stored.Salt
		if p := d.Stored.Parent; p != nil {
			c.Parent, c.HasParent = p.EngineHash, true
		}
		for _, b := range d.Stored.Blocks {
			if b.Hash == nil {
				return c, errors.New("a stored block has no block_hash")
			}
			c.Blocks = append(c.Blocks, indexer.Block{Hash: b.Hash.EngineHash, Local: b.Tokens})
		}
		return c, nil
	case d.Removed != nil:
		c.Removed = engineHashes(d.Removed.Hashes)
	}
	return c, nil
}

func (x *Index) ranks(d *json.Decoder) error {
	if err := delim(d, '['); err != nil {
		return err
	}
	for d.More() {
		var in rank
		if err := d.Decode(&in); err != nil {
			return err
		}
		rest := &x.rank(fleet.Worker{ID: in.Worker, Rank: in.Rank}).Rest
		rest.Others, rest.Full, rest.Evicted, rest.MainKnown = in.Others, in.Full, in.Gone, in.Main != nil
		if rest.MainKnown {
			rest.Main = *in.Main
		}
		for t, name := range tiers {
			rest.Opaque[t] = append(rest.Opaque[t], engineHashes(in.Opaque[name])...)
		}
	}
	return delim(d, ']')
}

func engineHashes(in []hashID) []kvcache.EngineHash {
	var out []kvcache.EngineHash
	for _, h := range in {
		out = append(out, h.EngineHash)
	}
	return out
}
