package frontend

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/upstream"
)

// firstRead is how much of an answer is read before it is begun; an answer that
// fits goes out with its head in one write.
const firstRead = 16 << 10

// errRedirect is for a worker that answers with another address.
var errRedirect = errors.New("a redirect is no answer of an engine")

// keptRefusal bounds a refusal that is kept while another worker is asked.
const keptRefusal = 64 << 10

// keepPatience bounds the reading of one.
const keepPatience = time.Second

// forward sends the request to the chosen worker and begins the client's
// answer. again means that another worker is to be asked; then err says why,
// nil for a refusal that is kept as the answer.
func (s *Server) forward(x *exchange, sel *core.Selection) (again bool, err error) {
	pinRank(&x.ctx.Request.Header, sel.Worker.Rank, sel.Ranks)
	resp := &x.ctx.Response
	body, err := s.send(x, sel)
	if err != nil {
		if e, ok := errors.AsType[*upstream.Error](err); ok {
			s.unreached(x, sel, e)
		}
		return s.mayRetry(x, err), err
	}
	x.head, x.ended, x.readErr = nil, false, nil // of a refusal that was kept
	x.body, x.status = body, resp.StatusCode()
	x.lease.answered()
	s.heard(sel, x.status, &resp.Header)
	if upstream.FailedBy(x.status) {
		x.tell(fleet.ServerError)
	}
	if x.status >= fasthttp.StatusMultipleChoices && x.status < fasthttp.StatusBadRequest {
		// It would lead the client to where only routerd may go.
		x.tell(fleet.ServerError)
		err := &upstream.Error{Phase: upstream.PhaseHead, Addr: sel.Endpoint, BytesRead: 1, Err: errRedirect}
		s.brokeOff(x, sel, err)
		return false, err
	}
	x.dress(sel)
	if x.status == fasthttp.StatusServiceUnavailable && s.mayTryOther(x) && s.budget.spend() {
		kept, err := x.keep()
		if err != nil {
			s.brokeOff(x, sel, err)
			return true, &refusalError{err}
		}
		if kept {
			return true, nil
		}
		s.budget.refund()
	}
	if err := s.relay(x); err != nil {
		x.tell(failureOf(err))
		s.brokeOff(x, sel, err)
		return false, err
	}
	return false, nil
}

// send begins an attempt. A worker whose address cannot be read is one that
// cannot be reached.
func (s *Server) send(x *exchange, sel *core.Selection) (*upstream.Body, error) {
	ep, err := s.endpoints.of(sel.Endpoint)
	if err != nil {
		return nil, &upstream.Error{Phase: upstream.PhaseDial, Err: err}
	}
	return s.upstream.Do(&x.call, ep, &x.ctx.Request, &x.ctx.Response.Header)
}

// dress turns the head of the worker's answer into the client's.
func (x *exchange) dress(sel *core.Selection) {
	h := &x.ctx.Response.Header
	stripAnswer(h)
	h.Set(headerRequestID, x.id)
	h.Set(headerWorker, sel.Name)
	h.SetBytesV(headerRank, strconv.AppendUint(nil, uint64(sel.Worker.Rank), 10))
	h.Set(headerDecision, sel.DecisionID)
}

// relay begins the client's answer. What is there whole goes out at once; else
// the stream takes the exchange over.
func (s *Server) relay(x *exchange) error {
	resp := &x.ctx.Response
	resp.Header.SetProtocol([]byte("HTTP/1.1")) // whatever the worker speaks
	x.meter.begin(isEvents(resp.Header.ContentType()), x.sel.BlockSize)
	size := x.body.Size()
	switch {
	case x.old && size < 0:
		return s.relayWhole(x)
	case x.ended: // a refusal that was kept in vain
		x.answerKept()
		return nil
	case !x.meter.events && x.head == nil:
		if err := x.readFirst(size); err != nil {
			return err
		}
		if x.ended {
			x.answerKept()
			return nil
		}
	}
	x.streaming = true
	x.forgetBody() // a held stream needs none
	resp.SetBodyStream(&stream{x}, int(size))
	// Of events, the head goes before the first, which may take long. A body of
	// known length is relayed read by read only once the head is out. Of other
	// chunked answers the first piece is at hand, and goes with the head.
	resp.ImmediateHeaderFlush = x.meter.events || size >= 0
	return nil
}

func isEvents(contentType []byte) bool {
	const events = "text/event-stream"
	return len(contentType) >= len(events) && bytes.EqualFold(contentType[:len(events)], []byte(events))
}

// readFirst makes one read of the body, all of it if the worker has it ready.
// An error is returned only when nothing came.
func (x *exchange) readFirst(size int64) error {
	if size == 0 {
		x.ended = true
		return nil
	}
	x.scratch = x.s.buffers.get()
	buf := *x.scratch
	n, err := x.body.Read(buf)
	if n == 0 && !errors.Is(err, io.EOF) {
		return err
	}
	x.head = buf[:n]
	x.ended = errors.Is(err, io.EOF) || int64(n) == size
	x.feed(x.head)
	return nil
}

// relayWhole serves a client of HTTP/1.0, which knows no chunks: an answer whose
// length is not known is held until it is complete, up to maxPlainBytes.
func (s *Server) relayWhole(x *exchange) error {
	rest, err := io.ReadAll(io.LimitReader(renewing{x}, maxPlainBytes+1))
	if err != nil {
		return err
	}
	all := append(slices.Clip(x.head), rest...)
	if len(all) > maxPlainBytes {
		return errTooLong
	}
	x.ended, x.head = true, all
	x.feed(all)
	x.answerKept()
	return nil
}

// keep reads a refusal, so that its connection and booking can be given back;
// false means that it is too long and has to be relayed. A refusal that breaks
// off, or does not end soon, is an error: another worker may still do better.
func (x *exchange) keep() (bool, error) {
	x.body.Within(keepPatience)
	all, err := io.ReadAll(io.LimitReader(x.body, keptRefusal))
	if err != nil {
		return false, err
	}
	x.head, x.ended = all, len(all) < keptRefusal
	if !x.ended {
		x.body.Within(0)
	}
	return x.ended, nil
}

// answerKept answers with the body that is held whole. It is copied: its buffer
// goes back before the answer is written.
func (x *exchange) answerKept() {
	x.ctx.Response.SetBody(x.head)
	x.head = nil
}
