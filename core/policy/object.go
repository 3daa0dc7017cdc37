package policy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"github.com/routerd/routerd/fleet"
)

// objectOf reads a JSON object into its members. A repeated key is refused by
// name, since readers differ in which of two values they believe.
func objectOf(field string, b []byte) (map[string]json.RawMessage, error) {
	if err := checkKeys(field, b); err != nil {
		return nil, err
	}
	var m map[string]json.RawMessage
	if err := json.Unmarshal(b, &m); err != nil || m == nil {
		return nil, &fleet.FieldError{Field: field, Value: string(b), Allowed: "a JSON object"}
	}
	return m, nil
}

// checkKeys walks one JSON value and refuses keys that repeat within their
// object, at any depth.
func checkKeys(field string, b []byte) error {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	if err := walkValue(dec, field); err != nil {
		return err
	}
	if _, err := dec.Token(); err != io.EOF {
		return &fleet.FieldError{Field: field, Value: string(b), Allowed: "one JSON value"}
	}
	return nil
}

func walkValue(dec *json.Decoder, path string) error {
	tok, err := dec.Token()
	if err != nil {
		return fmt.Errorf("%s: not valid JSON: %w", path, err)
	}
	switch tok {
	case json.Delim('{'):
		seen := map[string]bool{}
		for dec.More() {
			key, err := dec.Token()
			if err != nil {
				return fmt.Errorf("%s: not valid JSON: %w", path, err)
			}
			name, _ := key.(string)
			if seen[name] {
				return &fleet.FieldError{Field: path + "." + name, Value: name, Allowed: "each key once"}
			}
			seen[name] = true
			if err := walkValue(dec, path+"."+name); err != nil {
				return err
			}
		}
		_, err = dec.Token()
	case json.Delim('['):
		for i := 0; dec.More(); i++ {
			if err := walkValue(dec, fmt.Sprintf("%s[%d]", path, i)); err != nil {
				return err
			}
		}
		_, err = dec.Token()
	}
	if err != nil {
		return fmt.Errorf("%s: not valid JSON: %w", path, err)
	}
	return nil
}
