package frontend

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
)

// maxDepth bounds the nesting of a body.
const maxDepth = 512

// What is wrong with a JSON text.
var (
	errNotJSON = errors.New("not valid JSON")
	errTooDeep = errors.New("nested more than 512 levels deep")
)

// reader walks over a JSON text and checks it as it goes. It decodes nothing
// and allocates nothing; its depth is bounded.
type reader struct {
	data  []byte
	pos   int
	stack [maxDepth]byte // opening brackets that are not closed yet
}

// space skips white space.
func (r *reader) space() {
	for r.pos < len(r.data) {
		switch r.data[r.pos] {
		case ' ', '\n', '\r', '\t':
			r.pos++
		default:
			return
		}
	}
}

// peek returns the next byte, 0 at the end.
func (r *reader) peek() byte {
	if r.pos < len(r.data) {
		return r.data[r.pos]
	}
	return 0
}

// take skips c, if it is next.
func (r *reader) take(c byte) bool {
	if r.peek() != c || r.pos == len(r.data) {
		return false
	}
	r.pos++
	return true
}

// text skips a string and returns it with its quotes.
func (r *reader) text() (raw []byte, err error) {
	start := r.pos
	if !r.take('"') {
		return nil, errNotJSON
	}
	for i := r.pos + plain(r.data[r.pos:]); i < len(r.data); i++ {
		switch c := r.data[i]; {
		case c == '"':
			r.pos = i + 1
			return r.data[start:r.pos], nil
		case c < 0x20:
			return nil, errNotJSON
		case c == '\\':
			n := escapeLength(r.data[i:])
			if n == 0 {
				return nil, errNotJSON
			}
			i += n - 1
			i += plain(r.data[i+1:])
		}
	}
	return nil, errNotJSON
}

// plain is a number of leading bytes of b, whole words, that hold no quote, no
// backslash and no control character; large prompts are mostly such bytes.
func plain(b []byte) int {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	n := 0
	for ; len(b)-n >= 8; n += 8 {
		x := binary.LittleEndian.Uint64(b[n:])
		quote, slash := x^('"'*ones), x^('\\'*ones)
		// The high bit of a byte is set in a term where the byte is below 0x20, or
		// a quote, or a backslash (Warren, Hacker's Delight, 6-1); a borrow can
		// only set one above a byte that is found already.
		if ((x-0x20*ones)&^x|(quote-ones)&^quote|(slash-ones)&^slash)&highs != 0 {
			break
		}
	}
	return n
}

// escapeLength is the length of the escape that b begins with; 0 for none.
func escapeLength(b []byte) int {
	if len(b) < 2 {
		return 0
	}
	switch b[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		if len(b) < 6 {
			return 0
		}
		for _, c := range b[2:6] {
			if !isHex(c) {
				return 0
			}
		}
		return 6
	}
	return 0
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

// value skips any value and returns it.
func (r *reader) value() (raw []byte, err error) {
	start, depth := r.pos, 0
	for {
		r.space()
		switch c := r.peek(); c {
		case '{', '[':
			if depth == maxDepth {
				return nil, errTooDeep
			}
			r.stack[depth] = c
			depth++
			r.pos++
			r.space()
			if r.take(c + 2) { // the closing bracket of either
				depth--
				break
			}
			if c == '{' {
				if err := r.key(); err != nil {
					return nil, err
				}
			}
			continue
		default:
			if err := r.scalar(c); err != nil {
				return nil, err
			}
		}
		if depth, err = r.after(depth); err != nil {
			return nil, err
		}
		if depth == 0 {
			return r.data[start:r.pos], nil
		}
	}
}

// after skips what stands between a value and the next one: closing brackets,
// a comma, the next key. It returns the depth of the next value, 0 at the end.
func (r *reader) after(depth int) (int, error) {
	for depth > 0 {
		r.space()
		open := r.stack[depth-1]
		if r.take(open + 2) {
			depth--
			continue
		}
		if !r.take(',') {
			return 0, errNotJSON
		}
		if open == '{' {
			r.space()
			return depth, r.key()
		}
		return depth, nil
	}
	return 0, nil
}

// key skips a key and its colon.
func (r *reader) key() error {
	if _, err := r.text(); err != nil {
		return err
	}
	r.space()
	if !r.take(':') {
		return errNotJSON
	}
	return nil
}

func (r *reader) scalar(c byte) error {
	switch c {
	case '"':
		_, err := r.text()
		return err
	case 't':
		return r.word("true")
	case 'f':
		return r.word("false")
	case 'n':
		return r.word("null")
	}
	return r.number()
}

func (r *reader) word(w string) error {
	if !bytes.HasPrefix(r.data[r.pos:], []byte(w)) {
		return errNotJSON
	}
	r.pos += len(w)
	return nil
}

func (r *reader) number() error {
	r.take('-')
	if !r.take('0') && !r.digits() {
		return errNotJSON
	}
	if r.take('.') && !r.digits() {
		return errNotJSON
	}
	if r.take('e') || r.take('E') {
		if !r.take('+') {
			r.take('-')
		}
		if !r.digits() {
			return errNotJSON
		}
	}
	return nil
}

// digits skips digits and tells whether there were any.
func (r *reader) digits() bool {
	start := r.pos
	for r.pos < len(r.data) && r.data[r.pos] >= '0' && r.data[r.pos] <= '9' {
		r.pos++
	}
	return r.pos > start
}

// members calls f for each member of the object that r stands before, the key
// with its escapes undone. It checks that nothing follows the object. The
// slices belong to the text.
func (r *reader) members(f func(key, value []byte) error) error {
	r.space()
	if !r.take('{') {
		return errNotJSON
	}
	r.space()
	for first := true; !r.take('}'); first = false {
		if !first {
			if !r.take(',') {
				return errNotJSON
			}
			r.space()
		}
		raw, err := r.text()
		if err != nil {
			return err
		}
		r.space()
		if !r.take(':') {
			return errNotJSON
		}
		r.space()
		value, err := r.value()
		if err != nil {
			return err
		}
		if err := f(unquote(raw), value); err != nil {
			return err
		}
		r.space()
	}
	r.space()
	if r.pos != len(r.data) {
		return errNotJSON
	}
	return nil
}

// unquote undoes a valid JSON string; only one with escapes is copied.
func unquote(raw []byte) []byte {
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw[1 : len(raw)-1]
	}
	var s string
	if json.Unmarshal(raw, &s) != nil { // a checked string always has a value
		return nil
	}
	return []byte(s)
}
