package httpapi

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"mime"
	"net/url"
	"slices"
	"strings"
)

// Split cuts a raw request URI, of which nothing is decoded, into path and
// query. Scheme and host of the absolute form are left out.
func Split(uri string) (path, query string) {
	path, query, _ = strings.Cut(uri, "?")
	if strings.HasPrefix(path, "/") {
		return path, query
	}
	if _, rest, ok := strings.Cut(path, "://"); ok {
		if i := strings.IndexByte(rest, '/'); i >= 0 {
			return rest[i:], query
		}
	}
	return path, query
}

// Match compares a raw path with a pattern, both beginning with a slash, and
// returns the decoded segment that stands for the pattern's one {…}, if it has
// one. Nothing is cleaned: dot segments and double slashes match nothing.
func Match(pattern, path string) (name string, ok bool) {
	for {
		var p, s string
		var more, rest bool
		p, pattern, more = strings.Cut(pattern, "/")
		s, path, rest = strings.Cut(path, "/")
		if strings.HasPrefix(p, "{") {
			decoded, err := url.PathUnescape(s)
			if err != nil {
				return "", false
			}
			name = decoded
		} else if p != s {
			return "", false
		}
		if more != rest {
			return "", false
		}
		if !more {
			return name, true
		}
	}
}

// ParseQuery takes only the known parameters, each once. It is nil where there
// are none.
func ParseQuery(raw string, known []string) (url.Values, error) {
	if raw == "" {
		return nil, nil
	}
	values, err := url.ParseQuery(raw)
	if err != nil {
		return nil, Invalid("query", "it is not well-formed", "name=value pairs, joined by &")
	}
	allowed := "no parameters"
	if len(known) > 0 {
		allowed = "the parameters " + strings.Join(known, ", ")
	}
	for name, v := range values {
		if !slices.Contains(known, name) {
			return nil, Invalid("query parameter "+Clip(name), "is not known", allowed)
		}
		if len(v) > 1 {
			return nil, Invalid("query parameter "+name, "is given twice", "once")
		}
	}
	return values, nil
}

// minToken is what a bearer token has at least, in bytes.
const minToken = 16

// CheckToken refuses a bearer token that cannot be used; the error names the field
// and never holds the token.
func CheckToken(field, token string) error {
	bad := strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' })
	if bad || len(token) < minToken {
		return fmt.Errorf("%s is not usable; allowed: at least %d visible ASCII characters", field, minToken)
	}
	return nil
}

// BearerIs compares the one Authorization header with a token, in constant time:
// of digests, so that its length does not show either. No header and several are
// refused.
func BearerIs(headers [][]byte, token string) bool {
	if len(headers) != 1 {
		return false
	}
	scheme, given, _ := strings.Cut(string(headers[0]), " ")
	have, want := sha256.Sum256([]byte(strings.TrimSpace(given))), sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare(have[:], want[:]) == 1 && strings.EqualFold(scheme, "bearer")
}

// HasHeader looks a header up in a raw head, by its name in any case.
func HasHeader(head []byte, name string) bool {
	for line := range bytes.SplitSeq(head, []byte("\n")) {
		got, _, ok := bytes.Cut(line, []byte(":"))
		if ok && bytes.EqualFold(bytes.TrimSpace(got), []byte(name)) {
			return true
		}
	}
	return false
}

// IsJSON tells whether a content type stands for JSON: application/json, or
// another whose name ends in +json.
func IsJSON(contentType string) bool {
	if contentType == "application/json" {
		return true
	}
	kind, _, err := mime.ParseMediaType(contentType)
	return err == nil && (kind == "application/json" || strings.HasPrefix(kind, "application/") && strings.HasSuffix(kind, "+json"))
}
