package fleet

import (
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// maxHostBytes is the longest host name that DNS knows.
const maxHostBytes = 253

const urlForm = "http://HOST:PORT, an IPv6 host in brackets"

// NormaliseURL checks the base URL of a worker, http://HOST[:PORT][/PATH], and
// gives it one spelling, to which a request path can be appended: lower-case
// scheme and host, the port always and without leading zeros, no trailing
// slash. Two URLs of one endpoint become equal text. User names, queries,
// fragments and empty or dot segments of the path are refused.
func NormaliseURL(raw string) (string, error) {
	refuse := func(allowed string) (string, error) {
		return "", &FieldError{Field: "url", Value: withoutUser(raw), Allowed: allowed}
	}
	u, err := url.Parse(raw)
	switch {
	case err != nil || u.Host == "" || u.Opaque != "":
		return refuse(urlForm)
	case u.Scheme != "http":
		return refuse("scheme http")
	case u.User != nil || strings.ContainsAny(raw, "?#"):
		return refuse("no user name, query or fragment")
	}
	host, allowed := normaliseHost(u.Hostname(), strings.HasPrefix(u.Host, "["))
	if allowed != "" {
		return refuse(allowed)
	}
	port := uint64(80)
	if p := u.Port(); p != "" || strings.HasSuffix(u.Host, ":") {
		if port, err = strconv.ParseUint(p, 10, 16); err != nil || port == 0 {
			return refuse("a port from 1 to 65535")
		}
	}
	path := strings.TrimRight(u.EscapedPath(), "/")
	if !plainPath(path) {
		return refuse("a path without empty or dot segments")
	}
	if strings.Contains(host, ":") {
		host = "[" + strings.Replace(host, "%", "%25", 1) + "]"
	}
	return "http://" + host + ":" + strconv.FormatUint(port, 10) + path, nil
}

// plainPath tells whether no segment of an escaped path is empty or stands for
// this or the parent folder, however it is written.
func plainPath(path string) bool {
	if path == "" {
		return true
	}
	for seg := range strings.SplitSeq(path[1:], "/") {
		if text, err := url.PathUnescape(seg); err != nil || text == "" || text == "." || text == ".." {
			return false
		}
	}
	return true
}

// normaliseHost returns the one spelling of a host, or what is allowed.
func normaliseHost(host string, bracketed bool) (canonical, allowed string) {
	if bracketed {
		ip, err := netip.ParseAddr(host)
		if err != nil || !ip.Is6() || !hostText(ip.Zone()) {
			return "", "an IPv6 address in the brackets, as in http://[::1]:8001"
		}
		return ip.String(), ""
	}
	if host == "" || len(host) > maxHostBytes {
		return "", "a host of 1 to 253 bytes"
	}
	if !hostText(host) {
		return "", "a host of letters, digits, '-', '_' and '.'; an IPv6 host in brackets, as in http://[::1]:8001"
	}
	return strings.ToLower(host), ""
}

// hostText tells whether text holds only what a host name may.
func hostText(text string) bool {
	for _, c := range []byte(text) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '.', c == '_':
		default:
			return false
		}
	}
	return true
}

// withoutUser cuts what stands before an @, so that an error repeats no
// password, also of a URL that cannot be parsed.
func withoutUser(raw string) string {
	at := strings.LastIndexByte(raw, '@')
	if at < 0 {
		return raw
	}
	scheme, _, ok := strings.Cut(raw[:at], "://")
	if !ok {
		scheme = "…"
	}
	return scheme + "://…" + raw[at:]
}

// CheckEndpoint refuses an event or replay endpoint that a ZMQ socket cannot
// connect to, and forms of ZMQ that mean more than one peer. The *FieldError
// names field.
func CheckEndpoint(field, endpoint string) error {
	if !reachable(endpoint) {
		return &FieldError{Field: field, Value: withoutUser(endpoint), Allowed: "tcp://HOST:PORT or ipc://PATH, at most 256 bytes, without '?' and ';'"}
	}
	return nil
}

// eventsForm is what CheckEvents allows.
const eventsForm = "tcp://HOST:PORT or ipc://PATH, at most 256 bytes, without '?' and ';'; tcp://*:PORT or tcp://[::]:PORT to bind a port that the engine connects to"

// CheckEvents is CheckEndpoint for the events of an engine, which may connect to us: see Binds.
func CheckEvents(field, endpoint string) error {
	if port, ok := bindPort(endpoint); ok && len(port) <= 5 && portNumber(port) || CheckEndpoint(field, endpoint) == nil {
		return nil
	}
	return &FieldError{Field: field, Value: withoutUser(endpoint), Allowed: eventsForm}
}

// Binds tells whether an event endpoint is ours and engines connect to it: its host is *, or [::] for IPv6 too.
func Binds(endpoint string) bool {
	_, ok := bindPort(endpoint)
	return ok
}

func bindPort(endpoint string) (port string, ok bool) {
	if port, ok = strings.CutPrefix(endpoint, "tcp://*:"); ok {
		return port, true
	}
	return strings.CutPrefix(endpoint, "tcp://[::]:")
}

func portNumber(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return err == nil && n > 0
}

func reachable(endpoint string) bool {
	if CheckName("", endpoint) != nil || strings.ContainsAny(endpoint, "?;") || Binds(endpoint) {
		return false
	}
	if path, ok := strings.CutPrefix(endpoint, "ipc://"); ok {
		return path != ""
	}
	address, ok := strings.CutPrefix(endpoint, "tcp://")
	colon := strings.LastIndexByte(address, ':')
	if !ok || colon < 0 {
		return false
	}
	host := address[:colon]
	inner, opened := strings.CutPrefix(host, "[")
	inner, closed := strings.CutSuffix(inner, "]")
	if _, allowed := normaliseHost(inner, opened); opened != closed || allowed != "" {
		return false
	}
	return portNumber(address[colon+1:])
}
