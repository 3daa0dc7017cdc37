package upstream

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/routerd/routerd/fleet"
)

// Endpoint is a worker's parsed base URL. Values are comparable: two spellings
// of one address give equal endpoints. Parse once and keep it.
type Endpoint struct {
	addr   string // host:port to dial, or unixPrefix and a path
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

// unixPrefix begins the address of a Unix socket; no host and port begin so.
const unixPrefix = "unix:/"

// UnixEndpoint is the endpoint of a server at a Unix socket, told by its absolute path.
func UnixEndpoint(path string) (Endpoint, error) {
	if !filepath.IsAbs(path) {
		return Endpoint{}, fmt.Errorf("unix socket: %w", &fleet.FieldError{Field: "path", Value: path, Allowed: "an absolute path"})
	}
	return Endpoint{addr: "unix:" + path, host: "localhost"}, nil
}

// network is what is dialled.
func network(addr string) (network, address string) {
	if strings.HasPrefix(addr, unixPrefix) {
		return "unix", strings.TrimPrefix(addr, "unix:")
	}
	return "tcp", addr
}

// Addr returns host:port as it is dialled, or unix:PATH.
func (e Endpoint) Addr() string { return e.addr }

// String returns the canonical base URL, without a slash at its end, or unix:PATH.
func (e Endpoint) String() string {
	if e.addr == "" || strings.HasPrefix(e.addr, unixPrefix) {
		return e.addr
	}
	return "http://" + strings.ReplaceAll(e.addr, "%", "%25") + e.prefix
}
