package upstream

import (
	"bytes"

	"github.com/valyala/fasthttp"
)

// StripRequest removes what concerns only the connection of the client:
// Connection and every field that it names, Keep-Alive, Proxy-Connection,
// Proxy-Authenticate, Proxy-Authorization, TE, Trailer, Transfer-Encoding,
// Upgrade, Expect, and all trailers, with any field that is also named as a
// trailer. Fields that describe the message itself (Content-Length,
// Content-Type, Content-Encoding, Host) stay even if Connection names them.
// Fields that occur more than once keep their order.
//
// Call it before adding fields of one's own: one that the client has named as
// a trailer or in Connection would vanish.
func StripRequest(h *fasthttp.RequestHeader) {
	trailers := h.PeekTrailerKeys()
	if len(trailers) == 0 {
		strip(h, nil)
		return
	}
	drop := make([]string, 0, len(trailers)+1)
	for _, key := range trailers {
		drop = append(drop, string(key))
	}
	// Last, and after the trailers' values are gone: dropping the list first
	// would make headers of them.
	strip(h, append(drop, fasthttp.HeaderTrailer))
}

// StripResponse does for a worker's answer what StripRequest does for a
// request, and clears the worker's Connection: close.
func StripResponse(h *fasthttp.ResponseHeader) {
	if len(h.PeekTrailerKeys()) > 0 {
		strip(h, []string{fasthttp.HeaderTrailer})
		return
	}
	strip(h, nil)
}

// fields is what both kinds of header offer.
type fields interface {
	PeekAll(key string) [][]byte
	PeekKeys() [][]byte
	Del(key string)
	AddBytesKV(key, value []byte)
}

// hopByHop holds what is always removed; at most 64 names.
var hopByHop = [...]string{
	fasthttp.HeaderKeepAlive, fasthttp.HeaderProxyConnection, fasthttp.HeaderProxyAuthenticate,
	fasthttp.HeaderProxyAuthorization, fasthttp.HeaderTE, fasthttp.HeaderTransferEncoding,
	fasthttp.HeaderUpgrade, fasthttp.HeaderExpect, fasthttp.HeaderConnection,
}

// strip removes the hop-by-hop fields, those that Connection names, and drop.
func strip(h fields, drop []string) {
	for _, line := range h.PeekAll(fasthttp.HeaderConnection) {
		drop = appendTokens(drop, line)
	}
	remove(h, hopByHop[:], drop)
}

// remove deletes the named fields and leaves the others in their order. Del
// moves the last field into the gap, so that repeated fields could change
// places: they are set again.
func remove(h fields, names, more []string) {
	var present uint64 // by position in names
	for i, key := range names {
		if len(h.PeekAll(key)) > 0 {
			present |= 1 << i
		}
	}
	if present == 0 && len(more) == 0 {
		return
	}
	repeated := copyRepeated(h)
	for i, key := range names {
		if present&(1<<i) != 0 {
			h.Del(key)
		}
	}
	for _, key := range more {
		h.Del(key)
	}
	restore(h, repeated)
}

// appendTokens adds the field names of one Connection line, except those that
// are always dropped and those that may never be.
func appendTokens(names []string, line []byte) []string {
	for len(line) > 0 {
		token, rest, _ := bytes.Cut(line, []byte(","))
		line = rest
		token = bytes.TrimSpace(token)
		if len(token) == 0 || oneOf(token, "close", "keep-alive", "upgrade", "te", "trailer") ||
			oneOf(token, "content-length", "content-type", "content-encoding", "host") {
			continue
		}
		names = append(names, string(token))
	}
	return names
}

func oneOf(token []byte, names ...string) bool {
	for _, n := range names {
		if len(n) == len(token) && bytes.EqualFold(token, []byte(n)) {
			return true
		}
	}
	return false
}

type field struct{ key, value []byte }

// copyRepeated copies the fields that occur more than once and that restore
// can set again. Cookies keep their own list and dates are not added twice.
func copyRepeated(h fields) []field {
	keys := h.PeekKeys()
	var names [][]byte
	for i, key := range keys {
		if contains(keys[:i], key) && !contains(names, key) && !oneOf(key, "set-cookie", "cookie", "date") {
			names = append(names, bytes.Clone(key))
		}
	}
	var out []field
	for _, name := range names {
		for _, value := range h.PeekAll(string(name)) {
			out = append(out, field{name, bytes.Clone(value)})
		}
	}
	return out
}

// restore sets copied fields again, those that have been dropped excepted. All
// are deleted before the first is added, because Del reorders.
func restore(h fields, repeated []field) {
	kept := repeated[:0]
	for _, f := range repeated {
		if len(h.PeekAll(string(f.key))) > 0 {
			kept = append(kept, f)
		}
	}
	for _, f := range kept {
		h.Del(string(f.key))
	}
	for _, f := range kept {
		h.AddBytesKV(f.key, f.value)
	}
}

func contains(keys [][]byte, key []byte) bool {
	for _, k := range keys {
		if bytes.Equal(k, key) {
			return true
		}
	}
	return false
}
