package sim_test

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	zmq "github.com/pebbe/zmq4"

	"github.com/routerd/routerd/sim"
)

const endMark = ^uint64(0)

// message is one published or replayed batch.
type message struct {
	topic string
	seq   uint64
	batch wireBatch
}

// reader subscribes to one rank and asks for replays; the simplest program that
// follows an engine.
type reader struct {
	t    *testing.T
	ctx  *zmq.Context
	sub  *zmq.Socket
	live []message // received and not used
}

func newReader(t *testing.T, endpoint string) *reader {
	t.Helper()
	ctx, err := zmq.NewContext()
	if err != nil {
		t.Fatal(err)
	}
	r := &reader{t: t, ctx: ctx}
	r.sub = r.socket(zmq.SUB)
	r.must(r.sub.SetSubscribe(""), r.sub.SetReconnectIvl(5*time.Millisecond), r.sub.Connect(endpoint))
	t.Cleanup(func() {
		r.must(r.sub.Close())
		r.must(ctx.Term())
	})
	return r
}

func (r *reader) socket(kind zmq.Type) *zmq.Socket {
	r.t.Helper()
	s, err := r.ctx.NewSocket(kind)
	if err != nil {
		r.t.Fatal(err)
	}
	r.must(s.SetLinger(0), s.SetRcvhwm(0))
	return s
}

func (r *reader) must(errs ...error) {
	r.t.Helper()
	if err := errors.Join(errs...); err != nil {
		r.t.Fatal(err)
	}
}

// drain takes what has arrived at the subscription.
func (r *reader) drain() []message {
	r.t.Helper()
	for {
		frames, err := r.sub.RecvMessageBytes(zmq.DONTWAIT)
		if zmq.AsErrno(err) == zmq.Errno(syscall.EAGAIN) {
			list := r.live
			r.live = nil
			return list
		}
		r.must(err)
		if len(frames) != 3 {
			r.t.Fatalf("live message of %d frames", len(frames))
		}
		r.live = append(r.live, r.message(frames))
	}
}

func (r *reader) message(frames [][]byte) message {
	r.t.Helper()
	b, err := decodeBatch(frames[2])
	r.must(err)
	return message{topic: string(frames[0]), seq: binary.BigEndian.Uint64(frames[1]), batch: b}
}

// awaitSubscription publishes until something arrives: before that the engine's
// first messages would be lost.
func (r *reader) awaitSubscription(b *bench, rank string) {
	r.t.Helper()
	n := uint32(1 << 20)
	eventually(r.t, "the subscription is up", func() bool {
		n++
		b.ok("POST", "/v1/completions", fmt.Sprintf(`{"prompt":%s,"max_tokens":1}`, idsJSON(repeat(n, 64))), "X-data-parallel-rank", rank)
		list := r.drain()
		r.live = list
		return len(list) > 0
	})
}

// replay asks for everything from start; ended tells whether the end marker came.
func (r *reader) replay(endpoint string, start uint64, topicFrame bool, patience time.Duration) (list []message, ended bool) {
	r.t.Helper()
	s := r.socket(zmq.DEALER)
	defer func() { r.must(s.Close()) }()
	r.must(s.Connect(endpoint), s.SetRcvtimeo(patience))
	_, err := s.SendMessage("", binary.BigEndian.AppendUint64(nil, start))
	r.must(err)
	for {
		frames, err := s.RecvMessageBytes(0)
		if zmq.AsErrno(err) == zmq.Errno(syscall.EAGAIN) {
			return list, false
		}
		r.must(err)
		want := 3
		if topicFrame {
			want = 4
		}
		if len(frames) != want || len(frames[0]) != 0 {
			r.t.Fatalf("replay answer of %d frames, first %q", len(frames), frames[0])
		}
		if !topicFrame {
			frames = slices.Insert(frames, 1, []byte{})
		}
		if binary.BigEndian.Uint64(frames[2]) == endMark && len(frames[3]) == 0 {
			return list, true
		}
		list = append(list, r.message(frames[1:]))
	}
}

// holder rebuilds what an engine holds by set rules.
type holder struct {
	hashes map[string]bool
	next   uint64
}

func (h *holder) apply(t *testing.T, m message) {
	t.Helper()
	h.next = m.seq + 1
	for _, e := range m.batch.events {
		switch e.Kind {
		case "BlockStored":
			if e.Parent != nil && !h.hashes[hashText(e.Parent)] {
				t.Errorf("seq %d: parent %v is not held", m.seq, e.Parent)
			}
			if len(e.Tokens) != len(e.Hashes)*e.BlockSize {
				t.Errorf("seq %d: %d tokens for %d blocks of %d", m.seq, len(e.Tokens), len(e.Hashes), e.BlockSize)
			}
			for _, x := range e.Hashes {
				h.hashes[hashText(x)] = true
			}
		case "BlockRemoved":
			for _, x := range e.Hashes {
				if !h.hashes[hashText(x)] {
					t.Errorf("seq %d: removes %v, which is not held", m.seq, x)
				}
				delete(h.hashes, hashText(x))
			}
		case "AllBlocksCleared":
			clear(h.hashes)
		}
	}
}

func (h *holder) list() []string {
	list := []string{}
	for x := range h.hashes {
		list = append(list, x)
	}
	slices.SortFunc(list, byNumber)
	return list
}

// held is what the engine itself says that a rank holds.
func (b *bench) held(rank int) []string {
	b.t.Helper()
	var v struct {
		Ranks []struct{ Hashes map[string][]string }
	}
	_, raw := b.do("GET", "/sim/blocks", "")
	if err := json.Unmarshal(raw, &v); err != nil {
		b.t.Fatal(err)
	}
	return v.Ranks[rank].Hashes["device"]
}

func idsJSON(ids []uint32) string {
	raw, err := json.Marshal(ids)
	if err != nil {
		return err.Error()
	}
	return string(raw)
}

func repeat(id uint32, n int) []uint32 { return slices.Repeat([]uint32{id}, n) }

// traffic sends requests with shared prefixes from several clients at once.
func (b *bench) traffic(seed uint64, rank string) {
	b.t.Helper()
	var clients sync.WaitGroup
	for c := range uint64(3) {
		clients.Go(func() {
			rng := rand.New(rand.NewPCG(seed, c))
			for range 15 {
				ids := append(repeat(uint32(1+rng.IntN(4)), 4*rng.IntN(8)), repeat(uint32(10+rng.IntN(3)), 1+rng.IntN(20))...)
				body := fmt.Sprintf(`{"prompt":%s,"n":%d,"max_tokens":%d,"ignore_eos":true}`, idsJSON(ids), 1+rng.IntN(2), 1+rng.IntN(12))
				resp, err := b.trySend(b.t.Context(), "POST", "/v1/completions", body, "X-data-parallel-rank", rank)
				if err != nil || resp.StatusCode != 200 {
					b.t.Errorf("request: %v", err)
					continue
				}
				resp.Body.Close()
			}
		})
	}
	clients.Wait()
}

func eventEngine(t *testing.T, change func(*sim.Config)) *bench {
	return startEngine(t, func(c *sim.Config) {
		c.Events, c.BlockSize, c.Blocks, c.Topic = true, 4, 24, "kv@w1@sim-model"
		if change != nil {
			change(c)
		}
	})
}

// follow applies live messages until the engine has no more.
func (h *holder) follow(t *testing.T, r *reader, b *bench, rank int) {
	t.Helper()
	eventually(t, "all live messages arrive", func() bool {
		for _, m := range r.drain() {
			if m.seq < h.next {
				continue
			}
			if m.seq != h.next {
				t.Fatalf("got number %d, want %d", m.seq, h.next)
			}
			h.apply(t, m)
		}
		return h.next == uint64(b.stats().Ranks[rank].NextSeq)
	})
}

func TestEventsRebuildExactlyTheCache(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*sim.Config)
	}{
		{"vLLM 0.33", nil},
		{"vLLM 0.23", func(c *sim.Config) { c.EventForm, c.ReplayTopicFrame = sim.FormArray, false }},
		{"byte hashes", func(c *sim.Config) { c.HashForm = sim.HashBytes }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := eventEngine(t, tc.change)
			r := newReader(t, b.EventEndpoints()[0])
			r.awaitSubscription(b, "0")
			h := &holder{hashes: map[string]bool{}}
			// What was published before the subscription comes by replay.
			missed, ended := r.replay(b.ReplayEndpoints()[0], 0, tc.name != "vLLM 0.23", 5*time.Second)
			if !ended {
				t.Fatal("no end marker")
			}
			for _, m := range missed {
				if m.seq != h.next || m.batch.rank != 0 {
					t.Fatalf("replayed number %d of rank %d, want %d", m.seq, m.batch.rank, h.next)
				}
				h.apply(t, m)
			}
			for seed := range uint64(3) {
				b.traffic(seed, "0")
				h.follow(t, r, b, 0)
				if diff := cmp.Diff(b.held(0), h.list()); diff != "" {
					t.Fatalf("holdings (-engine +rebuilt):\n%s", diff)
				}
			}
			b.ok("POST", "/sim/faults", `{"kind":"reset_prefix_cache"}`)
			h.follow(t, r, b, 0)
			if got := h.list(); len(got) != 0 || len(b.held(0)) != 0 {
				t.Errorf("after a reset: rebuilt %v, engine %v", got, b.held(0))
			}
		})
	}
}

func TestRanksPublishOnTheirOwnEndpoints(t *testing.T) {
	b := eventEngine(t, func(c *sim.Config) { c.Ranks, c.Adapters = 2, []string{"sql"} })
	if len(b.EventEndpoints()) != 2 || b.EventEndpoints()[0] == b.EventEndpoints()[1] {
		t.Fatalf("endpoints %v", b.EventEndpoints())
	}
	b.ok("POST", "/v1/completions", `{"model":"sql","prompt":[1,2,3,4,5,6,7,8],"max_tokens":1}`, "X-data-parallel-rank", "1")
	r := newReader(t, b.EventEndpoints()[0])
	if list, ended := r.replay(b.ReplayEndpoints()[0], 0, true, 5*time.Second); len(list) != 0 || !ended {
		t.Errorf("rank 0 published %v", list)
	}
	list, _ := r.replay(b.ReplayEndpoints()[1], 0, true, 5*time.Second)
	if len(list) != 1 || list[0].batch.rank != 1 || list[0].topic != "kv@w1@sim-model" {
		t.Fatalf("rank 1 published %+v", list)
	}
	e := list[0].batch.events[0]
	if e.Adapter != "sql" || list[0].batch.ids["sql"] != 1 || e.Parent != nil || len(e.Hashes) != 2 {
		t.Errorf("event %+v", e)
	}
	sources := b.ok("GET", "/kv_event_sources", "")
	if got := sources["1"].(map[string]any); got["endpoint"] != b.EventEndpoints()[1] || got["replay_endpoint"] != b.ReplayEndpoints()[1] || got["topic"] != "kv@w1@sim-model" {
		t.Errorf("sources %v", sources)
	}
}

func TestPrefillPublishesOneBatchPerChunkAndDecodeOnePerBlock(t *testing.T) {
	b := eventEngine(t, func(c *sim.Config) { c.Blocks = 2000 })
	b.ok("POST", "/v1/completions", fmt.Sprintf(`{"prompt":%s,"max_tokens":9,"ignore_eos":true}`, idsJSON(repeat(5, 2100))))
	r := newReader(t, b.EventEndpoints()[0])
	list, _ := r.replay(b.ReplayEndpoints()[0], 0, true, 5*time.Second)
	var blocks []int
	for i, m := range list {
		if len(m.batch.events) != 1 || m.batch.events[0].Kind != "BlockStored" || m.seq != uint64(i) {
			t.Fatalf("batch %d: %+v", i, m)
		}
		blocks = append(blocks, len(m.batch.events[0].Hashes))
		if i > 0 && hashText(m.batch.events[0].Parent) != hashText(list[i-1].batch.events[0].Hashes[blocks[i-1]-1]) {
			t.Errorf("batch %d: parent is not the block before", i)
		}
	}
	if diff := cmp.Diff([]int{512, 13, 1, 1}, blocks); diff != "" {
		t.Errorf("blocks by batch (-want +got):\n%s", diff)
	}
}

func TestRestartBeginsANewLifeOnTheSamePorts(t *testing.T) {
	b := eventEngine(t, nil)
	r := newReader(t, b.EventEndpoints()[0])
	r.awaitSubscription(b, "0")
	events, replays := b.EventEndpoints(), b.ReplayEndpoints()
	b.traffic(1, "0")
	b.ok("POST", "/sim/restart", "")
	if diff := cmp.Diff(events, b.EventEndpoints()); diff != "" {
		t.Errorf("event endpoints moved:\n%s", diff)
	}
	if list, ended := r.replay(replays[0], 0, true, 5*time.Second); len(list) != 0 || !ended {
		t.Errorf("the replay buffer survived: %d batches, ended %v", len(list), ended)
	}
	r.drain()
	r.awaitSubscription(b, "0") // the subscriber reconnects by itself
	h := &holder{hashes: map[string]bool{}}
	list, _ := r.replay(replays[0], 0, true, 5*time.Second)
	if len(list) == 0 || list[0].seq != 0 {
		t.Fatalf("numbers after a restart: %d batches", len(list))
	}
	for _, m := range list {
		h.apply(t, m)
	}
	b.traffic(2, "0")
	h.follow(t, r, b, 0)
	if diff := cmp.Diff(b.held(0), h.list()); diff != "" {
		t.Errorf("holdings (-engine +rebuilt):\n%s", diff)
	}
}

func TestDroppedBatchesLeaveAGapThatReplayFills(t *testing.T) {
	b := eventEngine(t, nil)
	r := newReader(t, b.EventEndpoints()[0])
	r.awaitSubscription(b, "0")
	last := uint64(b.stats().Ranks[0].NextSeq) - 1
	eventually(t, "the last live batch arrives", func() bool {
		list := r.drain()
		return len(list) > 0 && list[len(list)-1].seq == last
	})
	b.ok("POST", "/sim/faults", `{"kind":"drop_events","count":2}`)
	for id := range 4 {
		b.ok("POST", "/v1/completions", fmt.Sprintf(`{"prompt":%s,"max_tokens":1}`, idsJSON(repeat(uint32(100+id), 4))))
	}
	var seqs []uint64
	eventually(t, "two live batches arrive", func() bool {
		for _, m := range r.drain() {
			seqs = append(seqs, m.seq-last)
		}
		return len(seqs) == 2
	})
	if diff := cmp.Diff([]uint64{3, 4}, seqs); diff != "" {
		t.Errorf("live numbers after the gap (-want +got):\n%s", diff)
	}
	list, ended := r.replay(b.ReplayEndpoints()[0], last+1, true, 5*time.Second)
	if len(list) != 4 || list[0].seq != last+1 || !ended {
		t.Errorf("replay of the gap: %d batches, ended %v", len(list), ended)
	}
	if c := b.stats().Ranks[0]; c.DroppedBatches != 2 {
		t.Errorf("dropped %d", c.DroppedBatches)
	}
}

func TestDroppedRepliesAreDisturbedAsOrdered(t *testing.T) {
	b := eventEngine(t, func(c *sim.Config) { c.BufferSteps = 5 })
	for id := range 7 {
		b.ok("POST", "/v1/completions", fmt.Sprintf(`{"prompt":%s,"max_tokens":1}`, idsJSON(repeat(uint32(id), 4))))
	}
	r := newReader(t, b.EventEndpoints()[0])
	endpoint := b.ReplayEndpoints()[0]
	for _, tc := range []struct {
		name, order string
		start       uint64
		seqs        []uint64
		ended       bool
	}{
		{"undisturbed, the buffer begins later", "", 0, []uint64{2, 3, 4, 5, 6}, true},
		{"from the middle", "", 5, []uint64{5, 6}, true},
		{"beyond the newest", "", 7, nil, true},
		{"silent", `{"kind":"drop_replies"}`, 0, nil, false},
		{"holes", `{"kind":"drop_replies","mode":"holes","rank":0}`, 0, []uint64{2, 4, 5}, true},
		{"no end", `{"kind":"drop_replies","mode":"no_end"}`, 5, []uint64{5, 6}, false},
		{"undisturbed again", "", 6, []uint64{6}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			patience := 5 * time.Second
			if !tc.ended {
				patience = 300 * time.Millisecond
			}
			if tc.order != "" {
				b.ok("POST", "/sim/faults", tc.order)
			}
			list, ended := r.replay(endpoint, tc.start, true, patience)
			var seqs []uint64
			for _, m := range list {
				seqs = append(seqs, m.seq)
			}
			if diff := cmp.Diff(tc.seqs, seqs); diff != "" || ended != tc.ended {
				t.Errorf("ended %v, numbers (-want +got):\n%s", ended, diff)
			}
		})
	}
}

func TestMalformedReplayRequestsGetNoAnswer(t *testing.T) {
	b := eventEngine(t, nil)
	r := newReader(t, b.EventEndpoints()[0])
	s := r.socket(zmq.DEALER)
	defer func() { r.must(s.Close()) }()
	r.must(s.Connect(b.ReplayEndpoints()[0]), s.SetRcvtimeo(200*time.Millisecond))
	for _, parts := range [][]any{
		{binary.BigEndian.AppendUint64(nil, 0)},
		{"", "short"},
		{"x", binary.BigEndian.AppendUint64(nil, 0)},
		{"", binary.BigEndian.AppendUint64(nil, 0), "more"},
	} {
		_, err := s.SendMessage(parts...)
		r.must(err)
	}
	if frames, err := s.RecvMessageBytes(0); err == nil {
		t.Errorf("answered with %q", frames)
	}
	if _, ended := r.replay(b.ReplayEndpoints()[0], 0, true, 5*time.Second); !ended {
		t.Error("the next good request got no answer")
	}
}
