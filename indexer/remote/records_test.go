package remote_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/indexer/remote"
	"github.com/routerd/routerd/internal/testkit"
	"github.com/routerd/routerd/kvcache"
)

func TestRecordsReachThePrimaryInBatches(t *testing.T) {
	p := newPrimary(1)
	w := ranks(3)
	p.trusted[w[0]], p.trusted[w[1]] = true, false
	l := listen(t, "unix", p.answer)
	var messages atomic.Int64
	r := newRig(t, 1, time.Second, posting(func(ctx context.Context, path string, body []byte) (int, []byte, error) {
		messages.Add(1)
		return l.Post(ctx, path, body)
	}))
	for i := range 3000 { // before Run: they wait
		r.Record(w[i%3], make([]kvcache.BlockHash, i%50), true)
	}
	if n := r.Stats().Waiting; n != 3000 {
		t.Fatalf("%d wait", n)
	}
	defer r.run(t)()
	testkit.Until(t, "all records are answered", func() bool {
		s := r.Stats()
		return s.Records[remote.Answered]+s.Records[remote.NoRank] == 3000
	})
	got := p.took()
	if len(got) != 2000 || got[2] != (booked{w[0], 3}) || messages.Load() != 3 || r.Stats().Waiting != 0 {
		t.Errorf("took %d records, the third is %+v, in %d messages", len(got), got[2], messages.Load())
	}
	if s := p.Server.Stats(); s.Records[remote.Answered] != 2000 || s.Records[remote.NoRank] != 1000 {
		t.Errorf("the primary counted %+v", s)
	}
	p.blockSize = 2
	r.Record(w[0], nil, true)
	other, err := r.Open(fleet.PartitionKey{Model: "other"}, 1)
	if err != nil {
		t.Fatal(err)
	}
	other.Record(w[0], nil, true)
	testkit.Until(t, "two more are refused", func() bool {
		s := r.Stats()
		return s.Records[remote.BlockSize] == 1 && s.Records[remote.NoPartition] == 1
	})
}

// While nobody takes them, what is newest is kept.
func TestAFullQueueDropsItsOldest(t *testing.T) {
	p := newPrimary(1)
	p.trusted[ranks(1)[0]] = true
	for name, c := range map[string]struct{ records, blocks, kept int }{
		"many":  {20_000, 0, 1 << 14},
		"large": {100, 65_536, 31}, // half a MiB each and some bytes
	} {
		t.Run(name, func(t *testing.T) {
			p.booked = nil
			r := newRig(t, 1, time.Second, p.here())
			blocks := make([]kvcache.BlockHash, c.blocks)
			for range c.records {
				r.Record(ranks(1)[0], blocks, true)
			}
			r.Record(ranks(1)[0], blocks[:min(1, len(blocks))], true)
			if s := r.Stats(); s.Waiting < c.kept || s.Waiting > c.kept+1 || int(s.Records[remote.Dropped])+s.Waiting != c.records+1 {
				t.Fatalf("counted %+v", s)
			}
			waiting := r.Stats().Waiting
			defer r.run(t)()
			testkit.Until(t, "all are taken", func() bool { return len(p.took()) == waiting })
			if last := p.took()[waiting-1]; last.blocks != min(1, c.blocks) {
				t.Errorf("the last one is %+v", last)
			}
		})
	}
}

// A primary that does not take records is asked ever more seldom, told of once, and no find
// fails by that.
func TestRecordsThatFailAreCountedAndCostNoFind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPrimary(1)
		w := ranks(1)
		p.store(w[0], sequence(0, 100))
		var fails atomic.Bool
		fails.Store(true)
		var tried atomic.Int64
		r := newRig(t, 1, 20*time.Millisecond, posting(func(_ context.Context, path string, body []byte) (int, []byte, error) {
			if path == remote.PathRecord && fails.Load() {
				tried.Add(1)
				return 0, nil, errors.New("refused")
			}
			status, answer := p.answer(path, body)
			return status, answer, nil
		}))
		defer r.run(t)()
		for range 2000 {
			r.Record(w[0], nil, true)
			<-time.After(10 * time.Millisecond)
			if got := r.held(hashes(t, sequence(0, 10), 1), w...); got[0].Device != 10 {
				t.Fatalf("got %+v", got)
			}
		}
		if n := tried.Load(); n < 10 || n > 20 || r.log.Count("do not reach the primary") != 1 {
			t.Errorf("tried %d times in 20 s\n%s", n, r.log)
		}
		fails.Store(false)
		r.Record(w[0], nil, true)
		<-time.After(3 * time.Second)
		s := r.Stats()
		if s.Records[remote.Answered] == 0 || s.Records[remote.Unreachable]+s.Records[remote.Answered] != 2001 {
			t.Errorf("counted %+v", s)
		}
		if diff := cmp.Diff(int(s.Records[remote.Answered]), len(p.took())); diff != "" {
			t.Error(diff)
		}
		if want := fmt.Sprintf("decisions reach the primary of the index again\" lost=%d", s.Records[remote.Unreachable]); r.log.Count(want) != 1 {
			t.Errorf("%q is not told once\n%s", want, r.log)
		}
	})
}
