package core_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
)

func TestTheFirstWorkerFixesHowAPartitionHashes(t *testing.T) {
	eagle := func(name string, is bool) core.Member {
		rec := record(name, "m1")
		rec.Eagle = is
		return core.Member{Record: rec, Lifecycle: core.Ready, BlockSize: 16}
	}
	mismatch := func(has, requested string) *core.MismatchError {
		return &core.MismatchError{Partition: model("m1"), Field: "is_eagle", Has: has, Requested: requested}
	}
	for name, c := range map[string]struct {
		before []core.Member
		gone   []fleet.WorkerID
		change []core.Member
		want   *core.MismatchError
	}{
		"the first":                    {change: []core.Member{eagle("w1", true)}},
		"another like it":              {before: []core.Member{eagle("w1", true)}, change: []core.Member{eagle("w2", true)}},
		"one unlike it":                {before: []core.Member{eagle("w1", false)}, change: []core.Member{eagle("w2", true)}, want: mismatch("false", "true")},
		"the other way":                {before: []core.Member{eagle("w1", true)}, change: []core.Member{eagle("w2", false)}, want: mismatch("true", "false")},
		"two at once":                  {change: []core.Member{eagle("w1", false), eagle("w2", true)}, want: mismatch("false", "true")},
		"the only one changes":         {before: []core.Member{eagle("w1", true)}, change: []core.Member{eagle("w1", false)}, want: mismatch("true", "false")},
		"kept without workers":         {before: []core.Member{eagle("w1", true)}, gone: []fleet.WorkerID{fleet.IDFromName("w1")}, change: []core.Member{eagle("w1", false)}, want: mismatch("true", "false")},
		"a refused change fixes none":  {change: []core.Member{eagle("w1", false)}},
		"again, after all are removed": {before: []core.Member{eagle("w1", true)}, gone: []fleet.WorkerID{fleet.IDFromName("w1")}, change: []core.Member{eagle("w1", true)}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, use("builtin:kv-aware"), nil)
			if err := w.Prepare(t.Context(), model("m1"), 16); err != nil {
				t.Fatal(err)
			}
			refused := core.Change{Upserts: []core.Member{eagle("w1", true), eagle("w1", true)}}
			if err := w.Commit(refused); err == nil {
				t.Fatal("one worker twice is taken")
			}
			if c.before != nil {
				if err := w.Commit(core.Change{Upserts: c.before}); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.Commit(core.Change{Removals: c.gone}); err != nil {
				t.Fatal(err)
			}
			err := w.Commit(core.Change{Upserts: c.change})
			got, _ := errors.AsType[*core.MismatchError](err)
			if d := cmp.Diff(c.want, got); d != "" || (err == nil) != (c.want == nil) {
				t.Errorf("%v: %s", err, d)
			}
			if f, ok := errors.AsType[*fleet.FieldError](err); c.want != nil && (!ok || f.Field != "is_eagle") {
				t.Errorf("got %v; want the field named", err)
			}
		})
	}
}

func TestAnotherBlockSizeIsAMismatch(t *testing.T) {
	w := newWorld(t, use("builtin:kv-aware"), nil)
	w.join(t, record("w1", "m1"))
	err := w.Prepare(t.Context(), model("m1"), 32)
	got, _ := errors.AsType[*core.MismatchError](err)
	want := &core.MismatchError{Partition: model("m1"), Field: "block_size", Has: "16", Requested: "32"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}
