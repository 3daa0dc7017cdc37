package remote_test

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/indexer"
	"github.com/routerd/routerd/indexer/exact"
	"github.com/routerd/routerd/indexer/indextest"
	"github.com/routerd/routerd/indexer/remote"
	"github.com/routerd/routerd/kvcache"
)

// read is the primary's index, whose finds go through a client.
type read struct {
	*exact.Index
	find func([]kvcache.BlockHash, []fleet.Worker, []kvcache.Overlap)
}

func (r read) Find(blocks []kvcache.BlockHash, workers []fleet.Worker, out []kvcache.Overlap) {
	r.find(blocks, workers, out)
}

// What a client reads is what its primary's index says.
func TestModel(t *testing.T) {
	var now atomic.Pointer[primary] // the index that is compared
	l := listen(t, "unix", func(path string, body []byte) (int, []byte) { return now.Load().answer(path, body) })
	indextest.Run(t, func(blockSize int) indexer.Indexer {
		p := newPrimary(blockSize)
		r := newRig(t, blockSize, time.Second, l)
		return read{p.index, func(blocks []kvcache.BlockHash, workers []fleet.Worker, out []kvcache.Overlap) {
			now.Store(p)
			asked := r.Stats().Requests
			r.Find(blocks, workers, out)
			if n := r.Stats().Requests - asked; n != 1 && len(blocks) > 0 && len(workers) > 0 || r.Away() {
				t.Errorf("%d requests for a find, away %t: the comparison is with nothing", n, r.Away())
			}
		}}
	})
}

func TestFindTellsOverlapAndTrustOfEachRank(t *testing.T) {
	p := newPrimary(4)
	w := ranks(4)
	p.store(w[0], sequence(0, 16))
	p.store(w[1], sequence(0, 8))
	p.trusted[w[1]] = false
	r := newRig(t, 4, time.Second, p.here())
	if r.Trusted(w[0]) {
		t.Error("a rank is trusted that nobody has asked for")
	}
	got := r.held(hashes(t, sequence(0, 16), 4), w[3], w[1], w[0])
	if diff := cmp.Diff([]kvcache.Overlap{{}, {Device: 2}, {Device: 4}}, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if !r.Trusted(w[0]) || r.Trusted(w[1]) || r.Trusted(w[2]) || r.Trusted(w[3]) {
		t.Error("trusted are others than rank 1")
	}
	r.Forget(w[0])
	if r.Trusted(w[0]) {
		t.Error("a rank that left is trusted")
	}
	if got := r.held(nil, w[0]); got[0] != (kvcache.Overlap{}) {
		t.Errorf("no blocks: %+v", got)
	}
	if s := r.Stats(); s.Finds[remote.Answered] != 1 || s.Requests != 1 {
		t.Errorf("counted %+v", s)
	}
}

func TestTrustIsNoOlderThanHalfAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPrimary(4)
		w := ranks(1)
		p.store(w[0], sequence(0, 16))
		r := newRig(t, 4, time.Second, p.here())
		r.held(hashes(t, sequence(0, 16), 4), w...)
		<-time.After(30 * time.Second)
		if !r.Trusted(w[0]) {
			t.Error("not trusted after 30 s")
		}
		<-time.After(time.Second)
		if r.Trusted(w[0]) {
			t.Error("trusted after 31 s")
		}
	})
}

func TestAPrimaryWithoutThePartitionIsCountedAndOneOfOtherBlocksIsLoud(t *testing.T) {
	p := newPrimary(4)
	w := ranks(1)
	p.store(w[0], sequence(0, 64))
	blocks := hashes(t, sequence(0, 64), 4)
	r := newRig(t, 4, time.Second, p.here())
	other, err := r.Open(fleet.PartitionKey{Model: "other", Group: "g"}, 4)
	if err != nil {
		t.Fatal(err)
	}
	out := []kvcache.Overlap{{Device: 99}}
	other.Find(blocks, w, out)
	if out[0] != (kvcache.Overlap{}) || other.Trusted(w[0]) || r.Stats().Finds[remote.NoPartition] != 1 {
		t.Errorf("got %+v, counted %+v", out, r.Stats())
	}
	if got := r.held(blocks, w...); got[0].Device != 16 || !r.Trusted(w[0]) {
		t.Fatalf("got %+v", got)
	}
	told := func() int { return r.log.Count("level=ERROR") }
	for _, size := range []int{8, 8, 16, 4, 16} {
		p.blockSize = size
		got := r.held(blocks, w...)
		if right := size == 4; right != (got[0].Device == 16) || right != r.Trusted(w[0]) {
			t.Errorf("blocks of %d: %+v, trusted %t", size, got, r.Trusted(w[0]))
		}
	}
	if told() != 3 || r.log.Count("partition=m:default block_size=4 primary=8") != 1 || r.Stats().Finds[remote.BlockSize] != 4 {
		t.Errorf("told %d times, want 3: of 8, of 16, and of 16 after 4; counted %+v\n%s", told(), r.Stats(), r.log)
	}
}

// Many who ask at once share requests, and each gets its own answer.
func TestFindsAtOnceShareRequests(t *testing.T) {
	const callers, rounds = 64, 50
	p := newPrimary(1)
	w := ranks(8)
	for i := range w {
		p.store(w[i], sequence(1000*i, 100))
	}
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			r := newRig(t, 1, time.Second, listen(t, network, p.answer))
			var all sync.WaitGroup
			begin := make(chan struct{})
			for caller := range callers {
				all.Go(func() {
					rng := rand.New(rand.NewPCG(uint64(caller), 1))
					<-begin
					for range rounds {
						of, n := rng.IntN(len(w)), 1+rng.IntN(100)
						asked := []fleet.Worker{w[(of+1)%len(w)], w[of], {ID: 99}}
						got := r.held(hashes(t, sequence(1000*of, n), 1), asked...)
						if diff := cmp.Diff([]kvcache.Overlap{{}, {Device: uint32(n)}, {}}, got); diff != "" {
							t.Errorf("%d blocks of %d (-want +got)\n%s", n, of, diff)
						}
					}
				})
			}
			close(begin)
			all.Wait()
			s := r.Stats()
			t.Logf("%d requests for %d finds", s.Requests, s.Finds[remote.Answered])
			if s.Finds[remote.Answered] != callers*rounds || s.Requests > callers*rounds/2 {
				t.Errorf("counted %+v", s)
			}
		})
	}
}

func TestWhoComesDuringARequestGoesWithTheNextOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPrimary(1)
		w := ranks(1)
		p.store(w[0], sequence(0, 200_000))
		long := hashes(t, sequence(0, 50_000), 1)
		var sizes []uint32
		r := newRig(t, 1, time.Second, posting(func(_ context.Context, path string, body []byte) (int, []byte, error) {
			sizes = append(sizes, binary.LittleEndian.Uint32(body[8:]))
			<-time.After(100 * time.Millisecond)
			status, answer := p.answer(path, body)
			return status, answer, nil
		}))
		var all sync.WaitGroup
		ask := func(n int, blocks []kvcache.BlockHash) {
			for range n {
				all.Go(func() {
					if got := r.held(blocks, w...); got[0].Device != uint32(len(blocks)) {
						t.Errorf("got %+v", got)
					}
				})
				synctest.Wait()
			}
		}
		ask(1+64+64+2, long[:10])
		ask(3, long) // 400 kB each, of which two fit
		all.Wait()
		if diff := cmp.Diff([]uint32{1, 64, 64, 4, 1}, sizes); diff != "" {
			t.Errorf("finds in each request (-want +got)\n%s", diff)
		}
	})
}

func TestAFindGivesUpAtItsOwnDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const deadline = 100 * time.Millisecond
		r := newRig(t, 1, deadline, posting(func(ctx context.Context, _ string, _ []byte) (int, []byte, error) {
			<-ctx.Done()
			return 0, nil, ctx.Err()
		}))
		var all sync.WaitGroup
		for range 8 { // 10 ms after each other; the first one's request holds the others up
			all.Go(func() {
				begun := time.Now()
				r.held([]kvcache.BlockHash{1}, ranks(1)...)
				if took := time.Since(begun); took > deadline {
					t.Errorf("it took %s", took)
				}
			})
			<-time.After(10 * time.Millisecond)
		}
		all.Wait()
		s := r.Stats()
		if s.Requests != 1 || s.Finds[remote.Deadline] != 1 || s.Finds[remote.Away] != 7 || !s.Away {
			t.Errorf("counted %+v", s)
		}
	})
}

func TestFindsThatLeaveAreNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPrimary(1)
		w := ranks(1)
		p.store(w[0], sequence(0, 100))
		var sizes []uint32
		slow := atomic.Bool{}
		r := newRig(t, 1, 100*time.Millisecond, posting(func(_ context.Context, path string, body []byte) (int, []byte, error) {
			sizes = append(sizes, binary.LittleEndian.Uint32(body[8:]))
			if slow.Load() { // it does not hear its context
				<-time.After(150 * time.Millisecond)
			}
			status, answer := p.answer(path, body)
			return status, answer, nil
		}))
		slow.Store(true)
		var all sync.WaitGroup
		find := func() { all.Go(func() { r.held(hashes(t, sequence(0, 5), 1), w...) }) }
		find()
		synctest.Wait()
		find()
		<-time.After(140 * time.Millisecond) // the second one has left
		slow.Store(false)
		all.Wait()
		if diff := cmp.Diff([]uint32{1}, sizes); diff != "" {
			t.Errorf("finds in each request (-want +got)\n%s", diff)
		}
		if s := r.Stats(); s.Finds[remote.Deadline] != 1 || s.Finds[remote.Answered] != 1 {
			t.Errorf("counted %+v", s)
		}
	})
}

// Deadlines that pass while requests end: each find ends, and with its own answer or none.
func TestFindsEndWhateverMeetsTheirDeadline(t *testing.T) {
	p := newPrimary(1)
	w := ranks(8)
	for i := range w {
		p.store(w[i], sequence(1000*i, 100))
	}
	blocks := make([][]kvcache.BlockHash, len(w))
	for i := range blocks {
		blocks[i] = hashes(t, sequence(1000*i, 10+i), 1)
	}
	r := newRig(t, 1, time.Millisecond, posting(func(_ context.Context, path string, body []byte) (int, []byte, error) {
		<-time.After(rand.N(600 * time.Microsecond))
		status, answer := p.answer(path, body)
		return status, answer, nil
	}))
	defer r.run(t)()
	var all sync.WaitGroup
	end := time.Now().Add(2 * time.Second)
	for range 32 {
		all.Go(func() {
			for time.Now().Before(end) {
				of := rand.N(len(w))
				if got := r.held(blocks[of], w...); got[of].Device != 0 && got[of].Device != uint32(10+of) || got[(of+1)%len(w)].Device != 0 {
					t.Errorf("%d: got %+v", of, got)
				}
				if r.Away() {
					<-time.After(time.Millisecond)
				}
			}
		})
	}
	all.Wait()
	s := r.Stats()
	t.Logf("%v", s.Finds)
	if s.Finds[remote.Answered] == 0 || s.Finds[remote.Deadline] == 0 {
		t.Errorf("counted %+v: not both of what is to meet", s)
	}
}

func TestWhatCannotBeIsRefused(t *testing.T) {
	for _, d := range []time.Duration{0, time.Second + 1} {
		var field *fleet.FieldError
		if _, err := remote.New(remote.Config{Deadline: d}, newPrimary(1).here(), nil, nil); !errors.As(err, &field) || field.Field != "deadline" {
			t.Errorf("%s: got %v", d, err)
		}
	}
	r := newRig(t, 1, time.Second, newPrimary(1).here())
	for field, open := range map[string]func() (*remote.Partition, error){
		"model": func() (*remote.Partition, error) {
			return r.Open(fleet.PartitionKey{Model: string(make([]byte, 1025))}, 1)
		},
		"group": func() (*remote.Partition, error) {
			return r.Open(fleet.PartitionKey{Group: string(make([]byte, 1025))}, 1)
		},
		"block_size": func() (*remote.Partition, error) { return r.Open(key, 0) },
	} {
		var refused *fleet.FieldError
		if _, err := open(); !errors.As(err, &refused) || refused.Field != field {
			t.Errorf("%s: got %v", field, err)
		}
	}
}
