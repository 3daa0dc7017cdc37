package policy

import (
	"bytes"
	"encoding/json"
	"strconv"

	"github.com/routerd/routerd/fleet"
)

// numberIn reads a JSON number from low to high; a string, a literal and what
// is no finite number are refused with the field's name.
func numberIn(field string, raw json.RawMessage, low, high float64, allowed string) (float64, error) {
	text := bytes.TrimSpace(raw)
	refused := &fleet.FieldError{Field: field, Value: string(text), Allowed: allowed}
	if len(text) == 0 || !(text[0] == '-' || text[0] >= '0' && text[0] <= '9') {
		return 0, refused
	}
	v, err := strconv.ParseFloat(string(text), 64)
	if err != nil || v < low || v > high {
		return 0, refused
	}
	return v, nil
}
