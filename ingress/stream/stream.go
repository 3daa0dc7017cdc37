package stream

import (
	"bytes"
	"time"
)

// Config bounds a stream's replays.
type Config struct {
	// ReplayTimeout is how long an answer may stay silent before it counts as incomplete. A whole one may take 60 times
	// as long.
	ReplayTimeout time.Duration
	// RetryMin and RetryMax bound the delay before an incomplete replay is asked for again; it doubles each time.
	RetryMin, RetryMax time.Duration
	// Tries is how many replays in a row may bring nothing new before the missing numbers are given up.
	Tries int
	// FromOne tells that the publisher numbers its messages from 1, not from 0, so that one that begins with 1 lost
	// nothing.
	FromOne bool
	// MaxMessages and MaxBytes bound the live messages that are kept while an answer is awaited, and MaxBytes what a
	// repair gathers, with some bytes for each message.
	MaxMessages, MaxBytes int
}

// Outcome is what applying a message did.
type Outcome struct {
	// Cleared is set when the engine dropped all its blocks, so that what was missed before does not matter.
	Cleared bool
	// Loss, when not empty, says why the index no longer equals the engine's cache.
	Loss string
}

// Port is what a Stream acts on. Its methods are called from within the stream's own.
type Port interface {
	// Apply applies a message. The payload is the caller's again afterwards.
	Apply(seq uint64, payload []byte) Outcome
	// Clear drops everything that the stream's messages stored.
	Clear()
	// Ask asks the publisher for its messages from a number on; an earlier question is void.
	Ask(from uint64)
	// EndAsk says that no more answers are wanted.
	EndAsk()
}

type message struct {
	seq     uint64
	payload []byte
}

// copied is a message to keep.
func copied(seq uint64, payload []byte) *message { return &message{seq, bytes.Clone(payload)} }

// purpose is why a replay was asked for.
type purpose uint8

const (
	idle    purpose = iota // no replay is running
	join                   // all there is, into an empty state
	gap                    // what is missing, in order
	verify                 // the last applied number, to see whether the engine is the same
	restart                // all there is, after the engine came back
	repair                 // a stretch that was passed over, collected before it is applied
)

// Stream is the state of one publisher's message stream. Make one with New.
type Stream struct {
	cfg    Config
	port   Port
	replay bool // the publisher can be asked

	connected, everConnected bool
	implied                  bool // connected by a message, the report is still to come
	suspect                  bool // reconnected, and not yet known to be the same engine
	resumed                  bool // taken over, and not yet known to be the same engine; see Resume

	has      bool // a message was applied since the engine started
	last     uint64
	kept     digests
	noted    uint64 // up to here missing numbers were counted
	complete bool   // the state began with the engine's first message or a clear

	asking    purpose
	blind     bool      // the running replay was asked for before any live message waited
	answered  int       // answers to it
	first     uint64    // the first of them
	hole      bool      // an answer skipped numbers
	next      uint64    // the number that a verify or repair replay needs next
	deadline  time.Time // when the replay has been silent for too long
	endBy     time.Time // when the replay has taken too long
	live      []message // live messages that wait for the replay
	liveBytes int
	passing   bool // the waiting messages are handed on after a replay that failed

	missing      bool // numbers from repairFrom on were passed over
	repairFrom   uint64
	missingCount uint64
	refeed       []message // a contiguous stretch from repairFrom on
	refeedBytes  int
	retryAt      time.Time
	tries        int    // failed replays in a row that brought nothing
	attempts     int    // failed replays since all was well
	offered      uint64 // where the last answer began that began too late

	loss    string // what is lost for good
	lossSeq uint64

	olderSeq uint64 // the last older number whose payload was not known
	olderSet bool

	restarts int       // replays of restarts, each soon after the one before
	calmAt   time.Time // when the next one may be asked for
	doubt    *message  // a message that waits for calmAt to be taken for a restart

	counts Counts
}

// New returns the stream of a publisher that nothing has been heard of. replay tells that it can be asked.
func New(cfg Config, replay bool, port Port) *Stream {
	return &Stream{cfg: cfg, port: port, replay: replay}
}

// Connected reports that the connection is up. Again after Disconnected, or without it, it is a reconnect.
func (s *Stream) Connected(now time.Time) {
	if s.implied {
		s.implied = false // a message came before this report
		return
	}
	again := s.everConnected || s.resumed
	s.connected, s.everConnected = true, true
	if again && s.asking != idle {
		s.fail(s.silence(), now) // what waited belongs to the connection before
	}
	switch {
	case s.replay && !s.has:
		s.ask(join, 0, now)
	case again && s.replay:
		s.suspect = true
		s.ask(verify, s.last, now)
	case again && s.has:
		s.suspect = true
		s.lose(s.last, LossReconnect)
	}
}

// Disconnected reports that the connection is down.
func (s *Stream) Disconnected() { s.connected, s.implied = false, false }

// Live reports a live message. The payload is the caller's again afterwards.
func (s *Stream) Live(seq uint64, payload []byte, now time.Time) {
	if !s.everConnected {
		s.Connected(now)
		s.implied = true
	}
	if s.asking == idle {
		s.take(seq, payload, now)
		return
	}
	s.wait(seq, payload)
	if len(s.live) > s.cfg.MaxMessages || s.liveBytes > s.cfg.MaxBytes {
		s.fail(BufferFull, now)
	}
}

// Tick reports the time. It must be called no later than Deadline.
func (s *Stream) Tick(now time.Time) {
	switch {
	case s.asking != idle && !now.Before(s.deadline):
		s.fail(s.silence(), now)
	case s.asking == idle && !s.retryAt.IsZero() && !now.Before(s.retryAt):
		s.retry(now)
	case s.asking == idle && s.doubt != nil && !now.Before(s.calmAt):
		s.restarted(s.doubt.seq, s.doubt.payload, now)
	}
}

// Deadline returns when Tick has something to do, or the zero time.
func (s *Stream) Deadline() time.Time {
	if s.asking != idle {
		return s.deadline
	}
	if s.doubt != nil && (s.retryAt.IsZero() || s.calmAt.Before(s.retryAt)) {
		return s.calmAt
	}
	return s.retryAt
}

// take handles a live message while no replay is running.
func (s *Stream) take(seq uint64, payload []byte, now time.Time) {
	switch {
	case !s.has && s.replay && seq > s.least() && s.retryAt.IsZero() && !s.passing && !s.missing:
		s.wait(seq, payload) // what came before it may have been sent before the subscription was there
		s.ask(join, 0, now)
	case !s.has:
		s.begin(seq)
		s.accept(seq, payload)
	case seq == s.last+1:
		s.accept(seq, payload)
	case seq > s.last:
		s.skipTo(seq, payload, now)
	default:
		s.older(seq, payload, now)
	}
}

// begin judges the first number of a stream that was not replayed.
func (s *Stream) begin(seq uint64) {
	switch {
	case seq == 0:
		s.complete, s.loss = true, ""
		s.endRepair()
	case s.missing:
	case seq <= s.least():
		s.complete = true
	default:
		s.lose(seq, LossJoinedLate)
	}
}

// least is the number of a publisher's first message.
func (s *Stream) least() uint64 {
	if s.cfg.FromOne {
		return 1
	}
	return 0
}

// skipTo handles a gap before seq.
func (s *Stream) skipTo(seq uint64, payload []byte, now time.Time) {
	lack := seq - s.last - 1
	if from := max(s.last, s.noted); from < seq-1 {
		s.counts.Gaps += seq - 1 - from
		s.noted = seq - 1
	}
	switch {
	case !s.replay, s.passing && s.retryAt.IsZero():
		s.counts.Lost += lack
		s.lose(seq, LossGap)
	case !s.retryAt.IsZero():
		s.passOver(s.last + 1)
		s.missingCount += lack
	default:
		s.wait(seq, payload)
		s.ask(gap, s.last+1, now)
		return
	}
	s.accept(seq, payload)
}

// wait keeps a live message until the running replay has ended.
func (s *Stream) wait(seq uint64, payload []byte) {
	s.live = append(s.live, *copied(seq, payload))
	s.liveBytes += len(payload)
}

// older handles a number that is not above the last applied one.
func (s *Stream) older(seq uint64, payload []byte, now time.Time) {
	same, known := s.kept.equal(seq, payload)
	switch {
	case s.suspect, seq <= 1 && !(known && same):
		s.restarted(seq, payload, now)
		return
	case !known || !same:
		if s.olderSet && seq == s.olderSeq+1 {
			s.restarted(seq, payload, now)
			return
		}
		s.olderSeq, s.olderSet = seq, true
		if known && s.replay {
			s.contradicted(seq, payload, now)
		}
	}
	s.counts.Duplicates++
}

// contradicted handles a second payload under a number that was applied. One of the two is from before a restart: a
// message that was still on its way then may continue the numbers of the new life.
func (s *Stream) contradicted(seq uint64, payload []byte, now time.Time) {
	if now.Before(s.calmAt) {
		s.doubt = copied(seq, payload)
		return
	}
	s.suspect = true
	s.ask(verify, s.last, now)
}

// restarted begins anew with a message of the engine that came back, or later if it came back just before.
func (s *Stream) restarted(seq uint64, payload []byte, now time.Time) {
	if s.replay && now.Before(s.calmAt) {
		s.doubt = copied(seq, payload)
		return
	}
	s.forget()
	if s.replay {
		s.wait(seq, payload)
		s.askRestart(now)
		return
	}
	s.take(seq, payload, now)
}

// forget drops all that the engine before its restart sent.
func (s *Stream) forget() {
	s.counts.Restarts++
	s.port.Clear()
	s.has, s.last, s.noted, s.kept = false, 0, 0, digests{}
	s.complete = false
	s.trust()
	s.loss, s.lossSeq = "", 0
	s.olderSet, s.doubt = false, nil
	s.endRepair()
}

// trust ends the suspicion that the engine is another one than before.
func (s *Stream) trust() { s.suspect, s.resumed = false, false }

// accept applies a message and makes it the last one.
func (s *Stream) accept(seq uint64, payload []byte) {
	s.has, s.last = true, seq
	s.olderSet = false
	if !s.replay {
		s.trust()
	}
	s.kept.keep(seq, payload)
	s.apply(seq, payload)
}

func (s *Stream) apply(seq uint64, payload []byte) {
	s.counts.Applied++
	out := s.port.Apply(seq, payload)
	if out.Cleared {
		s.complete, s.loss, s.hole = true, "", false
		if s.missing && s.repairFrom <= seq && s.asking != repair {
			s.endRepair()
		}
	}
	if out.Loss != "" {
		s.lose(seq, out.Loss)
	}
}

func (s *Stream) lose(seq uint64, reason string) {
	s.loss, s.lossSeq = reason, seq
}
