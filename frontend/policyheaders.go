package frontend

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
)

// credentials are request headers that no policy may see, whatever the operator
// lists.
var credentials = []string{
	"authorization", "proxy-authorization", "cookie", "x-api-key", "api-key", "x-auth-token", "x-amz-security-token", "x-goog-api-key",
}

// checkPolicyHeaders refuses a list of headers that policies must not see, or
// that cannot be read.
func checkPolicyHeaders(names []string) error {
	if len(names) > core.MaxHeaders {
		return &fleet.FieldError{Field: "policy_headers", Value: fmt.Sprint(len(names), " names"), Allowed: fmt.Sprintf("at most %d names", core.MaxHeaders)}
	}
	seen := map[string]bool{}
	for _, name := range names {
		allowed := ""
		switch {
		case name == "" || len(name) > core.MaxHeaderBytes || strings.IndexFunc(name, notInName) >= 0:
			allowed = "header names in lower case: letters, digits, - and _"
		case seen[name]:
			allowed = "each name once"
		case isCredential(name):
			allowed = "no header that carries credentials"
		case strings.HasPrefix(name, strings.ToLower(prefixOurs)):
			allowed = "no x-routerd-… header: those have inputs of their own"
		}
		if allowed != "" {
			return &fleet.FieldError{Field: "policy_headers", Value: name, Allowed: allowed}
		}
		seen[name] = true
	}
	return nil
}

func isCredential(name string) bool {
	for _, c := range credentials {
		if name == c {
			return true
		}
	}
	return false
}

// notInName tells whether a character is none of a listed header's name.
func notInName(c rune) bool {
	return (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_'
}

// policyHeaders are the listed headers that the request has; nil when it has
// none. The values of a header that occurs several times are joined by a comma
// and a blank. One that is too long, and one that is empty, counts as not sent.
func policyHeaders(h *fasthttp.RequestHeader, names []string) map[string]string {
	var out map[string]string
	for _, name := range names {
		lines := h.PeekAll(name)
		if len(lines) == 0 {
			continue
		}
		value := bytes.TrimSpace(lines[0])
		if len(lines) > 1 {
			trimmed := make([][]byte, len(lines))
			for i, l := range lines {
				trimmed[i] = bytes.TrimSpace(l)
			}
			value = bytes.Join(trimmed, []byte(", "))
		}
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
