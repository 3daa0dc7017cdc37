package jsonscan

import (
	"bytes"
	"encoding/binary"
	"errors"
)

// MaxDepth bounds the nesting of a body.
const MaxDepth = 512

// What is wrong with a JSON text.
var (
	// ErrNotJSON is for a text that is no JSON.
	ErrNotJSON = errors.New("not valid JSON")
	// ErrTooDeep is for one that nests deeper than MaxDepth.
	ErrTooDeep = errors.New("nested more than 512 levels deep")
)

// Reader walks over a JSON text and checks it as it goes. It decodes nothing
// and allocates nothing; its depth is bounded.
type Reader struct {
	Data  []byte
	Pos   int
	stack [MaxDepth]byte // opening brackets that are not closed yet
}

// Space skips white space.
func (r *Reader) Space() {
	for r.Pos < len(r.Data) {
		switch r.Data[r.Pos] {
		case ' ', '\n', '\r', '\t':
			r.Pos++
		default:
			return
		}
	}
}

// Peek returns the next byte, 0 at the end.
func (r *Reader) Peek() byte {
	if r.Pos < len(r.Data) {
		return r.Data[r.Pos]
	}
	return 0
}

// Take skips c, if it is next.
func (r *Reader) Take(c byte) bool {
	if r.Peek() != c || r.Pos == len(r.Data) {
		return false
	}
	r.Pos++
	return true
}

// Text skips a string and returns it with its quotes.
func (r *Reader) Text() (raw []byte, err error) {
	start := r.Pos
	if !r.Take('"') {
		return nil, ErrNotJSON
	}
	for i := r.Pos + plain(r.Data[r.Pos:]); i < len(r.Data); i++ {
		switch c := r.Data[i]; {
		case c == '"':
			r.Pos = i + 1
			return r.Data[start:r.Pos], nil
		case c < 0x20:
			return nil, ErrNotJSON
		case c == '\\':
			n := escapeLength(r.Data[i:])
			if n == 0 {
				return nil, ErrNotJSON
			}
			i += n - 1
			i += plain(r.Data[i+1:])
		}
	}
	return nil, ErrNotJSON
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

// Value skips any value and returns it.
func (r *Reader) Value() (raw []byte, err error) {
	start, depth := r.Pos, 0
	for {
		r.Space()
		switch c := r.Peek(); c {
		case '{', '[':
			if depth == MaxDepth {
				return nil, ErrTooDeep
			}
			r.stack[depth] = c
			depth++
			r.Pos++
			r.Space()
			if r.Take(c + 2) { // the closing bracket of either
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
			return r.Data[start:r.Pos], nil
		}
	}
}

// after skips what stands between a value and the next one: closing brackets,
// a comma, the next key. It returns the depth of the next value, 0 at the end.
func (r *Reader) after(depth int) (int, error) {
	for depth > 0 {
		r.Space()
		open := r.stack[depth-1]
		if r.Take(open + 2) {
			depth--
			continue
		}
		if !r.Take(',') {
			return 0, ErrNotJSON
		}
		if open == '{' {
			r.Space()
			return depth, r.key()
		}
		return depth, nil
	}
	return 0, nil
}

// key skips a key and its colon.
func (r *Reader) key() error {
	if _, err := r.Text(); err != nil {
		return err
	}
	r.Space()
	if !r.Take(':') {
		return ErrNotJSON
	}
	return nil
}

func (r *Reader) scalar(c byte) error {
	switch c {
	case '"':
		_, err := r.Text()
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

func (r *Reader) word(w string) error {
	if !bytes.HasPrefix(r.Data[r.Pos:], []byte(w)) {
		return ErrNotJSON
	}
	r.Pos += len(w)
	return nil
}

func (r *Reader) number() error {
	r.Take('-')
	if !r.Take('0') && !r.Digits() {
		return ErrNotJSON
	}
	if r.Take('.') && !r.Digits() {
		return ErrNotJSON
	}
	if r.Take('e') || r.Take('E') {
		if !r.Take('+') {
			r.Take('-')
		}
		if !r.Digits() {
			return ErrNotJSON
		}
	}
	return nil
}

// Digits skips digits and tells whether there were any.
func (r *Reader) Digits() bool {
	start := r.Pos
	for r.Pos < len(r.Data) && r.Data[r.Pos] >= '0' && r.Data[r.Pos] <= '9' {
		r.Pos++
	}
	return r.Pos > start
}

// Members calls f for each member of the object that r stands before, the key
// with its escapes undone. It checks that nothing follows the object. The
// slices belong to the text.
func (r *Reader) Members(f func(key, value []byte) error) error {
	err := r.Object(func(key []byte) error {
		value, err := r.Value()
		if err != nil {
			return err
		}
		return f(key, value)
	})
	if err != nil {
		return err
	}
	return r.End()
}

// Object calls f for each member of the object that r stands before, with the key,
// its escapes undone; f takes the value, which r then stands before. The key belongs
// to the text.
func (r *Reader) Object(f func(key []byte) error) error {
	r.Space()
	if !r.Take('{') {
		return ErrNotJSON
	}
	r.Space()
	for first := true; !r.Take('}'); first = false {
		if !first {
			if !r.Take(',') {
				return ErrNotJSON
			}
			r.Space()
		}
		raw, err := r.Text()
		if err != nil {
			return err
		}
		r.Space()
		if !r.Take(':') {
			return ErrNotJSON
		}
		r.Space()
		if err := f(Unquote(raw)); err != nil {
			return err
		}
		r.Space()
	}
	return nil
}

// Array calls f for each element of the array that r stands before, with its index;
// f takes the element, which r then stands before.
func (r *Reader) Array(f func(i int) error) error {
	r.Space()
	if !r.Take('[') {
		return ErrNotJSON
	}
	r.Space()
	for i := 0; !r.Take(']'); i++ {
		if i > 0 {
			if !r.Take(',') {
				return ErrNotJSON
			}
			r.Space()
		}
		if err := f(i); err != nil {
			return err
		}
		r.Space()
	}
	return nil
}

// End checks that only white space is left.
func (r *Reader) End() error {
	r.Space()
	if r.Pos != len(r.Data) {
		return ErrNotJSON
	}
	return nil
}
