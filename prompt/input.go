package prompt

import (
	"bytes"
	"encoding/binary"

	"github.com/zeebo/xxh3"
)

// Route is the kind of request that a prompt came in.
type Route uint8

// Routes.
const (
	Completions Route = iota + 1 // the field "prompt"
	Chat                         // the field "messages"
)

// Fields are the names of the request fields that decide about the tokens and
// are passed to /tokenize, in the order in which they are sent.
func Fields() []string {
	return []string{
		"prompt", "messages", "tools", "chat_template", "chat_template_kwargs", "add_generation_prompt",
		"continue_final_message", "add_special_tokens", "documents", "reasoning_effort",
	}
}

// Field is one field of the request with its value's raw JSON bytes.
type Field struct {
	Name  string
	Value []byte
}

// Input is a prompt. Fields holds those of Fields() that the request has, in
// that order; the values are read only during the call that they are given to
// and must not change until it returned.
type Input struct {
	Route  Route
	Model  string // model or adapter, as the engine knows it
	Fields []Field
}

// emptyPrompt is up to how many raw bytes a prompt may have no tokens at all,
// as "" and [] do.
const emptyPrompt = 16

// promptBytes is the size of what the prompt says, in raw JSON bytes.
func (in Input) promptBytes() int {
	n := 0
	for _, f := range in.Fields {
		if f.Name == "prompt" || f.Name == "messages" {
			n += len(f.Value)
		}
	}
	return n
}

// digest is XXH3-128 of everything that decides about the tokens.
type digest [16]byte

func (in Input) digest() digest {
	h := xxh3.New()
	var n [8]byte
	part := func(b []byte) {
		binary.LittleEndian.PutUint64(n[:], uint64(len(b)))
		_, _ = h.Write(n[:]) // a hash never fails
		_, _ = h.Write(b)
	}
	part([]byte{byte(in.Route)})
	part([]byte(in.Model))
	for _, f := range in.Fields {
		part([]byte(f.Name))
		part(f.Value)
	}
	return h.Sum128().Bytes()
}

// body is the request to /tokenize: the model, and the fields byte for byte.
func (in Input) body() []byte {
	var b bytes.Buffer
	b.WriteString(`{"model":`)
	b.Write(quoted(in.Model))
	for _, f := range in.Fields {
		b.WriteString(`,"` + f.Name + `":`)
		b.Write(f.Value)
	}
	b.WriteByte('}')
	return b.Bytes()
}
