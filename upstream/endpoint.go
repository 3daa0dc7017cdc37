package upstream

import (
	"fmt"
	"strings"

	"github.com/routerd/routerd/fleet"
)

// Endpoint is a worker's parsed base URL. Values are comparable: two spellings
// of one address give equal endpoints. Parse once and keep it.
type Endpoint struct {
	addr   string // host:port to dial
	host   string // the Host header
	prefix string // "" or "/path" without a slash at its end
}

// ParseEndpoint parses the base URL of a worker by the rules of
// fleet.NormaliseURL, whose error says what is allowed and shows no password.
func ParseEndpoint(raw string) (Endpoint, error) {
	canonical, err := fleet.NormaliseURL(raw)
	if err != nil {
		return Endpoint{}, fmt.Errorf("worker: %w", err)
	}
	authority, prefix, below := strings.Cut(strings.TrimPrefix(canonical, "http://"), "/")
	if below {
		prefix = "/" + prefix
	}
	addr := strings.Replace(authority, "%25", "%", 1)
	e := Endpoint{addr: addr, host: addr, prefix: prefix}
	if zone := strings.IndexByte(addr, '%'); zone >= 0 { // a zone means something only on this machine
		e.host = addr[:zone] + addr[strings.IndexByte(addr, ']'):]
	}
	return e, nil
}

// Addr returns host:port as it is dialled.
func (e Endpoint) Addr() string { return e.addr }

// String returns the canonical base URL, without a slash at its end.
func (e Endpoint) String() string {
	if e.addr == "" {
		return ""
	}
	return "http://" + strings.ReplaceAll(e.addr, "%", "%25") + e.prefix
}
