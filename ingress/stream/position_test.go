package stream_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/routerd/routerd/ingress/stream"
)

// A stream that goes on from a kept position is as one whose publisher reconnects, and is trusted only once the publisher
// has proven to be the one from before.
func TestAStreamGoesOnFromAPosition(t *testing.T) {
	run(t, true, []scene{
		{"nothing is heard", "up end 0 1 again", "ask 0 0:p0 1:p1 again", want{state: "connecting", last: 1}},
		{"the same engine", "up end 0 1 again up a:1 a:2 end 3", "ask 0 0:p0 1:p1 again ask 1 2:p2 3:p3", want{state: "live", trusted: true, last: 3}},
		{"the same engine, nothing new", "up end 0 1 again up a:1 end", "ask 0 0:p0 1:p1 again ask 1", want{state: "live", trusted: true, last: 1}},
		{"while the answer is awaited", "up end 0 1 again up 2", "ask 0 0:p0 1:p1 again ask 1", want{state: "resync", last: 1}},
		{"a message before the connection is told", "up end 0 1 again 3 up a:1 a:2 a:3 end", "ask 0 0:p0 1:p1 again ask 1 2:p2 3:p3", want{state: "live", trusted: true, last: 3}},
		{"a message far ahead", "up end 0 1 again up 9 a:1 a:2 a:3 a:4 a:5 a:6 a:7 a:8 a:9 end", "ask 0 0:p0 1:p1 again ask 1 2:p2 3:p3 4:p4 5:p5 6:p6 7:p7 8:p8 9:p9", want{state: "live", trusted: true, last: 9}},
		{"another payload", "up end 0 1 again up a:1:n a:0:n a:1:n a:2:n end 3:n", "ask 0 0:p0 1:p1 again ask 1 clear ask 0 0:n 1:n 2:n 3:n", want{state: "live", trusted: true, last: 3, starts: 1}},
		{"the number is missing", "up end 0 1 2 again up end a:0:n end 1:n", "ask 0 0:p0 1:p1 2:p2 again ask 2 clear ask 0 0:n 1:n", want{state: "live", trusted: true, last: 1, starts: 1}},
		{"the number is trimmed away", "up end 0 1 again up a:8 a:8 end", "ask 0 0:p0 1:p1 again ask 1 clear ask 0 8:p8", want{state: "degraded", reason: "started_after_requested", last: 8, starts: 1, failed: "started_after_requested"}},
		{"no answer, then one", "up end 0 1 again up +2s 2 +1s a:1 a:2 end", "ask 0 0:p0 1:p1 again ask 1 2:p2 ask 2", want{state: "live", trusted: true, last: 2, failed: "no_answer"}},
		{"no answer at all", "up end 0 1 again up +2s +1s +2s +2s +2s +4s 2", "ask 0 0:p0 1:p1 again ask 1 ask 1 ask 1 2:p2", want{state: "degraded", reason: "no_answer", last: 2, failed: "no_answer"}},
		{"no answer, a clear heals", "up end 0 1 again up +2s +1s +2s +2s +2s 2:clear", "ask 0 0:p0 1:p1 again ask 1 ask 1 ask 1 2:clear", want{state: "live", trusted: true, last: 2, failed: "no_answer"}},
		{"a later reconnect is no doubt", "up end 0 1 again up a:1 end down up", "ask 0 0:p0 1:p1 again ask 1 ask 1", want{state: "resync", trusted: true, last: 1}},
		{"twice", "up end 0 1 again again up a:1 end", "ask 0 0:p0 1:p1 again again ask 1", want{state: "live", trusted: true, last: 1}},
		{"what was passed over is asked for", "up end 0 3 +2s again up a:3 a:4 end +1s a:1 a:2 a:3 a:4 end", "ask 0 0:p0 ask 1 3:p3 again ask 3 4:p4 ask 1 1:p1 2:p2 3:p3 4:p4", want{state: "live", trusted: true, last: 4, failed: "no_answer"}},
		{"what is lost stays so", "up end 0 1:bad again up a:1:bad end 2", "ask 0 0:p0 1:bad again ask 1 2:p2", want{state: "degraded", reason: "unknown_parent", last: 2}},
		{"what is lost stays so, until a clear", "up end 0 1:bad again up a:1:bad end 2 3:clear", "ask 0 0:p0 1:bad again ask 1 2:p2 3:clear", want{state: "live", trusted: true, last: 3}},
		{"in the middle of the first replay", "up a:0 a:1 again up a:1 a:2 end 3", "ask 0 0:p0 1:p1 again ask 1 2:p2 3:p3", want{state: "live", trusted: true, last: 3}},
		{"in the middle of a gap", "up end 0 3 a:1 again up a:1 a:2 a:3 end 4", "ask 0 0:p0 ask 1 1:p1 again ask 1 2:p2 3:p3 4:p4", want{state: "live", trusted: true, last: 4}},
		{"the stretch before was late", "up a:7 end 8 again up a:8 end 9", "ask 0 7:p7 8:p8 again ask 8 9:p9", want{state: "degraded", reason: "started_after_requested", last: 9, failed: "started_after_requested"}},
		{"an old message is known", "up end 0 1 2 again up a:2 end 1", "ask 0 0:p0 1:p1 2:p2 again ask 2", want{state: "live", trusted: true, last: 2, dups: 1}},
		{"from one", "one up end 1 2 again up a:2 end 3", "ask 0 1:p1 2:p2 again ask 2 3:p3", want{state: "live", trusted: true, last: 3}},
	})
}

func TestWithoutReplayAPositionKeepsTheBlocksButNotTheTrust(t *testing.T) {
	run(t, false, []scene{
		{"nothing is heard", "up 0 1 again", "0:p0 1:p1 again", want{state: "connecting", last: 1}},
		{"the next message", "up 0 1 again up 2", "0:p0 1:p1 again 2:p2", want{state: "degraded", reason: "reconnect_without_replay", last: 2}},
		{"a clear heals", "up 0 1 again up 2:clear", "0:p0 1:p1 again 2:clear", want{state: "live", trusted: true, last: 2}},
		{"a number that is not above the last", "up 0 1 2 again up 1:n", "0:p0 1:p1 2:p2 again clear 1:n", want{state: "degraded", reason: "joined_late", last: 1, starts: 1}},
		{"an engine that begins anew", "up 0 1 again up 0:n 1:n", "0:p0 1:p1 again clear 0:n 1:n", want{state: "live", trusted: true, last: 1, starts: 1}},
	})
}

// What nothing was heard of has no position, nor has one that may have restarted just now.
func TestAStreamWithoutAPosition(t *testing.T) {
	var r recorder
	s, now := stream.New(config(), true, &r), time.Unix(1000, 0)
	if _, ok := s.Position(); ok {
		t.Error("a stream that heard nothing has a position")
	}
	s.Connected(now)
	s.AnswerEnd(now)
	s.Live(0, []byte("a"), now)
	if _, ok := s.Position(); !ok {
		t.Error("no position after a message")
	}
	s.Live(0, []byte("b"), now) // restarted
	s.Answer(0, []byte("a"), now)
	s.AnswerEnd(now)
	if st := s.Status(); st.Reason != stream.LossDoubt {
		t.Fatalf("status %+v", st)
	}
	if _, ok := s.Position(); ok {
		t.Error("a stream in doubt has a position")
	}
}

// keptPosition is the position of a stream that has applied n messages, in bytes.
func keptPosition(t testing.TB, n int) []byte {
	t.Helper()
	var r recorder
	s, now := stream.New(config(), false, &r), time.Unix(1000, 0)
	for i := range n {
		s.Live(uint64(i), []byte("payload"), now)
	}
	at, _ := s.Position()
	b, err := at.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestAPositionThatIsNoneIsRefused(t *testing.T) {
	whole := keptPosition(t, 3)
	for n := range whole {
		var p stream.Position
		if err := p.UnmarshalBinary(whole[:n]); err == nil {
			t.Errorf("%d of %d bytes are taken", n, len(whole))
		}
	}
	sum := "........"
	for text, says := range map[string]string{
		"\x08\x00\x00":                          "the flags are 0x8",
		"\x04\x05\x00\x00\x00":                  "the reason of a loss is empty",
		"\x02\x05\x00\x00\x63\x00":              "99 where at most 8 is allowed",
		"\x00\x05\x83\x08":                      "1027 where at most 1026 is allowed",
		"\x00\x05\x02\x05" + sum + "\x00" + sum: "do not ascend",
		"\x00\x05\x02\x05" + sum + "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01" + sum: "do not ascend",
	} {
		var p stream.Position
		if err := p.UnmarshalBinary([]byte(text)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: got %v, want %q", text, err, says)
		}
	}
	var p stream.Position
	if err := p.UnmarshalBinary(append(bytes.Clone(whole), 0)); err == nil || !strings.Contains(err.Error(), "1 bytes too many") {
		t.Errorf("a byte too much: got %v", err)
	}
}

// The digests of the last 1,024 messages and of numbers 0 and 1 are in it, and no more.
func TestAPositionIsBounded(t *testing.T) {
	if got := len(keptPosition(t, 5000)); got < 8*1026 || got > 10*1026 {
		t.Errorf("%d bytes", got)
	}
}

func FuzzPosition(f *testing.F) {
	f.Add(keptPosition(f, 1))
	f.Add(keptPosition(f, 1030))
	f.Fuzz(func(t *testing.T, b []byte) {
		var p stream.Position
		if p.UnmarshalBinary(b) != nil {
			return
		}
		again, err := p.MarshalBinary()
		var q stream.Position
		if err != nil || q.UnmarshalBinary(again) != nil {
			t.Fatalf("%x is written as %x, which cannot be read: %v", b, again, err)
		}
		var r recorder
		s := stream.New(config(), true, &r)
		s.Resume(p)
		s.Connected(time.Unix(1000, 0))
		s.Live(p.Last()+1, []byte("x"), time.Unix(1000, 0))
		s.AnswerEnd(time.Unix(1000, 0))
	})
}
