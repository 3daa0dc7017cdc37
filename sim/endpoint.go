package sim

import (
	"fmt"
	"net"
	"strconv"
	"strings"
)

// endpoint is a TCP address to bind a ZMQ socket to; port 0 means any free one.
type endpoint struct {
	host string
	port int
}

// splitEndpoint reads "tcp://HOST:PORT" or "tcp://HOST:*".
func splitEndpoint(field, v string) (endpoint, error) {
	bad := fmt.Errorf("%s %q: allowed: tcp://HOST:PORT with a port of 1 to 65535 or *", field, cut(v))
	rest, ok := strings.CutPrefix(v, "tcp://")
	if !ok {
		return endpoint{}, bad
	}
	host, port, err := net.SplitHostPort(rest)
	if err != nil || host == "" {
		return endpoint{}, bad
	}
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if port == "*" {
		return endpoint{host: host}, nil
	}
	n, err := strconv.Atoi(port)
	if err != nil || n < 1 || n > 65535 {
		return endpoint{}, bad
	}
	return endpoint{host: host, port: n}, nil
}

// address is what rank r binds: a fixed port is rank 0's, the others follow.
func (e endpoint) address(rank int) string {
	if e.port == 0 {
		return "tcp://" + e.host + ":*"
	}
	return "tcp://" + e.host + ":" + strconv.Itoa(e.port+rank)
}

// meets tells whether two fixed endpoints would share a port among n ranks.
func (e endpoint) meets(other endpoint, n int) bool {
	if e.port == 0 || other.port == 0 {
		return false
	}
	distance := e.port - other.port
	return distance < n && -distance < n
}
