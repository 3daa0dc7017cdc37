package selection

import (
	"strconv"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/internal/httpapi"
	"github.com/routerd/routerd/internal/jsonscan"
)

// mmItems are the hashes of what touches each block of a prompt. They stand one block
// after the other in one slice.
type mmItems struct {
	hashes []uint64
	ends   []int // of each block, in hashes
	blocks [][]uint64
}

func (m mmItems) emptied() mmItems {
	return mmItems{m.hashes[:0], m.ends[:0], m.blocks[:0]}
}

// large tells whether the buffers are not to be used again.
func (m mmItems) large() bool {
	return cap(m.hashes) > maxKept || cap(m.ends) > maxKept || cap(m.blocks) > maxKept
}

// read reads an array with null or {"mm_objects":[…]} for each block.
func (m *mmItems) read(r *jsonscan.Reader, name string) error {
	if err := opens(r, '[', name, "an array of objects and null"); err != nil {
		return err
	}
	return r.Array(func(i int) error {
		if !null(r) {
			if err := m.block(r, name+"["+strconv.Itoa(i)+"]"); err != nil {
				return err
			}
		}
		m.ends = append(m.ends, len(m.hashes))
		return nil
	})
}

func (m *mmItems) block(r *jsonscan.Reader, name string) error {
	o := object{r: r, path: name, fields: []string{"mm_objects"}}
	err := o.read(func(int) error {
		path := name + ".mm_objects"
		if err := opens(r, '[', path, "an array of objects"); err != nil {
			return err
		}
		return r.Array(func(i int) error { return m.item(r, path+"["+strconv.Itoa(i)+"]") })
	})
	if err != nil {
		return err
	}
	return o.require(0)
}

// item reads one object. Where it stands in the block does not count.
func (m *mmItems) item(r *jsonscan.Reader, name string) error {
	o := object{r: r, path: name, fields: []string{"mm_hash", "offsets"}}
	err := o.read(func(i int) error {
		if i == 1 {
			return skipOffsets(r, name+".offsets")
		}
		raw, err := r.Value()
		if err != nil {
			return err
		}
		id, err := workerOf(raw, name+".mm_hash")
		m.hashes = append(m.hashes, uint64(id))
		return err
	})
	if err != nil {
		return err
	}
	return o.require(0, 1)
}

// skipOffsets checks an array of pairs of counts.
func skipOffsets(r *jsonscan.Reader, name string) error {
	const allowed = "an array of pairs of counts"
	if err := opens(r, '[', name, allowed); err != nil {
		return err
	}
	return r.Array(func(int) error {
		if err := opens(r, '[', name, allowed); err != nil {
			return err
		}
		n := 0
		err := r.Array(func(int) error {
			raw, err := r.Value()
			if err == nil && (!isWhole(raw) || raw[0] == '-') {
				err = wrongType(name, string(raw), allowed)
			}
			n++
			return err
		})
		if err == nil && n != 2 {
			err = wrongType(name, "a list of "+strconv.Itoa(n), allowed)
		}
		return err
	})
}

// byBlock gives the hashes block by block; they are those of m.
func (m *mmItems) byBlock() [][]uint64 {
	start := 0
	for _, end := range m.ends {
		m.blocks = append(m.blocks, m.hashes[start:end])
		start = end
	}
	return m.blocks
}

func (b *body) mmRoutingInfo() error {
	r, name := &b.reader, fieldMmRoutingInfo.name()
	if err := opens(r, '{', name, "an object"); err != nil {
		return err
	}
	o := object{r: r, path: name, fields: []string{"routing_token_ids", "block_mm_infos"}}
	err := o.read(func(i int) (err error) {
		path := name + "." + o.fields[i]
		if i == 1 {
			return b.routed.read(r, path)
		}
		b.routing, err = tokensOf(r, path, b.routing)
		return err
	})
	if err != nil {
		return err
	}
	return o.require(0)
}

// prompt is what the body says of its prompt: routing tokens of a multimodal prompt
// before tokens before hashes. The slices are the body's.
func (b *body) prompt() (core.Prompt, error) {
	p, given := b.tokenPrompt()
	switch {
	case given:
		return p, nil
	case !b.given.has(fieldBlockHashes):
		return p, withoutTokens(fieldBlockHashes)
	case !b.given.has(fieldSequenceHashes):
		return p, withoutTokens(fieldSequenceHashes)
	case !b.given.has(fieldIslTokens):
		return p, withoutTokens(fieldIslTokens)
	case b.isl == 0:
		return p, inWords(fieldIslTokens, "isl_tokens must be greater than 0", "1 to 2147483647")
	case len(b.blocks) != len(b.sequences):
		n, m := strconv.Itoa(len(b.blocks)), strconv.Itoa(len(b.sequences))
		return p, inWords(fieldSequenceHashes, "block_hashes length "+n+" must match sequence_hashes length "+m, "as many as block_hashes")
	}
	p.Blocks, p.Sequences, p.Count, p.Exact = b.blocks, b.sequences, b.isl, true
	return p, nil
}

// bookedPrompt is prompt for a booking that names its worker: nothing is looked up, so
// that block hashes count for nothing.
func (b *body) bookedPrompt() (core.Prompt, error) {
	p, given := b.tokenPrompt()
	switch {
	case given:
		return p, nil
	case !b.given.has(fieldSequenceHashes):
		return p, withoutTokens(fieldSequenceHashes)
	case !b.given.has(fieldIslTokens):
		return p, withoutTokens(fieldIslTokens)
	}
	p.Sequences, p.Count, p.Exact = b.sequences, b.isl, true
	return p, nil
}

// tokenPrompt is the prompt of a body with token ids; an empty array is one too, but
// not that of a multimodal prompt.
func (b *body) tokenPrompt() (p core.Prompt, given bool) {
	p.Salt, p.Bigram = b.salt, b.eagle
	switch {
	case len(b.routing) > 0:
		p.Tokens, p.Multimodal = b.routing, b.routed.byBlock()
		return p, true
	case b.given.has(fieldTokenIDs):
		p.Tokens, p.Multimodal = b.tokens, b.items.byBlock()
		return p, true
	}
	return p, false
}

// withoutTokens says what a prompt without token ids lacks.
func withoutTokens(f field) error {
	return inWords(f, f.name()+" is required without token_ids", "token_ids, mm_routing_info, or block_hashes, sequence_hashes and isl_tokens")
}

func inWords(f field, message, allowed string) error {
	return &httpapi.Failure{Code: httpapi.CodeInvalid, Message: message, Details: httpapi.Details{Step: "check", Item: f.name(), Allowed: allowed}}
}

// lookUp reads what a request asks to look at; its slices are the body's, which the
// caller gives back unless there is an error.
func (s *Server) lookUp(x *exchange) (b *body, q core.Lookup, err error) {
	if b, err = s.bodies.read(x.rc.PostBody(), lookupSet); err != nil {
		return nil, q, err
	}
	p, err := b.prompt()
	if err != nil {
		s.bodies.done(b)
		return nil, q, err
	}
	return b, core.Lookup{
		Partition: b.partition, Prompt: p, Adapter: b.adapter, AssumeReuse: b.override.assumeReuse, TrackPrefill: b.override.trackPrefill,
	}, nil
}
