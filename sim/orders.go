package sim

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/valyala/fasthttp"
)

const mostFaults = 1_000_000

// faultFields says which fields each kind knows besides kind.
var faultFields = map[string][]string{
	faultStall:       {"count", "path", "after_chunks"},
	faultReset:       {"count", "path", "after_chunks"},
	faultError:       {"count", "path", "after_chunks"},
	faultStatus:      {"count", "path", "status", "headers", "body"},
	faultDelay:       {"count", "path", "delay"},
	faultDropEvents:  {"count", "rank"},
	faultDropReplies: {"count", "rank", "mode"},
	faultResetCache:  {"rank"},
}

// parseFault reads one order strictly: a field that the kind does not know is an
// error that names it.
func parseFault(raw []byte, ranks int) (fault, error) {
	f := fault{Count: 1, Mode: replySilent}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		return f, decodeError(err)
	}
	if err := json.Unmarshal(raw, &f); err != nil {
		return f, decodeError(err)
	}
	allowed, ok := faultFields[f.Kind]
	if !ok {
		return f, badRequest("kind", "Field \"kind\": %q; allowed: %s.", cut(f.Kind), strings.Join(slices.Sorted(maps.Keys(faultFields)), ", "))
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if name != "kind" && !slices.Contains(allowed, name) {
			return f, badRequest(cut(name), "Field %q is unknown for %s; allowed: kind, %s.", cut(name), f.Kind, strings.Join(allowed, ", "))
		}
	}
	if f.Kind != faultDropReplies {
		f.Mode = ""
	}
	err := f.check(ranks)
	return f, err
}

// check looks at the values of the fields that the kind knows.
func (f *fault) check(ranks int) error {
	switch {
	case f.Count < 1 || f.Count > mostFaults:
		return badRequest("count", "Field \"count\": %d; allowed: 1 to %d.", f.Count, mostFaults)
	case f.AfterChunks < 0:
		return badRequest("after_chunks", "Field \"after_chunks\": %d; allowed: 0 and more.", f.AfterChunks)
	case f.Kind == faultError && f.AfterChunks < 1:
		return badRequest("after_chunks", "Field \"after_chunks\": %d; allowed: 1 and more for error.", f.AfterChunks)
	case f.Kind == faultStatus && (f.Status < 200 || f.Status > 599):
		return badRequest("status", "Field \"status\": %d; allowed: 200 to 599.", f.Status)
	case f.Rank != nil && (*f.Rank < 0 || *f.Rank >= ranks):
		return badRequest("rank", "Field \"rank\": %d; allowed: 0 to %d.", *f.Rank, ranks-1)
	case f.Kind == faultDropReplies && f.Mode != replySilent && f.Mode != replyHoles && f.Mode != replyNoEnd:
		return badRequest("mode", "Field \"mode\": %q; allowed: %s, %s, %s.", cut(f.Mode), replySilent, replyHoles, replyNoEnd)
	case f.Path != "" && !strings.HasPrefix(f.Path, "/"):
		return badRequest("path", "Field \"path\": %q; allowed: a path that begins with /.", cut(f.Path))
	case f.Kind == faultDelay:
		return f.readDelay()
	}
	return nil
}

func (f *fault) readDelay() error {
	var err error
	f.delay, err = time.ParseDuration(f.Delay)
	if err != nil || f.delay <= 0 || f.delay > longestDelay {
		return badRequest("delay", "Field \"delay\": %q; allowed: a duration above 0 and up to %s, such as \"150ms\".", cut(f.Delay), longestDelay)
	}
	return nil
}

// orderFault serves POST /sim/faults: one order, which acts from now on.
func (e *Engine) orderFault(x *exchange) {
	f, err := parseFault(bytes.Clone(x.PostBody()), len(e.ranks))
	if err != nil {
		x.fail(err)
		return
	}
	if f.Kind == faultResetCache {
		e.clearCaches(f.Rank)
	} else {
		e.faults.add(f)
	}
	e.listFaults(x)
}

// listFaults serves GET /sim/faults: the orders that are not used up.
func (e *Engine) listFaults(x *exchange) {
	x.reply(fasthttp.StatusOK, map[string][]fault{"faults": e.faults.active()})
}

// clearFaults serves DELETE /sim/faults.
func (e *Engine) clearFaults(x *exchange) {
	e.faults.clear()
	e.listFaults(x)
}

// resetCache serves POST /reset_prefix_cache as vLLM's development mode does.
func (e *Engine) resetCache(x *exchange) {
	e.clearCaches(nil)
	x.Response.SetStatusCode(fasthttp.StatusOK)
}

func (e *Engine) clearCaches(rank *int) {
	for _, r := range e.ranks {
		if rank == nil || *rank == r.id {
			r.clear()
		}
	}
}

// applyBeforeAnswer lets a fault act before the first byte of an answer; false
// means that the exchange is over.
func (e *Engine) applyBeforeAnswer(x *exchange, f *fault) bool {
	switch f.Kind {
	case faultStatus:
		x.Response.SetStatusCode(f.Status)
		x.Response.Header.SetContentType("application/json")
		for name, value := range f.Headers {
			x.Response.Header.Set(name, value)
		}
		x.Response.SetBodyRaw(f.body())
		return false
	case faultReset:
		x.hangUp()
		return false
	case faultError:
		x.fail(errCut)
		return false
	}
	x.begin()
	var err error
	if f.Kind == faultStall {
		err = f.hold(x.ctx)
	} else {
		p := newPacer()
		defer p.stop()
		err = p.wait(x.ctx, f.delay)
	}
	if err == nil {
		return true
	}
	if errors.Is(err, errClientGone) {
		e.strays.Add(1)
		e.cancellations.add(string(x.Request.Header.Peek("X-Request-Id")), -1, 0)
	}
	x.hangUp()
	return false
}
