package bench_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/plugins/abi"
)

// BenchmarkPolicyDecision is one decision of a revision over a table that is
// ready, by kv-aware in each of its forms: for a guest that is frame, call,
// check of the scores and pick, for its native twin the scores and the pick. All
// must give the scores the same bits. The guests are the scalar and the SIMD
// module of testdata/kvaware.c and the example written in Go, all metered.
//
// Where $BENCH_EXTISM names the folder that make bench-policy builds, there are
// also the same modules unmetered, called by the bare engine, and the policy as
// an Extism plugin that talks JSON: processes of their own.
//
// The single call without the pipeline around it is host's BenchmarkPolicyCall.
func BenchmarkPolicyDecision(b *testing.B) {
	files := map[string]string{"simd": packC(b, "simd"), "scalar": packC(b, "scalar"), "go": buildKVAware(b)}
	all := append(newForms(b, files, ""), newOutsiders(b, files)...)
	for _, rows := range []int{8, 64, 512, 1024, 4096} {
		b.Run(fmt.Sprintf("candidates=%d", rows), func(b *testing.B) { takeTurns(b, all, rows) })
	}
	// By default decay is 1, which the guests see and the native twin does not.
	// With this configuration all do the same work.
	all = newForms(b, files, `{"credit_decay":0.5}`)
	for _, rows := range []int{64, 1024} {
		b.Run(fmt.Sprintf("decay/candidates=%d", rows), func(b *testing.B) { takeTurns(b, all, rows) })
	}
}

// turns is how often each form has its turn.
const turns = 25

// takeTurns measures the forms in turns over one table. The first is the native
// twin.
func takeTurns(b *testing.B, all []*form, rows int) {
	for _, f := range all {
		f.prepare(b, rows, all[0].outcome)
	}
	for range turns {
		for _, f := range all {
			f.took.add(float64(f.decide(b, f.batch)) / float64(f.batch))
		}
	}
	names, told := []string{}, map[string]figures{}
	for _, f := range all {
		names = append(names, f.name)
		told[f.name] = f.figures(rows, all[0])
	}
	report(b, names, told)
}

// form is one of the forms of the policy.
type form struct {
	name string
	way
	batch   int     // decisions of one round
	outcome outcome // of its last preparation
	took    series  // CPU time of a decision in nanoseconds
}

// way makes decisions.
type way interface {
	// set takes a table and tells what is decided.
	set(b *testing.B, t *policy.Table) outcome
	// decide makes n decisions and returns the CPU time of the thread that made
	// them.
	decide(b *testing.B, n int) time.Duration
	// fuel is what the last decision used; 0 where nothing is metered.
	fuel() uint64
}

// outcome is what was decided: the row, and a digest of the scores' bits.
type outcome struct {
	row    int
	scores uint64
}

// newForms makes the product's forms with a configuration, the native twin
// first.
func newForms(b *testing.B, files map[string]string, config string) []*form {
	all := []*form{{name: "native", way: newDecider(b, "builtin:kv-aware", config, nil)}}
	src := newGuests(b)
	for _, name := range []string{"simd", "scalar", "go"} {
		all = append(all, &form{name: name, way: newDecider(b, "module:"+name, config, src.with(name, files[name]))})
	}
	return all
}

// newOutsiders makes the forms that are other programs'; none without those.
func newOutsiders(b *testing.B, files map[string]string) (all []*form) {
	folder := os.Getenv("BENCH_EXTISM")
	if folder == "" {
		return nil
	}
	program := filepath.Join(folder, "extism")
	for _, name := range []string{"simd", "scalar", "go"} {
		all = append(all, &form{name: name + "-unmetered", way: startOutsider(b, program, "bare", files[name])})
	}
	return append(all, &form{name: "extism-json", way: startOutsider(b, program, "extism", filepath.Join(folder, "guest.wasm"))})
}

// prepare sets the table and finds how many decisions make a round of at least
// 10 ms. Any outcome but the native twin's ends the benchmark; want is that.
func (f *form) prepare(b *testing.B, rows int, want outcome) {
	f.took = nil
	t := &policy.Table{}
	fill(t, kvColumns(b), rows)
	f.outcome = f.set(b, t)
	if f.name != "native" && f.outcome != want {
		b.Fatalf("%s decides %+v, native %+v", f.name, f.outcome, want)
	}
	for f.batch = 1; f.decide(b, f.batch) < 10*time.Millisecond; {
		f.batch *= 2
	}
}

func (f *form) figures(rows int, native *form) figures {
	told := figures{
		"ns/decision":  f.took.median(),
		"ns/candidate": f.took.median() / float64(rows),
	}
	if f != native {
		told["x-native"] = f.took.over(native.took)
	}
	if used := f.fuel(); used > 0 {
		told["fuel"] = float64(used)
	}
	return told
}

// decider is the product's way.
type decider struct {
	revision *policy.Revision
	table    *policy.Table
	decision policy.Decision
}

var _ way = (*decider)(nil)

func newDecider(b *testing.B, use, config string, src policy.StageSource) *decider {
	spec := policy.Spec{Scorers: []policy.ScorerSpec{{StageSpec: policy.StageSpec{Use: use, Config: json.RawMessage(config)}}}}
	return &decider{revision: revisionOf(b, spec, src)}
}

// revisionOf makes a revision that ends with the test.
func revisionOf(tb testing.TB, spec policy.Spec, src policy.StageSource) *policy.Revision {
	tb.Helper()
	p, digests, err := policy.Compile(context.Background(), spec, src)
	if err != nil {
		tb.Fatal(err)
	}
	r := policy.NewRevision("bench", 1, spec, p, digests)
	tb.Cleanup(func() {
		r.Retire()
		<-r.Closed()
		if err := r.CloseErr(); err != nil {
			tb.Error(err)
		}
	})
	return r
}

// set waits for the frame to grow with the table.
func (d *decider) set(b *testing.B, t *policy.Table) outcome {
	d.table = t
	decideWhenGrown(b, d.revision, t, &d.decision)
	return outcome{d.decision.Row, digest(d.decision.Totals)}
}

// decideWhenGrown makes one decision; while the guest's frame is too small for
// the table it makes it again.
func decideWhenGrown(tb testing.TB, r *policy.Revision, t *policy.Table, d *policy.Decision) {
	tb.Helper()
	late := time.After(time.Minute)
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	for {
		if err := r.Decide(context.Background(), t, d); err != nil {
			tb.Fatal(err)
		}
		if d.Fault == nil {
			return
		}
		if d.Fault.Reason != "capacity" {
			tb.Fatalf("fault %v", d.Fault)
		}
		select {
		case <-again.C:
		case <-late:
			tb.Fatalf("no frame for %d rows after a minute", t.Len())
		}
	}
}

func (d *decider) decide(b *testing.B, n int) time.Duration {
	ctx := context.Background()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	begun := threadTime()
	for range n {
		if err := d.revision.Decide(ctx, d.table, &d.decision); err != nil {
			b.Fatal(err)
		}
		if d.decision.Fault != nil || d.decision.By != policy.ByPolicy {
			b.Fatalf("decided by %s, fault %v", d.decision.By, d.decision.Fault)
		}
	}
	return threadTime() - begun
}

// threadTime is the CPU time of this thread. Audits and the collector's threads
// are not in it.
func threadTime() time.Duration { return clockTime(unix.CLOCK_THREAD_CPUTIME_ID) }

// clockTime is what a clock of the system says.
func clockTime(clock int32) time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(clock, &t); err != nil {
		panic(err) // it fails for bad arguments alone
	}
	return time.Duration(t.Nano())
}

func (d *decider) fuel() uint64 { return d.decision.Fuel }

// kvColumns are the columns that kv-aware reads.
func kvColumns(tb testing.TB) policy.ColumnSet {
	tb.Helper()
	s, err := policy.Builtin("builtin:kv-aware", nil)
	if err != nil {
		tb.Fatal(err)
	}
	return s.Columns()
}

// fill makes a table by a fixed sequence of values.
func fill(t *policy.Table, set policy.ColumnSet, rows int) {
	t.Reset(rows, set)
	t.At = time.Now() // as the core says with each table
	t.Seed = 7
	t.SetField(abi.FieldISLBlocks, 64)
	t.SetField(abi.FieldISLTokens, 1024)
	t.SetField(abi.FieldBlockSize, 16)
	x := uint64(rows)
	for row := range rows {
		t.Rows[row] = fleet.Worker{ID: fleet.WorkerID(row + 1)}
	}
	for _, name := range set.Names() {
		col := t.NamedCells(name).Fill()
		for row := range col {
			x = x*6364136223846793005 + 1442695040888963407
			col[row] = float64((x >> 33) % 1000)
		}
	}
	if pref := t.Fill(abi.ColTaintPreference); pref != nil {
		for row := range pref {
			pref[row] = 1 / (1 + pref[row])
		}
	}
}
