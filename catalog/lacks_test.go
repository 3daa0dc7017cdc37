package catalog_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
)

func asked(r *fleet.Record) { r.Asked = "{}" }

func reasons(t *testing.T, l *ledger, rec fleet.Record) []string {
	t.Helper()
	r := newReconciler(l)
	apply(t, r, rec)
	v, _ := r.Worker(rec.ID.String())
	if (v.Lifecycle == core.Ready) != (len(v.Reasons) == 0) {
		t.Errorf("%s with reasons %q", v.Lifecycle, v.Reasons)
	}
	return v.Reasons
}

func TestWhatAnIncompleteWorkerLacksIsListed(t *testing.T) {
	const unknownSize = "block_size_unknown: not configured, and the engine is asked once the rest is known"
	for _, c := range []struct {
		name   string
		change func(*fleet.Record)
		want   []string
	}{
		{"nothing", func(r *fleet.Record) { r.RequireEvents = true; ranks(2, false)(r) }, []string{}},
		{"no events, which nobody requires", func(*fleet.Record) {}, []string{}},
		{"its place", func(r *fleet.Record) { r.URL = "" }, []string{"url_missing: nobody told where the worker is"}},
		{"all", func(r *fleet.Record) { r.URL, r.BlockSize, r.RequireEvents = "", 0, true }, []string{
			"url_missing: nobody told where the worker is", unknownSize, "kv_events_missing: rank 0",
		}},
		{"events of a rank", func(r *fleet.Record) {
			ranks(3, false)(r)
			r.RequireEvents = true
			delete(r.KVEvents, 1)
		}, []string{"kv_events_missing: rank 1"}},
		{"events and a size", func(r *fleet.Record) { asked(r); r.DPSize, r.RequireEvents, r.BlockSize = 1, true, 0 }, []string{unknownSize, "kv_events_missing: rank 0"}},
		{"ranks", func(r *fleet.Record) { asked(r); r.RequireEvents = true }, []string{"dp_size_zero: the worker has no rank"}},
		{"ranks of its replay", func(r *fleet.Record) { asked(r); ranks(2, false)(r); r.Replay = map[int]string{0: "tcp://127.0.0.1:1"} }, []string{
			"replay_unranked: a replay endpoint that names no rank serves one rank only",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLedger()
			l.probe = func(string) (int, error) {
				t.Error("the engine was asked")
				return 0, errors.New("no")
			}
			if diff := cmp.Diff(c.want, reasons(t, l, record(t, 1, c.change))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestASizeOrHashingUnlikeThePartitionsIsAMismatch(t *testing.T) {
	l := newLedger()
	l.blockSizes[fleet.PartitionKey{Model: "m", Group: "default"}] = 4
	want := []string{"block_size_mismatch: existing=4 requested=16"}
	if diff := cmp.Diff(want, reasons(t, l, record(t, 1))); diff != "" {
		t.Error(diff)
	}
	l = newLedger()
	l.commitErr = &core.MismatchError{Field: "is_eagle", Has: "false", Requested: "true"}
	want = []string{"is_eagle_mismatch: existing=false requested=true"}
	if diff := cmp.Diff(want, reasons(t, l, record(t, 1, func(r *fleet.Record) { r.Eagle = true }))); diff != "" {
		t.Error(diff)
	}
}

func TestAWorkerThatLosesWhatItNeedsLeavesAndItsListenersEnd(t *testing.T) {
	full := func(r *fleet.Record) { r.RequireEvents = true; ranks(2, false)(r) }
	for name, change := range map[string]func(*fleet.Record){
		"its place":       func(r *fleet.Record) { r.URL = "" },
		"a rank's events": func(r *fleet.Record) { delete(r.KVEvents, 1) },
		"its events":      func(r *fleet.Record) { r.KVEvents = nil },
		"its ranks":       func(r *fleet.Record) { asked(r); r.DPSize, r.KVEvents, r.Replay = 0, nil, nil },
		"the right size":  func(r *fleet.Record) { r.BlockSize = 32 },
	} {
		t.Run(name, func(t *testing.T) {
			l := newLedger()
			r := newReconciler(l)
			apply(t, r, record(t, 1, full))
			wantTold(t, l, "listen 1/0 tcp://127.0.0.1:5000", "listen 1/1 tcp://127.0.0.1:5001", "upsert 1")
			apply(t, r, record(t, 1, full, change))
			wantTold(t, l, "remove 1", "unlisten 1/0", "unlisten 1/1")
			apply(t, r, record(t, 1, full))
			wantTold(t, l, "listen 1/0 tcp://127.0.0.1:5000", "listen 1/1 tcp://127.0.0.1:5001", "upsert 1")
		})
	}
}

func TestWorkersWithoutAPlaceDoNotClashOverIt(t *testing.T) {
	r := newReconciler(newLedger())
	nowhere := func(r *fleet.Record) { r.URL = "" }
	if err := r.Apply(context.Background(), "api", []fleet.Record{record(t, 1, nowhere), record(t, 2, nowhere)}); err != nil {
		t.Error(err)
	}
}

func TestMoreRanksThanAWorkerMayHaveAreRefused(t *testing.T) {
	for n, ok := range map[int]bool{4096: true, 4097: false} {
		rec := fleet.Record{ID: 1, URL: "http://127.0.0.1:1", DPSize: n}
		_, err := rec.Normalised()
		if (err == nil) != ok {
			t.Errorf("%d ranks: %v", n, err)
		}
	}
}
