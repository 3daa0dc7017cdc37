package stream

import (
	"time"
	"unsafe"

	"github.com/routerd/routerd/internal/backoff"
)

// maxAttempts bounds the failed replays in a row, whatever they bring.
const maxAttempts = 64

// maxTimeouts bounds a whole replay, however busily its answers come, in multiples of Config.ReplayTimeout.
const maxTimeouts = 60

// ask starts a replay.
func (s *Stream) ask(why purpose, from uint64, now time.Time) {
	s.asking, s.answered, s.hole = why, 0, false
	s.blind = len(s.live) == 0
	s.next = from
	s.endBy = now.Add(maxTimeouts * s.cfg.ReplayTimeout)
	s.deadline = now.Add(s.cfg.ReplayTimeout)
	s.retryAt = time.Time{}
	if why == join || why == restart {
		s.missing, s.missingCount, s.refeed, s.refeedBytes = false, 0, nil, 0
	}
	s.counts.Asked++
	s.port.Ask(from)
}

// askRestart starts the replay of an engine that came back, and holds the next one back: a restart that soon follows
// another is more likely a publisher that contradicts itself.
func (s *Stream) askRestart(now time.Time) {
	if now.After(s.calmAt.Add(s.cfg.RetryMax)) {
		s.restarts = 0
	}
	s.restarts++
	s.calmAt = now.Add(backoff.Doubled(s.cfg.RetryMin, s.cfg.RetryMax, s.restarts))
	s.ask(restart, 0, now)
}

// Answer reports a message of the running replay. The payload is the caller's again afterwards.
func (s *Stream) Answer(seq uint64, payload []byte, now time.Time) {
	if s.asking == idle {
		return
	}
	if s.deadline = now.Add(s.cfg.ReplayTimeout); s.deadline.After(s.endBy) {
		s.deadline = s.endBy
	}
	if s.answered++; s.answered == 1 {
		s.first = seq
	}
	switch s.asking {
	case verify:
		s.verify(seq, payload, now)
	case repair:
		s.collect(seq, payload, now)
	default:
		s.replayed(seq, payload)
	}
}

// verify handles the first answer after a reconnect: it must be the message that was applied last.
func (s *Stream) verify(seq uint64, payload []byte, now time.Time) {
	if seq < s.last {
		return
	}
	if same, _ := s.kept.equal(seq, payload); seq == s.last && same {
		s.trust()
		s.asking = gap
		return
	}
	s.forget()
	s.askRestart(now)
}

// replayed handles an answer that goes straight into the state.
func (s *Stream) replayed(seq uint64, payload []byte) {
	if s.has && seq <= s.last {
		if same, known := s.kept.equal(seq, payload); seq > 1 || !known || same {
			return
		}
		s.forget() // the engine restarted and its answer holds both lives
	}
	switch {
	case !s.has && seq > s.least():
		s.hole = true
		s.passOver(0)
	case s.has && seq > s.last+1:
		s.hole = true
		s.passOver(s.last + 1)
		s.missingCount += seq - s.last - 1
	case !s.has:
		s.complete = true
	}
	s.accept(seq, payload)
}

// collect gathers a stretch that was passed over.
func (s *Stream) collect(seq uint64, payload []byte, now time.Time) {
	if seq > s.next {
		s.hole = true
	}
	if s.hole || seq != s.next {
		return
	}
	if same, known := s.kept.equal(seq, payload); known && !same {
		s.forget()
		s.askRestart(now)
		return
	}
	s.refeed = append(s.refeed, *copied(seq, payload))
	s.refeedBytes += len(payload) + int(unsafe.Sizeof(message{})) // a hostile engine answers with nothing, without end
	s.next++
	s.tries = 0
	if s.refeedBytes > s.cfg.MaxBytes {
		s.fail(TooLarge, now)
	}
}

// AnswerEnd reports the end mark of the running replay.
func (s *Stream) AnswerEnd(now time.Time) {
	switch s.asking {
	case idle:
	case verify:
		s.forget()
		s.askRestart(now)
	case repair:
		s.endCollect(now)
	default:
		s.endReplay(now)
	}
}

// endReplay judges a replay that went straight into the state. One that was asked for blindly may be older than the first
// live message: what came between them is asked for at once.
func (s *Stream) endReplay(now time.Time) {
	switch {
	case s.hole && s.first > s.next && s.first > s.least():
		s.fail(StartedLate, now)
	case s.hole:
		s.fail(NotContiguous, now)
	case s.short() && s.blind:
		s.askOn(now)
	case s.short():
		if s.answered == 0 {
			s.fail(Empty, now)
		} else {
			s.fail(EndedEarly, now)
		}
	default:
		if !s.has {
			s.complete = true // the engine has published nothing yet
		}
		s.done(now)
	}
}

// askOn asks for what follows the last applied message, or for all while there is none.
func (s *Stream) askOn(now time.Time) {
	if s.has {
		s.ask(gap, s.last+1, now)
	} else {
		s.ask(join, 0, now)
	}
}

// short tells whether numbers lack between the last applied and the first live message that waits.
func (s *Stream) short() bool {
	for _, m := range s.live {
		if !s.has {
			return m.seq > s.least()
		}
		if m.seq > s.last {
			return m.seq != s.last+1
		}
	}
	return false
}

// endCollect applies a stretch that was passed over, if it is whole.
func (s *Stream) endCollect(now time.Time) {
	if s.next <= s.last {
		switch {
		case s.answered > 0 && s.first > s.repairFrom+uint64(len(s.refeed)):
			s.fail(StartedLate, now)
		case s.hole:
			s.fail(NotContiguous, now)
		case s.answered == 0:
			s.fail(Empty, now)
		default:
			s.fail(EndedEarly, now)
		}
		return
	}
	if s.loss != "" && s.lossSeq >= s.repairFrom {
		s.loss = ""
	}
	if s.repairFrom <= 1 {
		s.complete = true
	}
	for _, m := range s.refeed {
		if m.seq > s.last {
			s.accept(m.seq, m.payload)
		} else {
			s.apply(m.seq, m.payload)
		}
	}
	s.done(now)
}

// done ends a replay that brought all.
func (s *Stream) done(now time.Time) {
	s.counts.Replays[Complete]++
	was := s.asking
	s.asking = idle
	s.port.EndAsk()
	if was == repair || !s.missing {
		s.endRepair()
	} else {
		s.retryAt = now.Add(backoff.Doubled(s.cfg.RetryMin, s.cfg.RetryMax, s.tries)) // passed over before this replay
	}
	s.flush(was, now)
}

// endRepair forgets that anything was passed over.
func (s *Stream) endRepair() {
	s.missing, s.missingCount = false, 0
	s.refeed, s.refeedBytes = nil, 0
	s.retryAt, s.tries, s.attempts, s.offered = time.Time{}, 0, 0, 0
}

// fail ends a replay that did not bring all. The stream goes on without the rest and asks again later.
func (s *Stream) fail(why Result, now time.Time) {
	was := s.asking
	s.asking = idle
	s.port.EndAsk()
	s.counts.Replays[why]++
	s.counts.LastFailure = why
	switch {
	case was == verify:
	case was == repair:
		s.missing = true
	case s.has:
		s.passOver(s.last + 1)
	default:
		s.passOver(0)
	}
	s.tries++
	s.attempts++
	late := why == StartedLate && s.offered > 0 && s.first >= s.offered
	if why == StartedLate {
		s.offered = s.first
	}
	if late || why == TooLarge || s.tries >= s.cfg.Tries || s.attempts >= maxAttempts {
		s.giveUp(why)
	} else {
		s.retryAt = now.Add(backoff.Doubled(s.cfg.RetryMin, s.cfg.RetryMax, s.tries))
	}
	s.passing = true
	s.flush(was, now)
	s.passing = false
}

// silence is the result of a replay that did not come to its end mark.
func (s *Stream) silence() Result {
	if s.answered == 0 {
		return NoAnswer
	}
	return NoEndMark
}

// giveUp accepts that what is missing cannot be had.
func (s *Stream) giveUp(why Result) {
	s.counts.Lost += s.missingCount
	s.trust()
	s.endRepair()
	s.lose(s.last, why.String())
}

// retry asks again for what is missing.
func (s *Stream) retry(now time.Time) {
	switch {
	case s.suspect:
		s.ask(verify, s.last, now)
	case !s.has:
		s.ask(join, 0, now)
	case s.missing:
		s.ask(repair, s.repairFrom+uint64(len(s.refeed)), now)
	default:
		s.retryAt = time.Time{}
	}
}

// passOver notes that numbers from a number on are missing.
func (s *Stream) passOver(from uint64) {
	if !s.missing || from < s.repairFrom {
		s.missing, s.repairFrom = true, from
		s.refeed, s.refeedBytes = nil, 0
	}
}

// flush hands on the live messages that waited for a replay of a purpose.
func (s *Stream) flush(was purpose, now time.Time) {
	waiting := s.live
	s.live, s.liveBytes = nil, 0
	for _, m := range waiting[s.covered(waiting):] {
		switch {
		case s.asking != idle:
			s.wait(m.seq, m.payload)
		case s.has && was == restart && s.foreign(m):
			s.dispute(m)
		case s.has && m.seq <= s.last && !s.foreign(m):
		default:
			s.take(m.seq, m.payload, now)
		}
	}
}

// covered returns how many messages to leave out because an engine that restarted among them was replayed since.
func (s *Stream) covered(waiting []message) int {
	for i := len(waiting) - 1; i > 0; i-- {
		if m := waiting[i]; m.seq <= 1 && m.seq <= waiting[i-1].seq {
			if same, known := s.kept.equal(m.seq, m.payload); known && same {
				return i
			}
			return 0
		}
	}
	return 0
}

// foreign tells that a message has a first number and is not the one that was applied under it.
func (s *Stream) foreign(m message) bool {
	same, known := s.kept.equal(m.seq, m.payload)
	return m.seq <= 1 && known && !same
}

// dispute handles a first message that waited for the replay of a restart and is not what that replay brought. Asking
// again at once would bring the same again; after some tries the answer stands, and the stream is degraded.
func (s *Stream) dispute(m message) {
	if s.restarts < s.cfg.Tries {
		s.doubt = &m
		return
	}
	s.counts.Duplicates++
	s.lose(s.last, LossDoubt)
}
