package frontend

import (
	"bytes"
	"fmt"

	"github.com/valyala/fasthttp"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/plugins/abi"
)

// checkPolicyHeaders refuses a list of headers that policies must not see, or
// that cannot be read.
func checkPolicyHeaders(names []string) error {
	for i, name := range names {
		if allowed := abi.HeaderRefused(names, i); allowed != "" {
			return &fleet.FieldError{Field: fmt.Sprintf("policy_headers[%d]", i), Value: name, Allowed: allowed}
		}
	}
	return nil
}

// policyHeaders are the listed headers that the request has; nil when it has
// none. One that is too long, and one that is empty, counts as not sent.
func policyHeaders(h *fasthttp.RequestHeader, names []string) map[string]string {
	var out map[string]string
	for _, name := range names {
		lines := h.PeekAll(name)
		if len(lines) == 0 {
			continue
		}
		value := joined(lines)
		if len(value) == 0 || len(value) > core.MaxHeaderBytes {
			continue
		}
		if out == nil {
			out = make(map[string]string, len(names))
		}
		out[name] = string(value)
	}
	return out
}

// joined are a header's values, those of a header that occurs several times
// joined by a comma and a blank.
func joined(lines [][]byte) []byte {
	if len(lines) == 1 {
		return bytes.TrimSpace(lines[0])
	}
	trimmed := make([][]byte, len(lines))
	for i, l := range lines {
		trimmed[i] = bytes.TrimSpace(l)
	}
	return bytes.Join(trimmed, []byte(", "))
}
