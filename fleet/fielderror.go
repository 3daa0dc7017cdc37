package fleet

import "strconv"

// maxValue bounds how many bytes of a refused value an error repeats.
const maxValue = 80

// FieldError refuses one field of an input: which one, what was given and what
// is allowed. It may be shown to the caller; it never holds a secret, since no
// secret travels in a field that is checked this way.
type FieldError struct {
	Field   string
	Value   string
	Allowed string
}

// Error names field, value (cut to 80 bytes) and what is allowed.
func (e *FieldError) Error() string {
	v := e.Value
	if len(v) > maxValue {
		v = v[:maxValue] + "…"
	}
	return e.Field + ": " + strconv.Quote(v) + " is not allowed; allowed: " + e.Allowed
}
