package engine

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/routerd/routerd/fleet"
)

// hostOf is the host of a worker's URL as it stands in a ZMQ endpoint.
func hostOf(base string) (string, error) {
	u, err := url.Parse(base)
	if err != nil || u.Hostname() == "" {
		return "", &fleet.FieldError{Field: "url", Allowed: "http://HOST:PORT"}
	}
	return bracketed(u.Hostname()), nil
}

func bracketed(host string) string {
	if strings.Contains(host, ":") {
		return "[" + host + "]"
	}
	return host
}

// wildcard tells whether a bind address stands for all of a machine's.
func wildcard(host string) bool {
	if host == "*" || host == "" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsUnspecified()
}

// reach turns the endpoint that an engine binds into one to connect to: all of its
// machine's addresses become the host of its URL, and the port rises by shift. An
// endpoint within the engine's machine is taken only when that is this one.
func reach(endpoint, host string, shift int) (string, error) {
	if strings.HasPrefix(endpoint, "ipc://") {
		if shift != 0 || !loopback(host) {
			return "", fmt.Errorf("%q is within the engine's machine", cut(endpoint))
		}
		return endpoint, fleet.CheckEndpoint("endpoint", endpoint)
	}
	address, ok := strings.CutPrefix(endpoint, "tcp://")
	colon := strings.LastIndexByte(address, ':')
	if !ok || colon < 0 {
		return "", fmt.Errorf("%q is no TCP endpoint", cut(endpoint))
	}
	port, err := strconv.Atoi(address[colon+1:])
	if err != nil || port < 1 {
		return "", fmt.Errorf("%q has no port", cut(endpoint))
	}
	bind := strings.TrimSuffix(strings.TrimPrefix(address[:colon], "["), "]")
	return tcp(bind, host, port+shift)
}

// tcp is the endpoint of a port at the bind address, or at host when that stands
// for all of the machine's.
func tcp(bind, host string, port int) (string, error) {
	if !wildcard(bind) {
		host = bracketed(bind)
	}
	endpoint := "tcp://" + host + ":" + strconv.Itoa(port)
	if err := fleet.CheckEndpoint("endpoint", endpoint); err != nil {
		return "", err
	}
	return endpoint, nil
}

func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return ip != nil && ip.IsLoopback()
}

// pathOf is a place without its query.
func pathOf(place string) string {
	path, _, _ := strings.Cut(place, "?")
	return path
}

// cut shortens what an engine said for an operator's eyes.
func cut(s string) string {
	const most = 80
	s = strings.ToValidUTF8(s, "")
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

// shortened keeps an error from repeating much of a body.
func shortened(err error) error { return fmt.Errorf("%s", cut(err.Error())) }
