package sim

import "encoding/binary"

// SplitPieces splits a text as the tokenizer does, for comparison with the
// pattern that it implements.
func SplitPieces(text string) []string {
	var out []string
	for len(text) > 0 {
		n := pieceLength(text)
		out = append(out, text[:n])
		text = text[n:]
	}
	return out
}

// CacheProbe drives a block cache directly.
type CacheProbe struct{ c *cache }

// ProbeEvent is an event in comparable form.
type ProbeEvent struct {
	Kind    string
	Hashes  []string
	Parent  string
	Tokens  string
	Adapter string
}

// Held is a chain that a test holds.
type Held struct{ ch *chain }

// NewCacheProbe returns an empty cache.
func NewCacheProbe(blockSize, capacity int) *CacheProbe {
	return &CacheProbe{newCache(blockSize, capacity, rootDigest("probe"))}
}

// Open holds the cached beginning of a sequence.
func (p *CacheProbe) Open(adapter string, tokens []uint32) (held *Held, blocks int) {
	ch := p.c.open(newSequence(adapter, tokens), len(tokens)/p.c.blockSize)
	return &Held{ch}, len(ch.held)
}

// Fill caches what is full after computed tokens.
func (p *CacheProbe) Fill(h *Held, computed int) []ProbeEvent {
	var out []ProbeEvent
	for _, e := range p.c.fill(h.ch, computed) {
		pe := ProbeEvent{Kind: string(e.kind), Tokens: e.tokens, Adapter: e.adapter}
		for _, d := range e.hashes {
			pe.Hashes = append(pe.Hashes, d.text(HashInt))
		}
		if e.parent != nil {
			pe.Parent = e.parent.text(HashInt)
		}
		out = append(out, pe)
	}
	return out
}

// Release gives the chain back.
func (p *CacheProbe) Release(h *Held) { p.c.release(h.ch) }

// Clear empties the cache.
func (p *CacheProbe) Clear() { p.c.clear() }

// Hashes lists what is cached.
func (p *CacheProbe) Hashes() []string { return p.c.hashes(HashInt) }

// Usage is the share of held blocks.
func (p *CacheProbe) Usage() float64 { return p.c.usage() }

// CapturedEvent is an event of a capture, for the encoder. Hashes are as on the
// wire: uint64 or 32 bytes.
type CapturedEvent struct {
	Kind      string
	Hashes    []any
	Parent    any
	Tokens    []uint32
	Adapter   string
	BlockSize int
}

// EncodeCaptured writes one batch with this package's encoder.
func EncodeCaptured(form EventForm, hashes HashForm, at float64, list []CapturedEvent, adapters map[string]int, rank int) []byte {
	id := func(name string) int { return adapters[name] }
	enc := encoder{form: form, hashForm: hashes, adapterID: id, blockSize: 16}
	var events []event
	for _, c := range list {
		e := event{kind: eventKind(c.Kind), adapter: c.Adapter}
		for _, h := range c.Hashes {
			e.hashes = append(e.hashes, capturedDigest(h))
		}
		if c.Parent != nil {
			parent := capturedDigest(c.Parent)
			e.parent = &parent
		}
		s := newSequence("", c.Tokens)
		e.tokens = s.tokens(0, len(c.Tokens))
		events = append(events, e)
	}
	return enc.batch(nil, at, events, rank)
}

func capturedDigest(h any) digest {
	var d digest
	switch v := h.(type) {
	case uint64:
		binary.BigEndian.PutUint64(d[len(d)-8:], v)
	case []byte:
		copy(d[:], v)
	}
	return d
}
