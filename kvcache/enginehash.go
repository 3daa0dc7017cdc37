package kvcache

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

// MaxEngineHashBytes is the longest byte string that counts as an engine's hash.
const MaxEngineHashBytes = 64

// EngineHash is the name an engine gives to a block: a 64-bit pattern or a byte string. It is comparable, and two
// numbers are equal when their 64 bits are, however the engine signed them. The zero value is the number 0.
type EngineHash struct {
	num uint64
	raw string
}

// NumberHash returns the hash that the engine sent as an integer, by its 64-bit pattern.
func NumberHash(bits uint64) EngineHash { return EngineHash{num: bits} }

// BytesHash returns the hash that the engine sent as a byte string. It reports false unless raw has 1 to
// MaxEngineHashBytes bytes. The bytes are copied.
func BytesHash(raw []byte) (EngineHash, bool) {
	if len(raw) == 0 || len(raw) > MaxEngineHashBytes {
		return EngineHash{}, false
	}
	return EngineHash{raw: string(raw)}, true
}

// Number returns the 64-bit pattern and true, or false for a byte string.
func (h EngineHash) Number() (uint64, bool) { return h.num, h.raw == "" }

// Bytes returns the byte string, "" for a number.
func (h EngineHash) Bytes() string { return h.raw }

// String returns the unsigned decimal number, or "x:" and the bytes in hexadecimal.
func (h EngineHash) String() string {
	if h.raw != "" {
		return "x:" + hex.EncodeToString([]byte(h.raw))
	}
	return strconv.FormatUint(h.num, 10)
}

// Compare orders hashes for listings: numbers by value before byte strings by content.
func (h EngineHash) Compare(o EngineHash) int {
	if h.raw == "" && o.raw == "" {
		return cmp.Compare(h.num, o.num)
	}
	return strings.Compare(h.raw, o.raw) // one that has bytes has no number
}

// ParseEngineHash reads what String writes.
func ParseEngineHash(text string) (EngineHash, error) {
	if digits, ok := strings.CutPrefix(text, "x:"); ok {
		raw, err := hex.DecodeString(digits)
		if h, ok := BytesHash(raw); err == nil && ok {
			return h, nil
		}
	} else if n, err := strconv.ParseUint(text, 10, 64); err == nil {
		return NumberHash(n), nil
	}
	return EngineHash{}, fmt.Errorf("engine hash %.80q is not allowed; allowed: a decimal number below 2^64, or x: and 1 to %d bytes in hexadecimal", text, MaxEngineHashBytes)
}
