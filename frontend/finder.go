package frontend

import "bytes"

// finder finds two members of a JSON object that is written to it in pieces:
// the value of "usage", and whether "error" is there. It believes that the text
// is JSON; of any other it finds nothing of worth, in bounded memory.
type finder struct {
	depth    int
	inString bool
	escaped  bool
	atKey    bool // at depth 1, where a key may stand
	key      [8]byte
	keyLen   int
	taking   member // whose value is being read
	hasError bool
	length   int // of value; above its size when it does not fit
	value    [768]byte
}

type member uint8

const (
	memberOther member = iota
	memberUsage
	memberError
)

// usage is the value of that member; nil when absent or too long.
func (f *finder) usage() []byte {
	if f.length > len(f.value) {
		return nil
	}
	return bytes.TrimSpace(f.value[:f.length])
}

// write reads the next piece.
func (f *finder) write(p []byte) {
	for i := 0; i < len(p); i++ {
		c := p[i]
		if f.inString {
			if !f.escaped && c != '"' && c != '\\' && f.taking == memberOther && !f.atKey {
				continue // most of all text
			}
			f.inText(c)
			continue
		}
		f.outside(c)
	}
}

func (f *finder) inText(c byte) {
	f.take(c)
	switch {
	case f.escaped:
		f.escaped = false
	case c == '\\':
		f.escaped = true
	case c == '"':
		f.inString = false
		return
	}
	if f.atKey {
		if f.keyLen < len(f.key) {
			f.key[f.keyLen] = c
		}
		f.keyLen++
	}
}

func (f *finder) outside(c byte) {
	switch c {
	case '"':
		f.inString = true
		if f.atKey {
			f.keyLen = 0
		}
	case '{', '[':
		f.depth++
		f.atKey = f.depth == 1 && c == '{'
		if f.depth == 1 {
			return
		}
	case '}', ']':
		f.depth--
		if f.depth <= 0 {
			f.taking, f.atKey = memberOther, false
		}
	case ',':
		if f.depth == 1 {
			f.taking, f.atKey = memberOther, true
		}
	case ':':
		if f.depth == 1 && f.atKey {
			f.atKey = false
			f.taking = f.named()
			return
		}
	}
	f.take(c)
}

// named starts the value of the key that was read.
func (f *finder) named() member {
	switch string(f.key[:min(f.keyLen, len(f.key))]) {
	case "usage":
		f.length = 0
		return memberUsage
	case "error":
		return memberError
	}
	return memberOther
}

// take keeps a byte of a value that matters.
func (f *finder) take(c byte) {
	switch f.taking {
	case memberUsage:
		if f.length < len(f.value) {
			f.value[f.length] = c
		}
		f.length++
	case memberError:
		switch c {
		case ' ', '\t', '\r', '\n':
		default:
			f.hasError = f.hasError || c != 'n' // null is no error
			f.taking = memberOther
		}
	}
}
