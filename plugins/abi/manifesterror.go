package abi

import (
	"strconv"
	"strings"
)

// ManifestError refuses one field of a manifest: which one (as a path:
// columns[2].name), what was given and what is allowed.
type ManifestError struct {
	Field   string
	Value   string
	Allowed string
}

// maxShown bounds how many bytes of a field and of a refused value an error
// repeats: both are foreign.
const maxShown = 80

// Error names the field, the value and what is allowed, in one printable line.
func (e *ManifestError) Error() string {
	return "manifest field " + shown(e.Field) + ": " + strconv.QuoteToGraphic(cut(e.Value)) + " is not allowed; allowed: " + e.Allowed
}

func refuse(field, value, allowed string) *ManifestError {
	if field == "" {
		field = "manifest"
	}
	return &ManifestError{Field: field, Value: value, Allowed: allowed}
}

// shown is a field path with what does not print escaped.
func shown(s string) string {
	q := strconv.QuoteToGraphic(cut(s))
	return strings.ReplaceAll(q[1:len(q)-1], `\"`, `"`)
}

func cut(s string) string {
	if len(s) <= maxShown {
		return s
	}
	return strings.ToValidUTF8(s[:maxShown], "") + "…"
}
