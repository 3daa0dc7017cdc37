package frontend

import (
	"bytes"
	"encoding/json"
	"net"
	"strconv"
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/internal/jsonscan"
	"github.com/routerd/routerd/upstream"
)

const (
	prefixOurs      = "X-Routerd-"
	headerPin       = prefixOurs + "Pin"
	headerAllow     = prefixOurs + "Allow"
	headerSession   = prefixOurs + "Session"
	headerParent    = prefixOurs + "Parent-Session"
	headerClass     = prefixOurs + "Class"
	headerPriority  = prefixOurs + "Priority"
	headerTenant    = prefixOurs + "Tenant"
	headerOverride  = prefixOurs + "Override"
	headerWorker    = prefixOurs + "Worker"
	headerRank      = prefixOurs + "Rank"
	headerDecision  = prefixOurs + "Decision"
	headerRequestID = "X-Request-Id"
	headerRankPin   = "X-Data-Parallel-Rank"
)

// maxRequestID bounds a request id that is taken over from the client.
const maxRequestID = 128

// headerError refuses a routing header.
type headerError struct{ field fleet.FieldError }

// Error names header, value and what is allowed.
func (e *headerError) Error() string { return e.field.Error() }

func badHeader(name, value, allowed string) error {
	return &headerError{fleet.FieldError{Field: strings.ToLower(name), Value: value, Allowed: allowed}}
}

// routingHeaders fills a request with what our own headers say, its session
// apart.
func routingHeaders(h *fasthttp.RequestHeader, req *core.Request) (err error) {
	if v, ok, err := single(h, headerPin); err != nil {
		return err
	} else if ok {
		if req.Pin, err = pinOf(v); err != nil {
			return err
		}
	}
	if req.Allow, err = allowOf(h); err != nil {
		return err
	}
	if req.Class, err = identifier(h, []string{headerClass}); err != nil {
		return err
	}
	if req.Tenant, err = identifier(h, []string{headerTenant}); err != nil {
		return err
	}
	if v, ok, err := single(h, headerPriority); err != nil {
		return err
	} else if ok {
		n, err := strconv.ParseInt(v, 10, 32)
		if err != nil {
			return badHeader(headerPriority, v, "a whole number from -2147483648 to 2147483647")
		}
		req.Priority = int(n)
	}
	if v, ok, err := single(h, headerOverride); err != nil {
		return err
	} else if ok {
		if req.Overrides, err = overridesOf(v); err != nil {
			return err
		}
	}
	return nil
}

// single returns a header that may occur once.
func single(h *fasthttp.RequestHeader, name string) (v string, ok bool, err error) {
	all := h.PeekAll(name)
	switch len(all) {
	case 0:
		return "", false, nil
	case 1:
		return string(bytes.TrimSpace(all[0])), true, nil
	}
	return "", false, badHeader(name, string(all[1]), "the header at most once")
}

// pinOf reads NAME or ID, perhaps with ;rank=N.
func pinOf(v string) (*core.Pin, error) {
	const allowed = "a worker's name or id, optionally followed by ;rank=N with N from 0 to 4294967295"
	name, rest, ranked := strings.Cut(v, ";")
	pin := &core.Pin{Name: strings.TrimSpace(name)}
	if pin.Name == "" || len(pin.Name) > fleet.MaxNameBytes {
		return nil, badHeader(headerPin, v, allowed)
	}
	if !ranked {
		return pin, nil
	}
	key, number, ok := strings.Cut(strings.TrimSpace(rest), "=")
	n, err := strconv.ParseUint(number, 10, 32)
	if !ok || key != "rank" || err != nil {
		return nil, badHeader(headerPin, v, allowed)
	}
	rank := uint32(n)
	pin.Rank = &rank
	return pin, nil
}

// allowOf reads the comma list of workers; nil without the header.
func allowOf(h *fasthttp.RequestHeader) ([]string, error) {
	lines := h.PeekAll(headerAllow)
	if len(lines) == 0 {
		return nil, nil
	}
	allow := []string{}
	for _, line := range lines {
		for name := range strings.SplitSeq(string(line), ",") {
			name = strings.TrimSpace(name)
			if name == "" || len(name) > fleet.MaxNameBytes {
				return nil, badHeader(headerAllow, string(line), "workers' names or ids, separated by commas")
			}
			allow = append(allow, name)
		}
	}
	return allow, nil
}

// identifier reads the first of several names of one header.
func identifier(h *fasthttp.RequestHeader, names []string) (string, error) {
	for _, name := range names {
		v, ok, err := single(h, name)
		if err != nil || ok && (len(v) > core.MaxIDBytes || !printable(v)) {
			if err == nil {
				err = badHeader(name, v, "at most 256 printable bytes")
			}
			return "", err
		}
		if v != "" {
			return v, nil
		}
	}
	return "", nil
}

// overridesOf reads a JSON object; its values stay as they are.
func overridesOf(v string) (map[string]json.RawMessage, error) {
	out := map[string]json.RawMessage{}
	r := jsonscan.Reader{Data: []byte(v)}
	err := r.Members(func(key, value []byte) error {
		if _, twice := out[string(key)]; twice {
			return jsonscan.ErrNotJSON
		}
		out[string(key)] = value
		return nil
	})
	if err != nil {
		return nil, badHeader(headerOverride, v, "a JSON object from name to value, each name once")
	}
	return out, nil
}

func printable[T string | []byte](v T) bool {
	for i := range len(v) {
		if v[i] < 0x20 || v[i] > 0x7e {
			return false
		}
	}
	return true
}

// requestIDOf takes the client's id over or makes one.
func (s *Server) requestIDOf(h *fasthttp.RequestHeader) string {
	if v := h.Peek(headerRequestID); len(v) > 0 && len(v) <= maxRequestID && printable(v) {
		return string(v)
	}
	return s.ids.next()
}

// strip removes what is only between the client and this router: the hop-by-hop
// fields and ours. It goes by the Connection field, because the upstream
// client's stripping keeps the order of repeated fields, where deleting one
// would not.
func strip(h *fasthttp.RequestHeader) {
	var names []byte
	for key := range h.All() {
		if bytes.HasPrefix(key, []byte(prefixOurs)) || string(key) == headerRankPin {
			names = append(append(names, key...), ',')
		}
	}
	for _, name := range [...]string{headerRequestID, fasthttp.HeaderXForwardedFor} {
		if len(h.PeekAll(name)) > 1 { // both are set anew
			names = append(append(names, name...), ',')
		}
	}
	if len(names) > 0 {
		h.AddBytesV(fasthttp.HeaderConnection, names)
		upstream.StripRequest(h)
	}
}

// stripAnswer removes from a worker's answer what is not for the client: the
// hop-by-hop fields, and all that only this router says. It keeps the order of
// repeated fields as strip does.
func stripAnswer(h *fasthttp.ResponseHeader) {
	upstream.StripResponse(h)
	var names []byte
	for key := range h.All() {
		if bytes.HasPrefix(key, []byte(prefixOurs)) || string(key) == headerRequestID {
			names = append(append(names, key...), ',')
		}
	}
	if len(names) > 0 {
		h.AddBytesV(fasthttp.HeaderConnection, names)
		upstream.StripResponse(h)
	}
}

// outbound turns the client's headers, without the hop-by-hop ones, into those
// for the worker.
func (x *exchange) outbound() {
	h := &x.ctx.Request.Header
	forwarded := x.cfg.forwardedFor(h, x.ctx.RemoteAddr())
	strip(h)
	h.Set(headerRequestID, x.id)
	if forwarded == "" {
		h.Del(fasthttp.HeaderXForwardedFor)
		return
	}
	h.Set(fasthttp.HeaderXForwardedFor, forwarded)
}

// forwardedFor is what the worker is told of the client; empty for nothing.
func (c *Config) forwardedFor(h *fasthttp.RequestHeader, peer net.Addr) string {
	var before []byte
	if c.ForwardedFor == forwardedAppend {
		before = bytes.Join(h.PeekAll(fasthttp.HeaderXForwardedFor), []byte(", "))
	}
	tcp, ok := peer.(*net.TCPAddr)
	switch {
	case !ok:
		return string(before)
	case len(before) == 0:
		return tcp.IP.String()
	}
	return string(before) + ", " + tcp.IP.String()
}

// pinRank tells a worker with several ranks which of them was chosen. The
// client's own wish never passes: the rank is the router's choice.
func pinRank(h *fasthttp.RequestHeader, rank uint32, ranks int) {
	if ranks > 1 {
		h.SetBytesV(headerRankPin, strconv.AppendUint(nil, uint64(rank), 10))
		return
	}
	h.Del(headerRankPin)
}

// framedTwice tells whether the head had both Transfer-Encoding and
// Content-Length; fasthttp itself goes by the former.
func framedTwice(h *fasthttp.RequestHeader) bool {
	if len(h.Peek(fasthttp.HeaderTransferEncoding)) == 0 {
		return false
	}
	for line := range bytes.SplitSeq(h.RawHeaders(), []byte("\n")) {
		name, _, ok := bytes.Cut(line, []byte(":"))
		if ok && bytes.EqualFold(name, []byte(fasthttp.HeaderContentLength)) {
			return true
		}
	}
	return false
}
