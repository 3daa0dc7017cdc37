package selection

import (
	"encoding/json"
	"errors"
	"fmt"
)

var errUnsupported = errors.New("not supported")

// reply answers with JSON.
func (x *exchange) reply(status int, body any) error {
	b, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encode answer: %w", err)
	}
	x.write(status, b)
	return nil
}

// write answers with a JSON text, which it takes over.
func (x *exchange) write(status int, body []byte) {
	x.rc.SetStatusCode(status)
	x.rc.SetContentType("application/json")
	x.rc.Response.SetBodyRaw(body)
}
