package upstream

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// Endpoint is a worker's parsed base URL. Values are comparable: two spellings
// of one address give equal endpoints. Parse once and keep it.
type Endpoint struct {
	addr   string // host:port to dial
	host   string // the Host header
	prefix string // "" or "/path" without a slash at its end
}

// ParseEndpoint parses a base URL: http://host[:port][/prefix], host being a
// name, an IPv4 address or an IPv6 address in brackets. Scheme and host are
// case-insensitive, the port is 80 unless given, slashes at the end are
// dropped. Refused, with an error that says why and never shows a password:
// other schemes, user information, query, fragment, a prefix with empty or dot
// segments.
func ParseEndpoint(raw string) (Endpoint, error) {
	refuse := func(format string, args ...any) (Endpoint, error) {
		return Endpoint{}, fmt.Errorf("worker url %q: %s", shown(raw), fmt.Sprintf(format, args...))
	}
	scheme, rest, ok := strings.Cut(raw, "://")
	if !ok || !strings.EqualFold(scheme, "http") {
		return refuse("must begin with http://")
	}
	authority, _, _ := strings.Cut(rest, "/")
	switch {
	case strings.Contains(authority, "@"):
		return refuse("must not hold a user name or password")
	case strings.ContainsAny(rest, "?#"):
		return refuse("must not have a query or fragment")
	case strings.Count(authority, ":") > 1 && !strings.HasPrefix(authority, "["):
		return refuse("an IPv6 address needs brackets, as in http://[::1]:8000")
	}
	u, err := url.Parse("http://" + rest)
	if err != nil {
		return refuse("is not a valid URL")
	}
	host, problem := parseHost(u.Hostname(), strings.HasPrefix(authority, "["))
	if problem != "" {
		return refuse("%s", problem)
	}
	port := "80"
	if p := u.Port(); p != "" {
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil || n == 0 {
			return refuse("port must be 1 to 65535")
		}
		port = strconv.FormatUint(n, 10)
	} else if strings.HasSuffix(authority, ":") {
		return refuse("port is empty")
	}
	prefix := strings.TrimRight(u.EscapedPath(), "/")
	for seg := range strings.SplitSeq(strings.TrimPrefix(prefix, "/"), "/") {
		if prefix != "" && (seg == "" || seg == "." || seg == "..") {
			return refuse("path must not have empty or dot segments")
		}
	}
	e := Endpoint{addr: net.JoinHostPort(host, port), prefix: prefix}
	e.host = e.addr
	if zoned, _, ok := strings.Cut(host, "%"); ok {
		e.host = net.JoinHostPort(zoned, port) // a zone means something only on this machine
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

// parseHost returns the canonical host or what is wrong with it.
func parseHost(host string, bracketed bool) (canonical, problem string) {
	if bracketed {
		ip, err := netip.ParseAddr(host)
		if err != nil || !ip.Is6() {
			return "", "what stands in brackets must be an IPv6 address"
		}
		return ip.String(), ""
	}
	if host == "" {
		return "", "host is empty"
	}
	if len(host) > 253 {
		return "", "host must be at most 253 bytes"
	}
	for _, c := range []byte(host) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '.', c == '_':
		default:
			return "", "host must be of letters, digits, '-', '_' and '.'"
		}
	}
	return strings.ToLower(host), ""
}

// shown cuts a URL to a length fit for an error and removes user information.
func shown(raw string) string {
	if i := strings.LastIndexByte(raw, '@'); i >= 0 {
		scheme, _, ok := strings.Cut(raw[:i], "://")
		raw = "…" + raw[i:]
		if ok {
			raw = scheme + "://" + raw
		}
	}
	if len(raw) > 96 {
		raw = strings.ToValidUTF8(raw[:96], "") + "…"
	}
	return raw
}
