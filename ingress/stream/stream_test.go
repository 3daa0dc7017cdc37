package stream_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/ingress/stream"
)

// recorder is a port that writes down what it is told. A payload "clear" clears, "bad" loses something.
type recorder struct{ log []string }

func (r *recorder) Apply(seq uint64, payload []byte) stream.Outcome {
	r.log = append(r.log, fmt.Sprintf("%d:%s", seq, payload))
	switch string(payload) {
	case "clear":
		return stream.Outcome{Cleared: true}
	case "bad":
		return stream.Outcome{Loss: "unknown_parent"}
	}
	return stream.Outcome{}
}
func (r *recorder) Clear()          { r.log = append(r.log, "clear") }
func (r *recorder) Ask(from uint64) { r.log = append(r.log, fmt.Sprintf("ask %d", from)) }
func (r *recorder) EndAsk()         {}

func config() stream.Config {
	return stream.Config{ReplayTimeout: 2 * time.Second, RetryMin: time.Second, RetryMax: 4 * time.Second, Tries: 3, MaxMessages: 100, MaxBytes: 1000}
}

// play runs a script of steps, separated by blanks, and returns what the port was told and the end status. A step is
// one (at its beginning: the publisher counts from 1), up, down, end (of an answer), +DURATION, N or N:payload (live), a:N or a:N:payload (answer), again (another stream goes on from the position of this one). Payload defaults to pN.
func play(t *testing.T, replay bool, script string) (string, stream.Status) {
	t.Helper()
	var r recorder
	cfg := config()
	script, cfg.FromOne = strings.CutPrefix(script, "one ")
	s := stream.New(cfg, replay, &r)
	now := time.Unix(1000, 0)
	for step := range strings.FieldsSeq(script) {
		answer, isAnswer := strings.CutPrefix(step, "a:")
		switch {
		case step == "up":
			s.Connected(now)
		case step == "down":
			s.Disconnected()
		case step == "end":
			s.AnswerEnd(now)
		case step == "again":
			r.log = append(r.log, step)
			s = again(t, s, stream.New(cfg, replay, &r))
		case step[0] == '+':
			d, err := time.ParseDuration(step[1:])
			if err != nil {
				t.Fatal(err)
			}
			now = now.Add(d)
			s.Tick(now)
		default:
			var seq uint64
			text, payload, has := strings.Cut(answer, ":")
			if _, err := fmt.Sscan(text, &seq); err != nil {
				t.Fatalf("step %q: %v", step, err)
			}
			if !has {
				payload = "p" + text
			}
			given := []byte(payload)
			if isAnswer {
				s.Answer(seq, given, now)
			} else {
				s.Live(seq, given, now)
			}
			clear(given) // it was lent
		}
	}
	return strings.Join(r.log, " "), s.Status()
}

// again has a fresh stream go on where another stands, through the bytes of its position.
func again(t *testing.T, from, to *stream.Stream) *stream.Stream {
	t.Helper()
	at, ok := from.Position()
	if !ok {
		t.Fatal("the stream has no position")
	}
	b, err := at.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	var read stream.Position
	if err := read.UnmarshalBinary(b); err != nil {
		t.Fatal(err)
	}
	to.Resume(read)
	return to
}

type want struct {
	state   string
	trusted bool
	reason  string
	last    uint64
	gaps    uint64
	lost    uint64
	dups    uint64
	starts  uint64
	failed  string
}

func check(t *testing.T, replay bool, script, log string, w want) {
	t.Helper()
	gotLog, st := play(t, replay, script)
	if d := cmp.Diff(log, gotLog); d != "" {
		t.Error(d)
	}
	got := want{st.State.String(), st.Trusted, st.Reason, st.LastSeq, st.Counts.Gaps, st.Counts.Lost, st.Counts.Duplicates, st.Counts.Restarts, ""}
	if st.Counts.LastFailure != stream.Complete {
		got.failed = st.Counts.LastFailure.String()
	}
	if d := cmp.Diff(w, got, cmp.AllowUnexported(want{})); d != "" {
		t.Error(d)
	}
}

type scene struct {
	name, script, log string
	want              want
}

func run(t *testing.T, replay bool, scenes []scene) {
	for _, c := range scenes {
		t.Run(c.name, func(t *testing.T) { check(t, replay, c.script, c.log, c.want) })
	}
}

func TestStreamWithoutReplay(t *testing.T) {
	run(t, false, []scene{
		{"nothing heard", "up", "", want{state: "unsynced"}},
		{"from the first number on", "up 0 1 2", "0:p0 1:p1 2:p2", want{state: "live", trusted: true, last: 2}},
		{"engines that count from 1", "one up 1 2", "1:p1 2:p2", want{state: "live", trusted: true, last: 2}},
		{"the first message was missed", "up 1 2", "1:p1 2:p2", want{state: "degraded", reason: "joined_late", last: 2}},
		{"joined late", "up 7 8", "7:p7 8:p8", want{state: "degraded", reason: "joined_late", last: 8}},
		{"K1 gap", "up 0 1 2 5 6", "0:p0 1:p1 2:p2 5:p5 6:p6", want{state: "degraded", reason: "gap", last: 6, gaps: 2, lost: 2}},
		{"a clear heals", "up 0 3 4:clear 5", "0:p0 3:p3 4:clear 5:p5", want{state: "live", trusted: true, last: 5, gaps: 2, lost: 2}},
		{"a loss in a message", "up 0 1:bad 2", "0:p0 1:bad 2:p2", want{state: "degraded", reason: "unknown_parent", last: 2}},
		{"K2 restart by a fall to 0", "up 0 1 2 0:new 1:new", "0:p0 1:p1 2:p2 clear 0:new 1:new", want{state: "live", trusted: true, last: 1, starts: 1}},
		{"restart by a fall to 1", "one up 1 2 3 1:new 2:new", "1:p1 2:p2 3:p3 clear 1:new 2:new", want{state: "live", trusted: true, last: 2, starts: 1}},
		{"a fall to a first number never seen", "up 5 6 0", "5:p5 6:p6 clear 0:p0", want{state: "live", trusted: true, starts: 1}},
		{"the same first message again is a duplicate", "up 0 1 2 0 1 3", "0:p0 1:p1 2:p2 3:p3", want{state: "live", trusted: true, last: 3, dups: 2}},
		{"a single older number is a late duplicate", "up 0 1 2 3 4 2:other 5", "0:p0 1:p1 2:p2 3:p3 4:p4 5:p5", want{state: "live", trusted: true, last: 5, dups: 1}},
		{"older numbers in a row with other payloads are a restart", "up 0 1 2 3 4 2:x 3:x 4:x", "0:p0 1:p1 2:p2 3:p3 4:p4 clear 3:x 4:x", want{state: "degraded", reason: "joined_late", last: 4, dups: 1, starts: 1}},
		{"reconnect degrades", "up 0 1 down up 2", "0:p0 1:p1 2:p2", want{state: "degraded", reason: "reconnect_without_replay", last: 2}},
		{"reconnect and a number not above the last", "up 0 1 2 down up 0 1", "0:p0 1:p1 2:p2 clear 0:p0 1:p1", want{state: "live", trusted: true, last: 1, starts: 1}},
		{"reconnect and a middle number", "up 0 1 2 3 down up 2", "0:p0 1:p1 2:p2 3:p3 clear 2:p2", want{state: "degraded", reason: "joined_late", last: 2, starts: 1}},
		{"down", "up 0 down", "0:p0", want{state: "disconnected", trusted: true}},
	})
}

func TestStreamWithReplay(t *testing.T) {
	run(t, true, []scene{
		{"a worker that joins is replayed", "up 2 a:0 a:1 a:2 end 3", "ask 0 0:p0 1:p1 2:p2 3:p3", want{state: "live", trusted: true, last: 3}},
		{"a message before the report of its connection", "2 up a:0 a:1 end 3", "ask 0 0:p0 1:p1 2:p2 3:p3", want{state: "live", trusted: true, last: 3}},
		{"an engine that published nothing", "up end 0", "ask 0 0:p0", want{state: "live", trusted: true}},
		{"an answer from before the first live message", "up 4 a:0 a:1 end 5 a:2 a:3 a:4 a:5 end 6", "ask 0 0:p0 1:p1 ask 2 2:p2 3:p3 4:p4 5:p5 6:p6", want{state: "live", trusted: true, last: 6}},
		{"an empty answer from before the first live message", "up 2 end a:0 a:1 a:2 end", "ask 0 ask 0 0:p0 1:p1 2:p2", want{state: "live", trusted: true, last: 2}},
		{"what was not there again is not asked for at once", "up 4 a:0 a:1 end a:2 end +900ms 5", "ask 0 0:p0 1:p1 ask 2 2:p2 4:p4 5:p5", want{state: "degraded", reason: "ended_before_target", last: 5, gaps: 1, failed: "ended_before_target"}},
		{"an answer that ends before the message it was asked for", "up end 0 4 a:1 end 5", "ask 0 0:p0 ask 1 1:p1 4:p4 5:p5", want{state: "degraded", reason: "ended_before_target", last: 5, gaps: 3, failed: "ended_before_target"}},
		{"reconnect, an answer from before the first live message", "up end 0 1 2 down up 5 a:2 a:3 end a:4 a:5 end 6", "ask 0 0:p0 1:p1 2:p2 ask 2 3:p3 ask 4 4:p4 5:p5 6:p6", want{state: "live", trusted: true, last: 6}},
		{"reconnect, an answer from before the first live message of another engine", "up end 0 1 2 down up a:2:n 3:n a:0:n a:1:n end a:2:n a:3:n end", "ask 0 0:p0 1:p1 2:p2 ask 2 clear ask 0 0:n 1:n ask 2 2:n 3:n", want{state: "live", trusted: true, last: 3, starts: 1}},
		{"while the first replay runs", "up a:0 4", "ask 0 0:p0", want{state: "syncing"}},
		{"K3 gap", "up end 0 1 2 8 a:3 a:4 a:5 9 a:6 a:7 a:8 end 10", "ask 0 0:p0 1:p1 2:p2 ask 3 3:p3 4:p4 5:p5 6:p6 7:p7 8:p8 9:p9 10:p10", want{state: "live", trusted: true, last: 10, gaps: 5}},
		{"K4 answer begins late", "up end 0 1 2 8 a:6 a:7 a:8 end 9", "ask 0 0:p0 1:p1 2:p2 ask 3 6:p6 7:p7 8:p8 9:p9", want{state: "degraded", reason: "started_after_requested", last: 9, gaps: 5, failed: "started_after_requested"}},
		{"K4 answer begins late twice", "up end 0 1 2 8 a:6 a:7 a:8 end 9 +1s a:6 a:7 a:8 a:9 end 10", "ask 0 0:p0 1:p1 2:p2 ask 3 6:p6 7:p7 8:p8 9:p9 ask 3 10:p10", want{state: "degraded", reason: "started_after_requested", last: 10, gaps: 5, lost: 3, failed: "started_after_requested"}},
		{"K4 answer without an end mark", "up end 0 1 2 8 a:3 a:4 +2s 9", "ask 0 0:p0 1:p1 2:p2 ask 3 3:p3 4:p4 8:p8 9:p9", want{state: "degraded", reason: "no_end_mark", last: 9, gaps: 5, failed: "no_end_mark"}},
		{"K4 no answer", "up end 0 1 4 5 +2s 6", "ask 0 0:p0 1:p1 ask 2 4:p4 5:p5 6:p6", want{state: "degraded", reason: "no_answer", last: 6, gaps: 2, failed: "no_answer"}},
		{"K4 the next try keeps a back-off", "up end 0 3 +2s 4 +900ms 5", "ask 0 0:p0 ask 1 3:p3 4:p4 5:p5", want{state: "degraded", reason: "no_answer", last: 5, gaps: 2, failed: "no_answer"}},
		{"a later try repairs in order", "up end 0 3 +2s 4 +1s 5 a:1 a:2 a:3 a:4 a:5 end 6", "ask 0 0:p0 ask 1 3:p3 4:p4 ask 1 1:p1 2:p2 3:p3 4:p4 5:p5 6:p6", want{state: "live", trusted: true, last: 6, gaps: 2, failed: "no_answer"}},
		{"a repair with a hole goes on where it stopped", "up end 0 3 +2s +1s a:1 a:3 end 4 +1s a:2 a:3 a:4 end", "ask 0 0:p0 ask 1 3:p3 ask 1 4:p4 ask 2 1:p1 2:p2 3:p3 4:p4", want{state: "live", trusted: true, last: 4, gaps: 2, failed: "non_contiguous"}},
		{"tries are bounded", "up end 0 3 +2s +1s +2s +2s +2s +4s 4", "ask 0 0:p0 ask 1 3:p3 ask 1 ask 1 4:p4", want{state: "degraded", reason: "no_answer", last: 4, gaps: 2, lost: 2, failed: "no_answer"}},
		{"holes inside the first answer", "up a:0 a:1 a:4 a:5 end 6 +1s a:2 a:3 a:4 a:5 a:6 end", "ask 0 0:p0 1:p1 4:p4 5:p5 6:p6 ask 2 2:p2 3:p3 4:p4 5:p5 6:p6", want{state: "live", trusted: true, last: 6, failed: "non_contiguous"}},
		{"the first message was missed after an empty answer", "up end 1 a:0 a:1 end 2", "ask 0 ask 0 0:p0 1:p1 2:p2", want{state: "live", trusted: true, last: 2}},
		{"the first message is not to be had", "up end 1 a:1 end 2", "ask 0 ask 0 1:p1 2:p2", want{state: "degraded", reason: "started_after_requested", last: 2, failed: "started_after_requested"}},
		{"a short buffer at join", "up a:7 a:8 end 9", "ask 0 7:p7 8:p8 9:p9", want{state: "degraded", reason: "started_after_requested", last: 9, failed: "started_after_requested"}},
		{"a clear makes a repair needless", "up a:7 a:8 end 9:clear +1s 10", "ask 0 7:p7 8:p8 9:clear 10:p10", want{state: "live", trusted: true, last: 10, failed: "started_after_requested"}},
		{"losses inside what is repaired are judged again", "up end 0 3:bad +2s +1s a:1 a:2 a:3:bad end", "ask 0 0:p0 ask 1 3:bad ask 1 1:p1 2:p2 3:bad", want{state: "degraded", reason: "unknown_parent", last: 3, gaps: 2, failed: "no_answer"}},
		{"a late message of the life before that continues the new numbers", "up a:0:n a:1:n end 2:old 2:n a:2:n a:0:n a:1:n a:2:n end 3:n", "ask 0 0:n 1:n 2:old ask 2 clear ask 0 0:n 1:n 2:n 3:n", want{state: "live", trusted: true, last: 3, dups: 1, starts: 1}},
		{"the same soon after a restart", "up end 0 1 0:n a:0:n a:1:n end 2:old 2:n +1s a:0:n a:1:n a:2:n end 3:n", "ask 0 0:p0 1:p1 clear ask 0 0:n 1:n 2:old clear ask 0 0:n 1:n 2:n 3:n", want{state: "live", trusted: true, last: 3, dups: 1, starts: 2}},
		{"a late message of the life before under an applied number", "up a:0 a:1 a:2 a:3 end 2:old a:3 end 4", "ask 0 0:p0 1:p1 2:p2 3:p3 ask 3 4:p4", want{state: "live", trusted: true, last: 4, dups: 1}},
		{"restart by a fall", "up end 0 1 2 0:n 1:n a:0:n a:1:n a:2:n end 3:n", "ask 0 0:p0 1:p1 2:p2 clear ask 0 0:n 1:n 2:n 3:n", want{state: "live", trusted: true, last: 3, starts: 1}},
		{"an answer that holds both lives", "up 0 1 0:n a:0 a:1 a:0:n end 1:n", "ask 0 0:p0 1:p1 clear 0:n 1:n", want{state: "live", trusted: true, last: 1, starts: 1}},
		{"a restart that waited behind a replay", "up 0 1 0:n a:0 a:1 end a:0:n end", "ask 0 0:p0 1:p1 clear ask 0 0:n", want{state: "live", trusted: true, starts: 1}},
		{"reconnect, same engine", "up end 0 1 2 down up a:2 a:3 end 4", "ask 0 0:p0 1:p1 2:p2 ask 2 3:p3 4:p4", want{state: "live", trusted: true, last: 4}},
		{"reconnect, late live messages are skipped", "up end 0 1 2 down up 2 3 a:2 a:3 end 4", "ask 0 0:p0 1:p1 2:p2 ask 2 3:p3 4:p4", want{state: "live", trusted: true, last: 4}},
		{"reconnect, other payload", "up end 0 1 2 down up 3:n a:2:n a:0:n a:1:n a:2:n a:3:n end 4:n", "ask 0 0:p0 1:p1 2:p2 ask 2 clear ask 0 0:n 1:n 2:n 3:n 4:n", want{state: "live", trusted: true, last: 4, starts: 1}},
		{"reconnect, number missing", "up end 0 1 2 down up end 0:n a:0:n end 1:n", "ask 0 0:p0 1:p1 2:p2 ask 2 clear ask 0 0:n 1:n", want{state: "live", trusted: true, last: 1, starts: 1}},
		{"reconnect, number trimmed away", "up end 0 1 2 down up a:9 a:9 end", "ask 0 0:p0 1:p1 2:p2 ask 2 clear ask 0 9:p9", want{state: "degraded", reason: "started_after_requested", last: 9, starts: 1, failed: "started_after_requested"}},
		{"reconnect, no answer, asked again", "up end 0 1 down up +2s 2 +1s a:2 end", "ask 0 0:p0 1:p1 ask 1 2:p2 ask 2", want{state: "live", trusted: true, last: 2, failed: "no_answer"}},
		{"reconnect, no answer", "up end 0 1 down up +2s", "ask 0 0:p0 1:p1 ask 1", want{state: "degraded", reason: "no_answer", last: 1, failed: "no_answer"}},
		{"reconnect in the middle of a replay", "up end 0 3 down up a:3 end 4 +1s a:1 a:2 a:3 a:4 end", "ask 0 0:p0 ask 1 3:p3 ask 3 4:p4 ask 1 1:p1 2:p2 3:p3 4:p4", want{state: "live", trusted: true, last: 4, gaps: 2, failed: "no_answer"}},
		{"the first connection failed to answer, the engine begins", "up +2s 0 1", "ask 0 0:p0 1:p1", want{state: "live", trusted: true, last: 1, failed: "no_answer"}},
	})
}

func TestAReplayThatContradictsTheLiveMessageIsNotAskedForInARow(t *testing.T) {
	run(t, true, []scene{
		{"nothing is asked before the delay", "up end 0 0:x a:0:y end +900ms 1", "ask 0 0:p0 clear ask 0 0:y 1:p1", want{state: "degraded", reason: "restart_in_doubt", last: 1, starts: 1}},
		{"the first replay differs", "up a:0:y end 0:x a:0:y end", "ask 0 0:y clear ask 0 0:y", want{state: "degraded", reason: "restart_in_doubt", starts: 1}},
		{"the message waited for the first replay", "up 0:x a:0:y end a:0:y end", "ask 0 0:y clear ask 0 0:y", want{state: "degraded", reason: "restart_in_doubt", starts: 1}},
		{"number 1 differs as well", "one up end 1 2 1:x a:1:y a:2:y end", "ask 0 1:p1 2:p2 clear ask 0 1:y 2:y", want{state: "degraded", reason: "restart_in_doubt", last: 2, starts: 1}},
		{"an answer with a hole", "up end 0 0:x a:0:y a:3:y end", "ask 0 0:p0 clear ask 0 0:y 3:y", want{state: "degraded", reason: "non_contiguous", last: 3, starts: 1, failed: "non_contiguous"}},
		{
			"tries are bounded and their delay grows", "up end 0 0:x a:0:y end +1s a:0:y end +1s +1s a:0:y end +1m 1:y",
			"ask 0 0:p0 clear ask 0 0:y clear ask 0 0:y clear ask 0 0:y 1:y",
			want{state: "degraded", reason: "restart_in_doubt", last: 1, dups: 1, starts: 3},
		},
		{
			"other first messages do not shorten the delay", "up end 0 0:x a:0:y end 0:z 0:x 0:z +999ms +1ms a:0:z end",
			"ask 0 0:p0 clear ask 0 0:y clear ask 0 0:z",
			want{state: "live", trusted: true, starts: 2},
		},
		{
			"an engine that restarts twice is replayed after the delay", "up end 0 0:m 0:n a:0:m end 1:n +1s a:0:n a:1:n end 2:n",
			"ask 0 0:p0 clear ask 0 0:m 1:n clear ask 0 0:n 1:n 2:n",
			want{state: "live", trusted: true, last: 2, starts: 2},
		},
		{
			"a restart long after another is replayed at once", "up end 0 0:m a:0:m end +1m 0:n a:0:n end",
			"ask 0 0:p0 clear ask 0 0:m clear ask 0 0:n",
			want{state: "live", trusted: true, starts: 2},
		},
		{"a clear and a later restart heal", "up end 0 0:x a:0:y end +1s a:0:y end +2s a:0:y end 1:clear", "ask 0 0:p0 clear ask 0 0:y clear ask 0 0:y clear ask 0 0:y 1:clear", want{state: "live", trusted: true, last: 1, dups: 1, starts: 3}},
	})
}

func TestAReplayThatNeverEndsIsIncompleteAfterSixtyTimeouts(t *testing.T) {
	talk := func(answer string) string { return strings.Repeat(" +1s "+answer, 119) }
	run(t, true, []scene{
		{"not yet", "up" + talk("a:0") + " +999ms", "ask 0 0:p0", want{state: "syncing"}},
		{"the same number again and again", "up" + talk("a:0") + " 1 +1s", "ask 0 0:p0 1:p1", want{state: "degraded", reason: "no_end_mark", last: 1, failed: "no_end_mark"}},
		{"an answer that comes too late", "up end 0 5" + talk("a:0") + " +1s a:1 6", "ask 0 0:p0 ask 1 5:p5 6:p6", want{state: "degraded", reason: "no_end_mark", last: 6, gaps: 4, failed: "no_end_mark"}},
		{"two lives in turns", "up" + talk("a:0:x a:0:y") + " +1s 1", "ask 0 0:x" + strings.Repeat(" clear 0:y clear 0:x", 118) + " clear 0:y 1:p1", want{state: "degraded", reason: "no_end_mark", last: 1, starts: 237, failed: "no_end_mark"}},
		{"a number long applied", "up end 0 1 2 down up" + talk("a:0") + " +1s 3", "ask 0 0:p0 1:p1 2:p2 ask 2 3:p3", want{state: "degraded", reason: "no_end_mark", last: 3, failed: "no_end_mark"}},
		{"the next replay has its own time", "up end 0 5" + talk("a:0") + " +1s +1s a:1 a:2 a:3 +1s a:4 +1s a:5 end", "ask 0 0:p0 ask 1 5:p5 ask 1 1:p1 2:p2 3:p3 4:p4 5:p5", want{state: "live", trusted: true, last: 5, gaps: 4, failed: "no_end_mark"}},
	})
}

func TestAnswersNobodyWaitsForAreIgnored(t *testing.T) {
	check(t, true, "up end 0 a:1 end +10s", "ask 0 0:p0", want{state: "live", trusted: true})
}

func TestWhatWaitsIsBounded(t *testing.T) {
	script := "up"
	for i := range 101 {
		script += fmt.Sprintf(" %d:x", i+5)
	}
	_, st := play(t, true, script)
	if st.Counts.Replays[stream.BufferFull] != 1 || st.LastSeq != 105 || st.Trusted {
		t.Errorf("status %+v", st)
	}
	script = "up end 0 200 +2s +1s"
	for i := range 150 {
		script += fmt.Sprintf(" a:%d:%s", i+1, strings.Repeat("x", 20))
	}
	_, st = play(t, true, script)
	if st.Counts.Replays[stream.TooLarge] != 1 || st.State != stream.Degraded {
		t.Errorf("status %+v", st)
	}
	script = "up end 0 200 +2s +1s"
	for i := range 150 {
		script += fmt.Sprintf(" a:%d:", i+1)
	}
	if _, st = play(t, true, script); st.Counts.Replays[stream.TooLarge] != 1 {
		t.Errorf("nothing, without end: status %+v", st)
	}
}

func TestOnlyTheLastDigestsAreKept(t *testing.T) {
	script := "up"
	for i := range 1100 {
		script += fmt.Sprintf(" %d", i)
	}
	_, st := play(t, false, script+" 1099 1098 0 1 1100")
	if st.Counts.Restarts != 0 || st.Counts.Duplicates != 4 || st.LastSeq != 1100 {
		t.Errorf("status %+v", st.Counts)
	}
	_, st = play(t, false, script+" 50 51")
	if st.Counts.Restarts != 1 {
		t.Error("two older numbers that are no longer known are not taken for a restart")
	}
}

func TestNamesAreDistinct(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range stream.States() {
		seen[s.String()] = true
	}
	for _, r := range stream.Results() {
		seen[r.String()] = true
	}
	if len(seen) != len(stream.States())+len(stream.Results()) || seen["unknown"] {
		t.Errorf("names %v", seen)
	}
}
