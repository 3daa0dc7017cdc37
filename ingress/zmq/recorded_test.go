package zmq_test

import (
	"encoding/binary"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/indexer/exact"
	"github.com/routerd/routerd/ingress/stream"
	"github.com/routerd/routerd/ingress/wire"
	"github.com/routerd/routerd/ingress/wire/wiretest"
	"github.com/routerd/routerd/ingress/zmq"
	"github.com/routerd/routerd/internal/testkit"
	"github.com/routerd/routerd/kvcache"
)

// plays says, by the pattern of their names, how captures are played to an ingress.
var plays = []struct {
	names *regexp.Regexp
	play  func(t *testing.T, name string)
}{
	{regexp.MustCompile(`^sglang_0_5_4_(chain|bigram_dp1)$`), playPagesAlone},
	{regexp.MustCompile(`_(chain|bytes|lora|dp1|bigram_dp1|duplicates|extra_keys|groups|mediums|salt)$|^llmd_sim_|^handmade_trtllm_`), playWhole},
	{regexp.MustCompile(`_gap$`), playGap},
	{regexp.MustCompile(`_clear_restart$`), playRestart},
	{regexp.MustCompile(`^vllm_.*_replay_from4$`), playRepair},
	{regexp.MustCompile(`^sglang_.*_replay_from2$`), playContinuation},
	{regexp.MustCompile(`_replay_from100$`), playNothingNew},
	{regexp.MustCompile(`_replay_holes$`), playHoles},
	{regexp.MustCompile(`_replay_short_buffer$`), playShortBuffer},
	{regexp.MustCompile(`^malformed_`), playMalformed},
	{regexp.MustCompile(`^workload_`), playWorkload},
}

// playOf returns how a capture is played, nil when nobody knows.
func playOf(name string) func(*testing.T, string) {
	for _, p := range plays {
		if p.names.MatchString(name) {
			return p.play
		}
	}
	return nil
}

func TestEveryCaptureLeavesTheStateThatItDescribes(t *testing.T) {
	for _, name := range wiretest.Names(t, "*") {
		play := playOf(name)
		if play == nil {
			t.Errorf("capture %s is played by no test: say in plays how it is", name)
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			play(t, name)
		})
	}
}

func TestACaptureOfANewKindIsNotForgotten(t *testing.T) {
	for _, name := range []string{"vllm_0_34_0_hologram", "sglang_0_6_0_replay_from9", "trtllm_1_0_0_stored"} {
		if playOf(name) != nil {
			t.Errorf("%s is played as if its kind were known", name)
		}
	}
}

// recorded is an ingress that listens to a publisher for a capture's worker.
type recorded struct {
	t    *testing.T
	want wiretest.Want
	p    *publisher
	in   *zmq.DirectIngress
	s    *sink
	w    fleet.Worker
}

// record starts one for the rank that the capture's messages name. The publisher has a replay socket if that is asked
// for.
func record(t *testing.T, name string, blockSize int, replay bool) *recorded {
	t.Helper()
	r := &recorded{t: t, want: wiretest.Description(t, name), p: newPublisher(t, replay), in: start(t, quick()), s: newSink(), w: w1}
	r.s.Index = exact.New(blockSize)
	for _, m := range r.want.Messages {
		if m.DPRank != nil {
			r.w.Rank = uint32(*m.DPRank)
		}
	}
	return r
}

// listen registers the rank.
func (r *recorded) listen() {
	r.t.Helper()
	src := zmq.Source{Worker: r.w, Engine: r.want.Engine, Endpoint: r.p.endpoint, Replay: r.p.replay, Sink: r.s}
	if strings.HasPrefix(src.Engine, "llm-d") {
		src.Engine = zmq.EngineLLMD
	}
	must(r.t, r.in.Register(src))
	r.p.joined()
}

// join registers the rank and waits until the first replay, if there is one, has ended.
func (r *recorded) join() {
	r.t.Helper()
	r.listen()
	if r.p.replay != "" {
		testkit.Until(r.t, "the first replay has ended", func() bool {
			state := r.status().State
			return state != stream.Connecting && state != stream.Syncing
		})
	}
}

func (r *recorded) status() zmq.Status {
	r.t.Helper()
	st, ok := r.in.Status(r.w)
	if !ok {
		r.t.Fatal("not registered")
	}
	return st
}

// until waits until a message is applied and nothing is asked for.
func (r *recorded) until(seq uint64) zmq.Status {
	r.t.Helper()
	var st zmq.Status
	defer func() {
		if r.t.Failed() {
			r.t.Logf("status %+v", st)
		}
	}()
	testkit.Until(r.t, "the last message is applied", func() bool {
		st = r.status()
		return st.Seen && st.LastSeq == seq && (st.State == stream.Live || st.State == stream.Degraded)
	})
	return r.status()
}

// holds compares the blocks of the capture's rank with a state of its description, tier by tier.
func (r *recorded) holds(state wiretest.State) {
	r.t.Helper()
	want := wiretest.Held(r.t, state, r.want.Refused(r.t))
	got := map[string][]string{}
	for tier, hashes := range r.s.Hashes(r.w) {
		for _, h := range hashes {
			got[tier.String()] = append(got[tier.String()], h.String())
		}
		slices.Sort(got[tier.String()])
	}
	if d := cmp.Diff(want, got); d != "" {
		r.t.Errorf("blocks (-want +got)\n%s", d)
	}
}

// trusted checks what is shown of the stream.
func (r *recorded) trusted(reason string) {
	r.t.Helper()
	if st := r.status(); st.Trusted != (reason == "") || st.Reason != reason {
		r.t.Errorf("trusted %v for %q, want %q; status %+v", st.Trusted, st.Reason, reason, st)
	}
}

func seqOf(m [][]byte) uint64 { return binary.BigEndian.Uint64(m[1]) }

// playWhole plays a whole stream: live, to an ingress that joins when all was sent, and with messages held back.
func playWhole(t *testing.T, name string) {
	want, messages := wiretest.Description(t, name), wiretest.Messages(t, name)
	last := len(messages) - 1
	for _, how := range []string{"live", "late", "held back"} {
		r := record(t, name, want.EngineBlockSize(), how != "live")
		keep := func() {
			for _, m := range messages {
				r.p.keep(seqOf(m), m[2])
			}
		}
		if how == "late" {
			keep()
		}
		r.join()
		if how == "held back" {
			keep()
		}
		for i, m := range messages {
			if how == "live" || how == "held back" && (i%3 != 1 || i == last) {
				r.p.frames(m...)
			}
		}
		r.until(seqOf(messages[last]))
		r.holds(want.FinalState)
		r.trusted("")
	}
}

// playPagesAlone is for an engine whose hashes tell the page and not what is before it: nothing of it can be trusted.
func playPagesAlone(t *testing.T, name string) {
	want, messages := wiretest.Description(t, name), wiretest.Messages(t, name)
	r := record(t, name, want.EngineBlockSize(), false)
	r.join()
	for _, m := range messages {
		r.p.frames(m...)
	}
	r.until(seqOf(messages[len(messages)-1]))
	r.holds(nil)
	r.trusted("unknown_parent")
}

// playGap plays a stream with missing numbers to an ingress that cannot ask for them.
func playGap(t *testing.T, name string) {
	messages := wiretest.Messages(t, name)
	r := record(t, name, 16, false)
	r.join()
	for _, m := range messages {
		r.p.frames(m...)
	}
	st := r.until(seqOf(messages[len(messages)-1]))
	if missing := uint64(len(r.want.MissingSeqs)); st.Gaps != missing || st.Lost != missing || st.Dropped["unknown_parent"] == 0 {
		t.Errorf("status %+v, want %d lost", st, missing)
	}
	// What follows the gap has its parent in it.
	r.holds(r.want.StateBefore(t, r.want.MissingSeqs[0]))
	r.trusted("unknown_parent")
}

// answersOf returns the answers of a recorded replay, with topic frames where they were recorded with them.
func answersOf(t *testing.T, name string) (answers [][2][]byte, topics bool) {
	t.Helper()
	for _, frames := range wiretest.Messages(t, name)[1:] {
		topics = len(frames) == 4
		seq, payload, end, err := wire.ParseReply(frames)
		must(t, err)
		if !end {
			answers = append(answers, [2][]byte{wire.SequenceFrame(seq), payload})
		}
	}
	return answers, topics
}

// playRepair plays the stream with a gap of the same release, whose publisher answers with what was recorded of it.
func playRepair(t *testing.T, name string) {
	gap := name[:len(name)-len("replay_from4")] + "gap"
	r := record(t, gap, 16, true)
	r.p.replies(answersOf(t, name))
	r.repaired(gap, []uint64{0, 4})
}

// repaired sends the messages of a stream with a gap and waits until all is there.
func (r *recorded) repaired(gap string, asked []uint64) {
	r.t.Helper()
	r.p.answers(func(uint64) ([][2][]byte, bool) { return nil, true })
	r.join()
	r.p.answers(nil)
	messages := wiretest.Messages(r.t, gap)
	for _, m := range messages {
		r.p.frames([]byte("topic"), m[1], m[2])
	}
	testkit.Until(r.t, "the gap is repaired", func() bool { return r.status().Trusted && r.status().Gaps > 0 })
	st := r.until(seqOf(messages[len(messages)-1]))
	if missing := uint64(len(r.want.MissingSeqs)); st.Gaps != missing || st.Lost != 0 {
		r.t.Errorf("status %+v, want %d missing and none lost", st, missing)
	}
	r.holds(r.want.IfRepaired)
	r.trusted("")
	if d := cmp.Diff(asked, r.p.starts()); d != "" {
		r.t.Errorf("asked from (-want +got)\n%s", d)
	}
}

// playHoles asks from number 2 on and gets a recorded answer in which 5, 6 and 9 are missing. The stream is that of the
// recorded short buffer, which has 9; what nobody recorded is made to fit.
func playHoles(t *testing.T, name string) {
	const size = 16
	r := record(t, name, size, true)
	holes, topics := answersOf(t, name)
	whole, _ := answersOf(t, strings.Replace(name, "holes", "short_buffer", 1))
	second, _ := firstEvent(t, holes[0][1]).Parent.Number()
	fourth, _ := firstEvent(t, holes[2][1]).Hashes[0].Number()
	seventh, _ := firstEvent(t, whole[0][1]).Parent.Number()
	made := []event{{1, 0, second}, {5, fourth, 77}, {6, 77, seventh}} // to be the parents of what was recorded
	r.join()
	r.p.frames(nil, wire.SequenceFrame(0), payload(cleared()))
	r.p.frames(nil, wire.SequenceFrame(1), made[0].payload(size))
	r.p.replies(slices.Concat(holes[:3], [][2][]byte{made[1].message(size), made[2].message(size)}, whole), topics)
	first := true
	r.p.answers(func(start uint64) ([][2][]byte, bool) {
		if !first {
			return r.p.from(start), true
		}
		first = false
		return holes, true
	})
	last := holes[len(holes)-1]
	r.p.frames(nil, last[0], last[1])
	testkit.Until(t, "the holes are noticed", func() bool { st := r.status(); return st.LastSeq == binary.BigEndian.Uint64(last[0]) && !st.Trusted })
	testkit.Until(t, "the holes are filled", func() bool { return r.status().Trusted })
	if st := r.until(binary.BigEndian.Uint64(last[0])); st.Lost != 0 {
		t.Errorf("status %+v", st)
	}
	if got := r.s.Blocks(r.w)[0]; got != 11 {
		t.Errorf("%d blocks, want one of each message but the first", got)
	}
	if d := cmp.Diff([]uint64{0, 2, 5}, r.p.starts()); d != "" {
		t.Errorf("asked from (-want +got)\n%s", d)
	}
}

func firstEvent(t *testing.T, payload []byte) kvcache.Event {
	t.Helper()
	var b wire.Batch
	must(t, wire.DecodeBatch(payload, &b))
	return b.Events[0]
}

// event stores one block behind another, 0 for none.
type event struct{ seq, parent, hash uint64 }

func (e event) message(size int) [2][]byte {
	return [2][]byte{wire.SequenceFrame(e.seq), e.payload(size)}
}

func (e event) payload(size int) []byte {
	b := append([]byte{0x95, 0xab}, "BlockStored"...)
	b = binary.BigEndian.AppendUint64(append(b, 0x91, 0xcf), e.hash)
	if e.parent == 0 {
		b = append(b, 0xc0)
	} else {
		b = binary.BigEndian.AppendUint64(append(b, 0xcf), e.parent)
	}
	b = append(b, 0xdc, 0, byte(size))
	for range size {
		b = append(b, byte(e.seq))
	}
	return payload(append(b, byte(size)))
}

// playShortBuffer joins an engine that has no longer what came first.
func playShortBuffer(t *testing.T, name string) {
	r := record(t, name, 16, true)
	answers, topics := answersOf(t, name)
	r.p.replies(answers, topics)
	r.listen()
	st := r.until(binary.BigEndian.Uint64(answers[len(answers)-1][0]))
	if st.Dropped["unknown_parent"] == 0 {
		t.Errorf("status %+v", st)
	}
	r.holds(nil)
	testkit.Until(t, "it is given up", func() bool { return len(r.p.starts()) >= 2 && r.status().Reason == stream.StartedLate.String() })
	r.trusted(stream.StartedLate.String())
}

// playContinuation plays answers that go on where two messages that were not recorded end.
func playContinuation(t *testing.T, name string) {
	r := record(t, name, 4, true)
	answers, topics := answersOf(t, name)
	r.join()
	r.p.replies(answers, topics)
	r.p.frames(nil, wire.SequenceFrame(0), payload(cleared()))
	r.p.frames(nil, wire.SequenceFrame(1), payload(cleared()))
	last := answers[len(answers)-1]
	r.p.frames(nil, last[0], last[1])
	st := r.until(binary.BigEndian.Uint64(last[0]))
	if st.Gaps != 3 || st.Lost != 0 || r.s.count() != 2+len(answers) {
		t.Errorf("status %+v, %d messages applied, want %d", st, r.s.count(), 2+len(answers))
	}
	if d := cmp.Diff([]uint64{0, 2}, r.p.starts()); d != "" {
		t.Errorf("asked from (-want +got)\n%s", d)
	}
}

// playNothingNew asks an engine whose answer is the end mark alone.
func playNothingNew(t *testing.T, name string) {
	r := record(t, name, 16, true)
	answers, topics := answersOf(t, name)
	if len(answers) > 0 {
		t.Errorf("%d answers, want the end mark alone", len(answers))
	}
	r.p.replies(nil, topics)
	r.join()
	r.p.send(0, payload(cleared()))
	r.until(0)
	r.trusted("")
}

func playRestart(t *testing.T, name string) {
	messages := wiretest.Messages(t, name)
	for _, replay := range []bool{false, true} {
		r := record(t, name, 16, replay)
		r.join()
		for i, m := range messages {
			if i == r.want.RestartAt {
				r.p.forget()
			}
			if i >= r.want.RestartAt {
				r.p.keep(seqOf(m), m[2])
			}
			r.p.frames(m...)
		}
		testkit.Until(t, "the second life is applied", func() bool { return r.status().Restarts == 1 })
		r.until(seqOf(messages[len(messages)-1]))
		r.holds(r.want.AfterRestart)
		r.trusted("")
	}
}

func playMalformed(t *testing.T, name string) {
	r := record(t, name, 4, false)
	r.join()
	for _, frames := range wiretest.Messages(t, name) {
		r.p.frames(frames...)
	}
	r.p.send(100, payload(cleared()))
	r.p.send(101, payload(drop(1)))
	st := r.until(101)
	if st.Dropped["corrupt_message"] < 8 || st.Dropped["undecodable"] < 5 || st.Dropped["unknown_event"] != 1 {
		t.Errorf("status %+v", st)
	}
	r.trusted("")
}

// playWorkload joins an engine late and asks what the description asks.
func playWorkload(t *testing.T, name string) {
	messages := wiretest.Messages(t, name)
	r := record(t, name, wiretest.Description(t, name).BlockSize, true)
	for _, m := range messages {
		r.p.keep(seqOf(m), m[2])
	}
	r.join()
	r.until(seqOf(messages[len(messages)-1]))
	out := make([]kvcache.Overlap, 1)
	for i, q := range r.want.Queries {
		adapter := ""
		if q.LoraName != nil {
			adapter = *q.LoraName
		}
		blocks, err := kvcache.BlockHashes(nil, q.Tokens, r.want.BlockSize, kvcache.Seed(adapter, ""))
		must(t, err)
		if r.s.Find(blocks, []fleet.Worker{r.w}, out); out[0].Device != q.Want {
			t.Errorf("query %d: %d, want %d", i, out[0].Device, q.Want)
		}
	}
	r.trusted("")
}
