package frontend

import (
	"time"

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
	r := reader{data: text}
	r.space()
	if _, err := r.value(); err != nil {
		return false
	}
	r.space()
	return r.pos == len(text)
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
