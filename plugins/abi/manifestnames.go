package abi

import (
	"strings"
)

// identAllowed is what validIdent takes.
const identAllowed = "1 to 63 characters of a-z, 0-9 and _, the first a letter"

// validName: ^[a-z0-9][a-z0-9.-]{1,62}$.
func validName(s string) bool {
	if len(s) < 2 || len(s) > 63 || !lowerOrDigit(s[0]) {
		return false
	}
	return every(s, func(c byte) bool { return lowerOrDigit(c) || c == '.' || c == '-' })
}

func validIdent(s string) bool {
	if len(s) < 1 || len(s) > 63 || s[0] < 'a' || s[0] > 'z' {
		return false
	}
	return every(s, func(c byte) bool { return lowerOrDigit(c) || c == '_' })
}

// validColumnName is the shape of every name in the table of columns, those of
// later versions included.
func validColumnName(s string) bool {
	area, rest, ok := strings.Cut(s, ".")
	return ok && validIdent(area) && validIdent(rest)
}

func validField(s string) bool {
	if _, ok := FieldByName(s); ok {
		return true
	}
	if h, ok := strings.CutPrefix(s, HeaderPrefix); ok {
		return IsHeaderName(h)
	}
	pointer, ok := ConfigPointer(s)
	return ok && validPointer(pointer)
}

// IsHeaderName tells whether s is what RFC 9110 allows as a field name, in lower
// case.
func IsHeaderName(s string) bool { return s != "" && every(s, headerByte) }

// headerByte takes what RFC 9110 allows in a field name, in lower case.
func headerByte(c byte) bool {
	return lowerOrDigit(c) || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}

// validPointer checks RFC 6901's escapes: ~ only as ~0 or ~1.
func validPointer(s string) bool {
	for i := range len(s) {
		if s[i] == '~' && (i+1 == len(s) || s[i+1] != '0' && s[i+1] != '1') {
			return false
		}
	}
	return true
}

// validSemver checks Semantic Versioning 2.0.0.
func validSemver(s string) bool {
	s, build, hasBuild := strings.Cut(s, "+")
	if hasBuild && !semverParts(build, false) {
		return false
	}
	core, pre, hasPre := strings.Cut(s, "-")
	if hasPre && !semverParts(pre, true) {
		return false
	}
	nums := strings.Split(core, ".")
	if len(nums) != 3 {
		return false
	}
	for _, n := range nums {
		if !every(n, digit) || n == "" || leadingZero(n) {
			return false
		}
	}
	return true
}

func semverParts(s string, numbersPlain bool) bool {
	for part := range strings.SplitSeq(s, ".") {
		ok := part != "" && every(part, func(c byte) bool {
			return lowerOrDigit(c) || c >= 'A' && c <= 'Z' || c == '-'
		})
		if !ok || numbersPlain && every(part, digit) && leadingZero(part) {
			return false
		}
	}
	return true
}

func leadingZero(n string) bool { return len(n) > 1 && n[0] == '0' }

func digit(c byte) bool        { return c >= '0' && c <= '9' }
func lowerOrDigit(c byte) bool { return digit(c) || c >= 'a' && c <= 'z' }

func every(s string, ok func(byte) bool) bool {
	for i := range len(s) {
		if !ok(s[i]) {
			return false
		}
	}
	return true
}
