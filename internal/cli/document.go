package cli

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml"
)

// document reads a file as JSON. What begins with a brace is sent as it is, so
// that the router judges it; all else is YAML, where a repeated key is refused.
func (c *call) document(name string) ([]byte, error) {
	text, err := c.read(name)
	if err != nil {
		return nil, err
	}
	if bytes.HasPrefix(bytes.TrimLeft(text, " \t\r\n"), []byte("{")) {
		return text, nil
	}
	out, err := yaml.YAMLToJSON(text)
	if err != nil {
		// The error's own text draws the place over several lines.
		return nil, fmt.Errorf("read %s as YAML: %s", name, strings.TrimSpace(yaml.FormatError(err, false, false)))
	}
	return out, nil
}
