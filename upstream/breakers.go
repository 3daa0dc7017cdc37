package upstream

import (
	"maps"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
)

// memoryOf is how long a breaker is kept that nobody asks for, as a multiple of
// BreakerConfig.MaxCooldown.
const memoryOf = 10

// breakers keeps those of the workers that failed lately. While nobody has, a
// call costs two atomic loads.
type breakers struct {
	cfg     atomic.Pointer[BreakerConfig] // never changed in place
	told    atomic.Pointer[func(worker string, open bool, reason string)]
	refused atomic.Uint64
	changed [breakerStates]atomic.Uint64 // changes by the state that they led to

	mu     sync.Mutex                            // guards changes of failed
	failed atomic.Pointer[map[Endpoint]*breaker] // never changed in place; nil is empty
}

// of returns an endpoint's breaker, or nil.
func (s *breakers) of(ep Endpoint) *breaker {
	if m := s.failed.Load(); m != nil {
		return (*m)[ep]
	}
	return nil
}

// enter asks for the right to call a worker. The error is what Do fails with.
func (s *breakers) enter(ep Endpoint) (pass, *Error) {
	among := s.failed.Load()
	if among == nil {
		return pass{}, nil
	}
	b := (*among)[ep]
	if b == nil || s.cfg.Load().Failures == 0 {
		return pass{among: among}, nil
	}
	p, wait, reason, ok := b.enter(time.Now())
	s.tell(b)
	if ok {
		p.among = among
		return p, nil
	}
	s.refused.Add(1)
	return pass{}, &Error{Phase: PhasePrepare, Addr: ep.addr, RetryAfter: wait, Err: &openError{reason}}
}

// leave gives a pass back with what came of the call.
func (s *breakers) leave(ep Endpoint, p pass, err *Error, status int) {
	v := verdictOf(err, status)
	b := p.b
	if s.failed.Load() != p.among { // else it is as it was
		b = s.of(ep)
	}
	if p.b != nil && p.b != b { // it was forgotten meanwhile
		if p.epoch != p.b.epoch.Load() || p.trial {
			return
		}
		p = pass{} // because all was well
	}
	if b == nil {
		if v != verdictFailure {
			return
		}
		if b = s.add(ep); b == nil {
			return
		}
	}
	reason := ""
	if v == verdictFailure {
		reason = reasonOf(err, status)
	}
	b.leave(p, v, reason, s.cfg.Load(), time.Now())
	s.tell(b)
}

// add makes the breaker of an endpoint, nil if there are to be none.
func (s *breakers) add(ep Endpoint) *breaker {
	if s.cfg.Load().Failures == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.of(ep); b != nil {
		return b
	}
	b := &breaker{ep: ep, touched: time.Now()}
	m := map[Endpoint]*breaker{}
	if old := s.failed.Load(); old != nil {
		m = maps.Clone(*old)
	}
	m[ep] = b
	s.failed.Store(&m)
	return b
}

// sweep lets those whose cooldown is over take trials, also if nobody calls, and
// forgets those that are well, or that nobody has called for long.
func (s *breakers) sweep(now time.Time) {
	m := s.failed.Load()
	if m == nil {
		return
	}
	long := memoryOf * s.cfg.Load().MaxCooldown
	var over []*breaker
	for _, b := range *m {
		if b.rest(now, long) {
			over = append(over, b)
		}
		s.tell(b)
	}
	s.forget(over)
}

// forget takes breakers out of the table.
func (s *breakers) forget(over []*breaker) {
	if len(over) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	m := maps.Clone(*s.failed.Load()) // they are in it: only this takes any out
	for _, b := range over {
		delete(m, b.ep)
	}
	if len(m) == 0 {
		s.failed.Store(nil)
		return
	}
	s.failed.Store(&m)
}

// configure puts another configuration in force. Without breakers, all close.
func (s *breakers) configure(cfg BreakerConfig) {
	s.cfg.Store(&cfg)
	m := s.failed.Load()
	if cfg.Failures > 0 || m == nil {
		return
	}
	for _, b := range *m {
		b.reset("breakers are off")
		s.tell(b)
	}
}

// reset closes an endpoint's breaker.
func (s *breakers) reset(ep Endpoint, reason string) {
	if b := s.of(ep); b != nil {
		b.reset(reason)
		s.tell(b)
	}
}

// counts tells how many breakers are in each state.
func (s *breakers) counts() (n [breakerStates]int64) {
	if m := s.failed.Load(); m != nil {
		for _, b := range *m {
			n[b.standing()]++
		}
	}
	return n
}

// tell hands on and counts the changes of a breaker that are due.
func (s *breakers) tell(b *breaker) {
	b.tell(func(c change) {
		s.changed[c.to].Add(1)
		if fn := s.told.Load(); fn != nil {
			(*fn)(b.ep.String(), c.to == breakerOpen, c.reason)
		}
	})
}

// verdictOf judges the end of a call by its error or, without one, its status.
func verdictOf(err *Error, status int) verdict {
	switch {
	case err != nil && (err.Cancelled || err.Local() || err.Phase == PhasePrepare):
		return verdictNone
	case err != nil:
		return verdictFailure
	case status < fasthttp.StatusBadRequest:
		return verdictSuccess
	case FailedBy(status):
		return verdictFailure
	}
	return verdictNone
}

// FailedBy tells whether an answer's status says that the worker is not well: a
// 5xx, but for 503, by which a full one refuses, and 501 and 505, which are about
// the request.
func FailedBy(status int) bool {
	switch status {
	case fasthttp.StatusNotImplemented, fasthttp.StatusServiceUnavailable, fasthttp.StatusHTTPVersionNotSupported:
		return false
	}
	return status >= fasthttp.StatusInternalServerError
}

func reasonOf(err *Error, status int) string {
	if err != nil {
		return err.Phase.String() + ": " + err.Err.Error()
	}
	return "status " + strconv.Itoa(status)
}
