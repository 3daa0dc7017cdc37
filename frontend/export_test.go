package frontend

import (
	"context"
	"time"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/internal/jsonscan"
	"github.com/routerd/routerd/prompt"
)

// Answer is what AnswerTo tells.
type Answer struct {
	Status            int
	Type, Code, Param string
	Message           string
	RetryAfter        bool
}

// AnswerTo is what a client is told of an error.
func AnswerTo(err error) Answer {
	a := answerTo(err)
	return Answer{a.status, a.kind, a.code, a.param, a.message, a.retryAfter > 0}
}

// The frontend's own errors.
var (
	ErrNotReady    = errNotReady
	ErrDraining    = errDraining
	ErrGraceOver   = errGraceOver
	ErrClientGone  = errClientGone
	ErrSilent      = errSilent
	ErrTooLong     = errTooLong
	ErrPanic       = errPanic
	ErrUnknownPath = error(&routeError{})
)

// Parse wraps an error of fasthttp's parser.
func Parse(err error) error { return &parseError{err} }

// SetReadPatience sets how long a request may take to arrive.
func (s *Server) SetReadPatience(d time.Duration) { s.http.ReadTimeout = d }

// Refusal wraps what ended a worker's refusal.
func Refusal(err error) error { return &refusalError{err} }

// Scan scans a chat body.
func Scan(body []byte) (model string, messages []byte, err error) {
	var out scan
	err = newScanner(prompt.Chat).scan(body, &out)
	return out.model, out.prompt, err
}

// ValidJSON walks over any JSON text.
func ValidJSON(text []byte) bool {
	r := jsonscan.Reader{Data: text}
	r.Space()
	if _, err := r.Value(); err != nil {
		return false
	}
	r.Space()
	return r.Pos == len(text)
}

// IDs reads an array of token ids.
func IDs(raw []byte) ([]uint32, bool) { return idsOf(raw) }

// Reading is what a meter has read.
type Reading struct {
	Events, Inputs, Outputs int
	Done, Failed            bool
}

// Meter reads an answer in the given pieces.
func Meter(events bool, pieces ...[]byte) Reading {
	var m meter
	m.begin(events, 16)
	for _, p := range pieces {
		m.feed(p)
	}
	m.finish()
	return Reading{m.count, m.inputs, m.outputs, m.done, m.failed}
}

// StreamMeter is a meter to be fed.
type StreamMeter struct{ m meter }

// Begin starts an event stream.
func (s *StreamMeter) Begin() { s.m.begin(true, 16) }

// Feed reads the next bytes.
func (s *StreamMeter) Feed(p []byte) { s.m.feed(p) }

// RunLeases scans until ctx ends.
func (s *Server) RunLeases(ctx context.Context) { s.runLeases(ctx) }

// Exchange is a request under way that has neither client nor worker.
type Exchange struct{ x *exchange }

// UnderWay registers an exchange with a booking.
func (s *Server) UnderWay(sel *core.Selection) Exchange {
	x := &exchange{s: s, id: "x", began: true}
	x.life, x.cancel = context.WithCancelCause(context.Background())
	s.calls.add(x)
	e := Exchange{x}
	e.Attempt(sel)
	return e
}

// Attempt begins an attempt with its own booking.
func (e Exchange) Attempt(sel *core.Selection) {
	e.x.sel = sel
	e.x.lease.take(sel)
}

// Answered tells that the worker has begun to answer, Relayed that bytes came.
func (e Exchange) Answered() { e.x.lease.answered() }

// Relayed tells that bytes of the answer came by.
func (e Exchange) Relayed() { e.x.lease.renew() }

// Drop ends the attempt.
func (e Exchange) Drop() { e.x.drop("failed") }

// Ended is why the exchange was ended, nil while it is not.
func (e Exchange) Ended() error { return context.Cause(e.x.life) }
