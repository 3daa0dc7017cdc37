package jsonscan

import (
	"bytes"
	"encoding/json"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// Text tells whether the texts of a JSON document are all Unicode: its bytes are UTF-8
// and each escaped surrogate has its other half. Others have no value of their own:
// decoders put U+FFFD for them, which makes different texts equal. It takes a few
// passes over what holds no escapes.
func Text(document []byte) bool {
	if !utf8.Valid(document) {
		return false
	}
	for {
		i := bytes.IndexByte(document, '\\')
		if i < 0 || i+1 >= len(document) {
			return true
		}
		document = document[i:]
		r, n := escaped(document)
		if utf16.IsSurrogate(r) {
			low, m := escaped(document[n:])
			if utf16.DecodeRune(r, low) == utf8.RuneError {
				return false
			}
			n += m
		}
		document = document[n:]
	}
}

// Unquote undoes a valid JSON string; only one with escapes is copied. In such a one
// U+FFFD stands for what is not Unicode.
func Unquote(raw []byte) []byte {
	text := raw[1 : len(raw)-1]
	i := bytes.IndexByte(text, '\\')
	switch {
	case i < 0:
		return text
	case !utf8.Valid(text):
		var s string
		if json.Unmarshal(raw, &s) != nil { // a checked string always has a value
			return nil
		}
		return []byte(s)
	}
	out := make([]byte, 0, len(text))
	for ; i >= 0; i = bytes.IndexByte(text, '\\') {
		out, text = unescape(append(out, text[:i]...), text[i:])
	}
	return append(out, text...)
}

// unescape appends what the escape at the beginning of text stands for, and returns what
// is behind it.
func unescape(out, text []byte) (to, rest []byte) {
	r, n := escaped(text)
	switch {
	case n == 6:
		if utf16.IsSurrogate(r) {
			low, m := escaped(text[n:])
			if r = utf16.DecodeRune(r, low); r != utf8.RuneError {
				n += m
			}
		}
		return utf8.AppendRune(out, r), text[n:]
	case n < 2:
		return out, nil
	}
	c := text[1]
	if i := bytes.IndexByte([]byte("bfnrt"), c); i >= 0 {
		c = "\b\f\n\r\t"[i]
	}
	return append(out, c), text[n:]
}

// escaped is the UTF-16 unit of a \u escape at the beginning and the escape's length; 0
// for other escapes, and for none a length of 0.
func escaped(b []byte) (unit rune, n int) {
	if len(b) < 2 || b[0] != '\\' {
		return 0, 0
	}
	if b[1] != 'u' || len(b) < 6 {
		return 0, 2
	}
	v, err := strconv.ParseUint(string(b[2:6]), 16, 16)
	if err != nil {
		return 0, 2
	}
	return rune(v), 6
}
