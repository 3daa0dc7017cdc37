package prompt

import (
	"encoding/binary"

	"github.com/zeebo/xxh3"

	"github.com/routerd/routerd/internal/jsonscan"
	"github.com/routerd/routerd/kvcache"
)

// Mode says who turns the prompts of a model into blocks.
type Mode string

// Modes.
const (
	ModeEngine Mode = "engine" // the worker's /tokenize: blocks of tokens
	ModeText   Mode = "text"   // nobody: approximate blocks of the text's bytes
	ModeOff    Mode = "off"    // nobody: no blocks at all
)

// The marks structure the text of a prompt. They are bytes that no UTF-8 text holds, so
// that different prompts never make one text.
const (
	markHow     = 0xf5 // a hash of the fields that decide how the prompt is rendered
	markField   = 0xf6 // a field that is rendered into the prompt
	markMessage = 0xf7 // a message, with its role
	markContent = 0xf8
	markPart    = 0xf9 // a further part of a content
	markItem    = 0xfa // a hash of a part that is no text
	markMember  = 0xfb // a further member of a message
	markValue   = 0xfc
)

// WriteText writes the prompt's text to h, in an order that keeps what was before when a
// chat goes on: what is rendered anew for each message comes first, then the messages
// one after the other, without an end. Escapes are undone. Of an image or another part
// that is no text the hash of its JSON stands for it.
//
// add_generation_prompt and continue_final_message are left out: they decide only about
// the few tokens behind the last message, which no later prompt shares.
func (in Input) WriteText(h *kvcache.TextHasher) {
	w := textWriter{h}
	if in.Route == Completions {
		w.how(in, "add_special_tokens")
		w.text(in.field("prompt"))
		return
	}
	w.how(in, "chat_template", "chat_template_kwargs", "add_special_tokens", "reasoning_effort")
	for _, name := range []string{"tools", "documents"} {
		if v := in.field(name); v != nil {
			w.mark(markField)
			h.Write([]byte(name))
			w.mark(markValue)
			h.Write(v)
		}
	}
	w.messages(in.field("messages"))
}

// HasItems tells whether a chat has images or other parts that are no text: its tokens
// then hold placeholders, which do not tell what is there.
func (in Input) HasItems() bool {
	found := false
	each(in.field("messages"), func(message []byte) {
		members(message, func(key, value []byte) {
			if string(key) == "content" {
				each(value, func(part []byte) {
					_, text := textOf(part)
					found = found || !text
				})
			}
		})
	})
	return found
}

// field is the raw value of a field; nil for none, and for null, which says no more.
func (in Input) field(name string) []byte {
	for _, f := range in.Fields {
		if f.Name == name && !isNull(f.Value) {
			return f.Value
		}
	}
	return nil
}

func isNull(raw []byte) bool { return string(raw) == "null" }

// textWriter writes the parts of a prompt. It is given values that were checked to be
// JSON; what has another form than it should is written as it is.
type textWriter struct{ h *kvcache.TextHasher }

func (w textWriter) mark(m byte) { w.h.Write([]byte{m}) }

func (w textWriter) hash(sum uint64) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], sum)
	w.h.Write(b[:])
}

// how writes one hash of some fields, if there are any: they are no part of the text,
// but one prompt with and another without them have no block in common.
func (w textWriter) how(in Input, names ...string) {
	chosen := Input{Route: in.Route}
	for _, name := range names {
		if v := in.field(name); v != nil {
			chosen.Fields = append(chosen.Fields, Field{name, v})
		}
	}
	if len(chosen.Fields) > 0 {
		d := chosen.digest()
		w.mark(markHow)
		w.h.Write(d[:])
	}
}

// text writes what a string says.
func (w textWriter) text(raw []byte) {
	if len(raw) > 0 && raw[0] == '"' {
		raw = jsonscan.Unquote(raw)
	}
	w.h.Write(raw)
}

func (w textWriter) messages(raw []byte) {
	if !each(raw, w.message) {
		w.h.Write(raw)
	}
}

// message writes role and content before the other members, in whatever order they are.
func (w textWriter) message(raw []byte) {
	var role, content []byte
	w.mark(markMessage)
	if !members(raw, func(key, value []byte) {
		switch string(key) {
		case "role":
			role = value
		case "content":
			content = value
		}
	}) {
		w.h.Write(raw)
		return
	}
	w.text(role)
	w.mark(markContent)
	w.content(content)
	members(raw, func(key, value []byte) {
		if name := string(key); name != "role" && name != "content" && !isNull(value) {
			w.mark(markMember)
			w.h.Write(key)
			w.mark(markValue)
			w.h.Write(value)
		}
	})
}

// content writes a text, or the parts of an array. One text and an array of that text
// are the same.
func (w textWriter) content(raw []byte) {
	if len(raw) == 0 || isNull(raw) {
		return
	}
	if raw[0] != '[' {
		w.text(raw)
		return
	}
	i := 0
	each(raw, func(part []byte) {
		if i > 0 {
			w.mark(markPart)
		}
		i++
		if text, ok := textOf(part); ok {
			w.text(text)
			return
		}
		w.mark(markItem)
		w.hash(xxh3.Hash(part))
	})
}

// textOf is the raw text of a part that is one.
func textOf(part []byte) (text []byte, ok bool) {
	if part[0] == '"' {
		return part, true
	}
	typed := false
	members(part, func(key, value []byte) {
		switch string(key) {
		case "type":
			typed = string(value) == `"text"`
		case "text":
			text = value
		}
	})
	return text, typed && len(text) > 0 && text[0] == '"'
}

// each calls f for each element of an array; false is another value.
func each(raw []byte, f func(element []byte)) bool {
	if len(raw) == 0 || raw[0] != '[' {
		return false
	}
	r := jsonscan.Reader{Data: raw}
	err := r.Array(func(int) error {
		element, err := r.Value()
		if err == nil {
			f(element)
		}
		return err
	})
	return err == nil
}

// members calls f for each member of an object; false is another value.
func members(raw []byte, f func(key, value []byte)) bool {
	if len(raw) == 0 || raw[0] != '{' {
		return false
	}
	r := jsonscan.Reader{Data: raw}
	return r.Members(func(key, value []byte) error { f(key, value); return nil }) == nil
}
