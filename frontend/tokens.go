package frontend

import (
	"github.com/routerd/routerd/internal/jsonscan"
	"github.com/routerd/routerd/kvcache"
	"github.com/routerd/routerd/prompt"
)

// promptShape is what the prompt field of a completion holds.
type promptShape struct {
	tokens []uint32 // of the first prompt, when the request brings ids; else nil
	first  []byte   // raw value of the first prompt
	rest   int      // tokens of the others of a batch, estimated for text
	batch  bool
}

// shapeOf reads a prompt: a text, an array of texts, of ids, or of arrays of
// ids. Anything else is taken for a text: the worker will judge it.
func shapeOf(raw []byte) promptShape {
	whole := promptShape{first: raw}
	if len(raw) == 0 || raw[0] != '[' {
		return whole
	}
	r := &jsonscan.Reader{Data: raw}
	switch r.Pos++; first(r) {
	case '"', '[':
	default:
		ids, ok := idsOf(raw)
		if ok {
			whole.tokens = ids
		}
		return whole
	}
	shape := promptShape{batch: true}
	for n := 0; ; n++ {
		r.Space()
		element, err := r.Value()
		if err != nil {
			return whole
		}
		tokens := len(element) / kvcache.BytesPerToken
		ids, isIDs := idsOf(element)
		if isIDs {
			tokens = len(ids)
		}
		if n == 0 {
			shape.first, shape.tokens = element, ids
		} else {
			shape.rest += tokens
		}
		r.Space()
		if !r.Take(',') {
			shape.batch = n > 0
			return shape
		}
	}
}

func first(r *jsonscan.Reader) byte {
	r.Space()
	return r.Peek()
}

// idsOf reads an array of token ids; ok is false for anything else. An empty
// array has no ids.
func idsOf(raw []byte) (ids []uint32, ok bool) {
	if len(raw) < 2 || raw[0] != '[' {
		return nil, false
	}
	r := jsonscan.Reader{Data: raw}
	ids, err := r.Uint32s(make([]uint32, 0, len(raw)/5+1))
	return ids, err == nil && len(ids) > 0 && r.Pos == len(raw)
}

// firstOnly returns the fields with the prompt replaced by the first of its
// batch.
func firstOnly(fields []prompt.Field, first []byte) []prompt.Field {
	out := make([]prompt.Field, len(fields))
	copy(out, fields)
	for i := range out {
		if out[i].Name == "prompt" {
			out[i].Value = first
		}
	}
	return out
}
