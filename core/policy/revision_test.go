package policy_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/plugins/abi"
)

func closedNow(r *policy.Revision) bool {
	select {
	case <-r.Closed():
		return true
	default:
		return false
	}
}

func handle(t *testing.T, rev *policy.Revision) *policy.Handle {
	t.Helper()
	h, err := policy.NewHandle(rev)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestRevisionClosesWithItsLastCall(t *testing.T) {
	s := scores(1, 2)
	old := revision(t, use("module:m"), modules{"module:m": s})
	h := handle(t, old)
	running := h.Active()
	if old.State() != policy.Active {
		t.Errorf("got state %s; want active", old.State())
	}
	next := revision(t, use("builtin:least-load"), nil)
	if err := h.Publish(next); err != nil {
		t.Fatal(err)
	}
	if old.State() != policy.Ready {
		t.Errorf("got state %s; want ready: it is kept", old.State())
	}
	old.Retire()
	old.Retire()
	if closedNow(old) || s.closed != 0 || old.State() != policy.Retired {
		t.Error("closed while a call runs")
	}
	var d policy.Decision
	if err := running.Decide(t.Context(), table(2, running.Columns()), &d); err != nil {
		t.Errorf("the running call fails: %v", err)
	}
	running.Release()
	if !closedNow(old) || s.closed != 1 {
		t.Errorf("closed %v, stages closed %d times; want once, with the last call", closedNow(old), s.closed)
	}
	if err := h.Publish(old); err == nil {
		t.Error("a closed revision was published")
	}
	if r := h.Active(); r != next {
		t.Error("the handle lost its revision")
	}
}

func TestKeptRevisionCanBePublishedAgain(t *testing.T) {
	a, b := revision(t, use("builtin:least-load"), nil), revision(t, use("builtin:kv-aware"), nil)
	h := handle(t, a)
	for _, r := range []*policy.Revision{b, a, b, a} {
		if err := h.Publish(r); err != nil {
			t.Fatal(err)
		}
	}
	if a.State() != policy.Active || b.State() != policy.Ready || closedNow(a) || closedNow(b) {
		t.Errorf("got %s and %s", a.State(), b.State())
	}
}

func TestCloseErrNamesTheStage(t *testing.T) {
	s := scores(1)
	s.err = errors.New("stuck")
	r := revision(t, use("module:m"), modules{"module:m": s})
	r.Retire()
	if err := r.CloseErr(); err == nil || err.Error() != `close stage "module:m": stuck` {
		t.Errorf("got %v", err)
	}
}

func TestHandleKeepsColumnsOfOtherRevisions(t *testing.T) {
	h := handle(t, revision(t, use("builtin:least-load"), nil))
	var kept policy.ColumnSet
	kept.AddStd(abi.ColKVUsage)
	kept.Add("label.zone")
	h.Keep(kept)
	want := revision(t, use("builtin:least-load"), nil).Columns().Clone()
	want.Union(kept)
	lease := h.Acquire(policy.Ask{})
	rev, got := lease.Revision, lease.Columns
	rev.Release()
	if diff := cmp.Diff(want.Names(), got.Names()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if err := h.Publish(revision(t, use("builtin:round-robin"), nil)); err != nil {
		t.Fatal(err)
	}
	lease = h.Acquire(policy.Ask{})
	rev, got = lease.Revision, lease.Columns
	rev.Release()
	if !got.Has(abi.ColKVUsage) {
		t.Error("kept columns were lost by publishing")
	}
}

// TestSwapsUnderLoad publishes 1,000 revisions under eight callers: none fails,
// none uses a revision that was replaced before it acquired, each closes once.
func TestSwapsUnderLoad(t *testing.T) {
	var published atomic.Int64
	first := policy.NewRevision("p", 0, policy.Spec{}, compiled(t), nil)
	h := handle(t, first)
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			var d policy.Decision
			for {
				select {
				case <-done:
					return
				default:
				}
				least := published.Load()
				r := h.Active()
				if int64(r.Number()) < least {
					t.Errorf("got revision %d after %d was published", r.Number(), least)
				}
				if err := r.Decide(t.Context(), table(2, r.Columns()), &d); err != nil {
					t.Error(err)
				}
				r.Release()
			}
		})
	}
	old := first
	for n := 1; n <= 1000; n++ {
		r := policy.NewRevision("p", n, policy.Spec{}, compiled(t), nil)
		if err := h.Publish(r); err != nil {
			t.Fatal(err)
		}
		published.Store(int64(n))
		old.Retire()
		old = r
	}
	close(done)
	wg.Wait()
	if closedNow(old) {
		t.Error("the active revision was closed")
	}
}

func compiled(t *testing.T) *policy.Pipeline {
	p, _, err := policy.Compile(t.Context(), use("module:m"), modules{"module:m": scores(1, 2)})
	if err != nil {
		t.Fatal(err)
	}
	return p
}
