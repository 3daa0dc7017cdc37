package sim

import (
	"errors"
	"io"
	"iter"

	"github.com/valyala/fasthttp"
)

// stream sends the answer as server-sent events. The body is read by fasthttp on
// the connection's goroutine: one Read waits for one token and is flushed.
func (e *Engine) stream(x *exchange, j *job, r *rank, options *streamFields, form format) {
	s := &streamBody{x: x, job: j, rank: r, form: form, opened: make([]bool, len(j.prompts)*j.sampling.n)}
	if options != nil {
		s.options = *options
	}
	s.next, s.stop = iter.Pull2(e.generate(x.ctx, j, r))
	x.Response.SetStatusCode(fasthttp.StatusOK)
	x.Response.Header.SetContentType("text/event-stream; charset=utf-8")
	x.Response.ImmediateHeaderFlush = true
	x.Response.SetBodyStream(s, -1)
}

// streamBody turns outputs into events. Owned by the connection's goroutine.
type streamBody struct {
	x       *exchange
	job     *job
	rank    *rank
	form    format
	options streamFields
	next    func() (output, error, bool)
	stop    func()

	opened  []bool   // by choice: its opening chunk was made
	queue   [][]byte // events made but not sent
	pending []byte   // rest of the event that is being sent
	sent    int      // events sent, [DONE] not counted
	last    bool     // nothing comes after the queue
	failed  bool
	closed  bool
}

// Read waits for the next event. It never gives parts of two events at once.
func (s *streamBody) Read(p []byte) (int, error) {
	if len(s.pending) == 0 {
		if err := s.advance(); err != nil {
			s.failed = !errors.Is(err, io.EOF)
			return 0, err
		}
	}
	n := copy(p, s.pending)
	s.pending = s.pending[n:]
	return n, nil
}

// Close is called by fasthttp after the last write, also when a write failed.
func (s *streamBody) Close() error {
	if s.closed {
		return nil
	}
	s.closed = true
	s.stop()
	if !s.finished() {
		if !s.failed {
			s.x.cancel(errClientGone) // a write failed: nobody reads any more
		}
		s.x.engine.countEnd(s.x, s.job, s.rank)
	}
	s.x.finish()
	return nil
}

func (s *streamBody) finished() bool {
	return s.last && len(s.queue) == 0 && len(s.pending) == 0
}

// advance puts the next event into pending.
func (s *streamBody) advance() error {
	if err := s.applyFault(); err != nil {
		return err
	}
	for len(s.queue) == 0 {
		if s.last {
			return io.EOF
		}
		out, err, ok := s.next()
		switch {
		case err != nil:
			return err
		case ok:
			s.token(out)
		default:
			s.end()
		}
	}
	s.pending, s.queue = s.queue[0], s.queue[1:]
	s.sent++
	return nil
}

// applyFault lets a fault act that has waited for this point of the stream.
func (s *streamBody) applyFault() error {
	f := s.x.fault
	if f == nil || s.sent < f.AfterChunks {
		return nil
	}
	s.x.fault = nil
	switch f.Kind {
	case faultReset:
		return errCut
	case faultStall:
		return f.hold(s.x.ctx)
	case faultError:
		s.queue = [][]byte{event500(), doneEvent()}
		s.last = true
		s.stop()
	}
	return nil
}

func (s *streamBody) token(out output) {
	if !s.opened[out.choice] {
		s.opened[out.choice] = true
		if c := s.form.opening(s.job, out.choice); c != nil {
			s.add(c, out, 0)
		}
	}
	// As in vLLM a token without visible text gives no event of its own.
	if out.text == "" && out.finish == "" {
		return
	}
	c := s.form.token(s.job, out)
	if out.finish != "" && !s.options.IncludeUsage {
		c.Fingerprint = s.x.engine.fingerprint()
	}
	s.add(c, out, out.usage.CompletionTokens)
}

// add queues a chunk, with the choice's usage so far where that was asked for.
func (s *streamBody) add(c *chunk, out output, made int) {
	if s.options.IncludeUsage && s.options.ContinuousUsage {
		u := out.usage
		u.CompletionTokens, u.TotalTokens = made, u.PromptTokens+made
		c.Usage = &u
	}
	s.queue = append(s.queue, dataEvent(encodeJSON(c)))
}

func (s *streamBody) end() {
	if s.options.IncludeUsage {
		c := newChunk(s.form, s.job, []struct{}{})
		c.Usage = &s.job.usage
		c.Fingerprint = s.x.engine.fingerprint()
		s.queue = append(s.queue, dataEvent(encodeJSON(c)))
	}
	s.queue = append(s.queue, doneEvent())
	s.last = true
}

func dataEvent(data []byte) []byte {
	event := make([]byte, 0, len(data)+8)
	event = append(event, "data: "...)
	event = append(event, data...)
	return append(event, "\n\n"...)
}

func doneEvent() []byte { return []byte("data: [DONE]\n\n") }

func event500() []byte {
	return dataEvent(errorBody(&apiError{fasthttp.StatusInternalServerError, "InternalServerError", "", "Internal server error"}))
}
