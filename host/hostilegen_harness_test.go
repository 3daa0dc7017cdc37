package host_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/host"
	"github.com/routerd/routerd/host/smith/hostiletest"
	"github.com/routerd/routerd/plugins/abi"
)

// What a hostile module may take.
const (
	// childWall ends a compile child (ABI §7), shortChildWall where thousands are compiled.
	childWall      = time.Minute
	shortChildWall = childWall / 10
	// hostileWall is how long a module may take in all: then the run ends with a trace of all goroutines.
	hostileWall = 2 * childWall
	// hostileCall is how long a call with its fallback may take (W1).
	hostileCall = 30 * time.Millisecond
	// hostileMemory is plugins.memory_limit here: small enough for two guests of 64 MiB to pass it.
	hostileMemory = 96 << 20
	// hostileSlack is what the host may keep beside guest memory: the module itself up to 8 MiB, its
	// decoded and metered forms, native stacks of 8 MiB, and what the test holds.
	hostileSlack = 96 << 20
)

// hostileSteps are the steps of the load pipeline that look at a module's bytes.
var hostileSteps = []string{
	"size", "section walk", "function bodies", "fuel rewrite", host.StepManifest, host.StepImports, host.StepExports,
	host.StepValidate, host.StepCompile, host.StepStart, host.StepConfigure, host.StepBind, host.StepSelfTest,
}

// hostileReasons are the reasons of faults that a guest can cause.
var hostileReasons = []string{
	"fuel", "deadline", "unwritten", "nan", "range", "mask", "pick", "guest_error", "bad_code", "out_flags", "bad_import_argument", "abort", "exit",
	"memory", "stack", "unreachable", "out_of_bounds", "divide_by_zero", "integer_overflow", "conversion", "table_access",
	"indirect_call", "null_reference", "stack_overflow", "pool_wait", "trap",
}

// hostileRun takes specimens through a runtime as serve has it: compile child,
// compiled cache, default deadline.
type hostileRun struct {
	rt       *host.Runtime
	memory   int64 // plugins.memory_limit
	examples [][]byte
	routines int    // before the module
	now      string // name of the module
	peak     int64
	endings  map[string]int // how often each ending was seen
}

func newHostileRun(t *testing.T, memory int64, wall time.Duration, examples ...[]byte) *hostileRun {
	t.Helper()
	child, err := host.NewChild()
	if err != nil {
		t.Fatal(err)
	}
	child.SetWall(wall)
	cfg := host.DefaultConfig()
	cfg.Compiler, cfg.CacheDir, cfg.MemoryLimit, cfg.Instances = child, t.TempDir(), memory, 2
	rt, err := host.New(cfg, slog.New(slog.DiscardHandler), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := rt.Close(); err != nil {
			t.Error(err)
		}
	})
	return &hostileRun{rt: rt, memory: memory, routines: runtime.NumGoroutine(), examples: examples, endings: map[string]int{}}
}

// specimen is the n-th of the sequence, each from a seed of its own, so that one
// can be made again without the others.
func (h *hostileRun) specimen(n int) hostiletest.Specimen {
	return hostiletest.Module(rand.New(rand.NewPCG(uint64(n), 4)), n, h.examples...)
}

// take loads a specimen, calls it, closes it and checks all that must hold.
func (h *hostileRun) take(t *testing.T, sp hostiletest.Specimen) {
	t.Helper()
	h.now = sp.Name
	began := time.Now()
	late := time.AfterFunc(hostileWall, func() { panic(sp.Name + ": still not done after " + hostileWall.String()) })
	defer late.Stop()
	s, err := loadedAs(context.Background(), h.rt, sp)
	h.checkLoad(t, sp, err)
	if err == nil {
		h.calls(t, sp, s)
		h.checkMemory(t)
		if err := s.Close(); err != nil {
			h.errorf(t, "close: %v", err)
		}
	}
	h.checkNothingLeft(t)
	if took := time.Since(began); took > time.Second {
		t.Logf("%s took %s", sp.Name, took.Round(time.Millisecond))
	}
}

// errorf names the module.
func (h *hostileRun) errorf(t *testing.T, format string, args ...any) {
	t.Helper()
	t.Errorf("%s: "+format, append([]any{h.now}, args...)...)
}

// checkLoad holds how the load ended against what must be.
func (h *hostileRun) checkLoad(t *testing.T, sp hostiletest.Specimen, err error) {
	t.Helper()
	if err == nil {
		h.endings[sp.Family+": loads"]++
		if !sp.Want.Loads && !sp.Want.Any {
			h.errorf(t, "loaded, want refused: %v", sp.Want.Refused)
		}
		return
	}
	var le *host.LoadError
	if !errors.As(err, &le) {
		h.errorf(t, "got error %T %v, want a LoadError", err, err)
		return
	}
	h.endings[fmt.Sprintf("%s: %s at %s", sp.Family, le.Code, le.Step)]++
	known := slices.ContainsFunc(abi.HostCodes(), func(c abi.HostCodeInfo) bool { return c.Code == le.Code })
	if !known || !slices.Contains(hostileSteps, le.Step) {
		h.errorf(t, "got %v at step %q, want a code and a step of the ABI", le, le.Step)
	}
	if text := le.Error(); le.Item == "" || len(text) > 4096 || strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c == 0x7f || c == 0x202e }) {
		h.errorf(t, "got %.300q (%d bytes), want an item, printable and short", text, len(text))
	}
	wants := slices.Concat(sp.Want.Refused, sp.Want.Also)
	if !sp.Want.Any && !slices.ContainsFunc(wants, func(r hostiletest.Refusal) bool {
		return r.Step == le.Step && r.Code == string(le.Code) && strings.Contains(le.Item, r.Item)
	}) {
		h.errorf(t, "got %v, want one of %+v", le, wants)
	}
}

// calls are some as any other and some with the seed that lets a guest go
// wrong, in turns.
func (h *hostileRun) calls(t *testing.T, sp hostiletest.Specimen, s policy.Scorer) {
	t.Helper()
	for i, rows := range []int{1, 7, 64, 1000} {
		h.ordinary(t, sp, s, rows)
		if i < 3 {
			h.wrong(t, sp, s, rows)
		}
	}
	h.ordinary(t, sp, s, 5)
	// More rows than the frame was made for.
	if fault, _ := h.call(s, 1025, 1); !sp.Want.Wild && fault != nil && !slices.Contains([]string{"capacity", "pool_wait", "deadline"}, fault.Reason) {
		h.errorf(t, "1025 rows: got %v, want an answer or capacity", fault)
	}
}

// ordinary must be answered as a good guest does, whatever calls were before.
func (h *hostileRun) ordinary(t *testing.T, sp hostiletest.Specimen, s policy.Scorer, rows int) {
	t.Helper()
	fault, scores := h.patient(t, s, rows, rand.Uint64()|1<<40)
	if fault != nil {
		if !sp.Want.Wild || !slices.Contains(hostileReasons, fault.Reason) {
			h.errorf(t, "ordinary call with %d rows: %v", rows, fault)
		}
		return
	}
	for row, v := range scores {
		if math.IsNaN(v) || math.IsInf(v, 0) || !sp.Want.Wild && v != 0-float64(row) {
			h.errorf(t, "ordinary call with %d rows: row %d has %v, want %v", rows, row, v, -float64(row))
			return
		}
	}
}

// wrong is a call with the seed that a guest waits for.
func (h *hostileRun) wrong(t *testing.T, sp hostiletest.Specimen, s policy.Scorer, rows int) {
	t.Helper()
	if sp.Want.Faults == nil {
		return
	}
	fault, _ := h.patient(t, s, rows, hostiletest.TriggerSeed)
	reason := ""
	if fault != nil {
		reason = fault.Reason
	}
	h.endings[sp.Family+": "+reason+" in a call"]++
	wants := sp.Want.Faults
	if slices.Contains(wants, "fuel") {
		wants = append(slices.Clone(wants), "deadline")
	}
	if !slices.Contains(wants, reason) {
		h.errorf(t, "call with %d rows: got %v, want one of %q", rows, fault, wants)
	}
	if fault != nil && (len(fault.Detail) > 512 || fault.Detail == "" || fault.Code == "") {
		h.errorf(t, "call with %d rows: got %+v, want a code and 1 to 512 bytes of detail", rows, fault)
	}
}

// patient makes a call up to ten times while it took too long or no instance
// came free, which on a crowded machine says nothing of the guest.
func (h *hostileRun) patient(t *testing.T, s policy.Scorer, rows int, seed uint64) (fault *policy.Fault, scores []float64) {
	t.Helper()
	var took time.Duration
	for range 10 {
		began := time.Now()
		fault, scores = h.call(s, rows, seed)
		took = time.Since(began)
		crowded := fault != nil && (fault.Reason == "pool_wait" || fault.Reason == "deadline" && seed != hostiletest.TriggerSeed)
		if took <= hostilePatience*hostileCall && !crowded {
			return fault, scores
		}
	}
	if took > hostilePatience*hostileCall {
		h.errorf(t, "call with %d rows: took %s at the tenth time too, want at most %s (asserted at %d times)", rows, took, hostileCall, hostilePatience)
	}
	return fault, scores
}

func (h *hostileRun) call(s policy.Scorer, rows int, seed uint64) (*policy.Fault, []float64) {
	tab := &policy.Table{}
	tab.Reset(rows, s.Columns())
	for row, col := 0, tab.Column(abi.ColLoadActiveRequests); row < len(col); row++ {
		col[row] = float64(row)
	}
	tab.Seed = seed
	scores := make([]float64, rows)
	verdict, err := s.Score(context.Background(), tab, scores, &policy.StageReport{})
	if err == nil {
		if verdict == policy.Abstained {
			clear(scores)
		}
		return nil, scores
	}
	var f *policy.Fault
	if !errors.As(err, &f) {
		f = &policy.Fault{Reason: "no fault", Detail: err.Error()}
	}
	return f, scores
}

// checkMemory holds the heap after a collection and what guests see of theirs
// against the limit. Address space is reserved beyond that: the maximum of each
// instance.
func (h *hostileRun) checkMemory(t *testing.T) {
	t.Helper()
	// An audit, of one of 1,024 calls, has an instance for itself, and gives it back.
	const most = int64(2*abi.MaxPages) << 16
	eventually(t, fmt.Sprintf("%s: at most 2 instances with %d MiB of address space", h.now, most>>20), func() bool {
		u := h.rt.Usage()
		return u.Mapped <= most && u.Instances <= 2
	})
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	u := h.rt.Usage()
	held := int64(m.HeapAlloc) + u.Memory
	h.peak = max(h.peak, held)
	if u.Memory > h.memory || held > h.memory+hostileSlack {
		h.errorf(t, "memory: guests see %d MiB, %d MiB with the heap; want at most %d and %d", u.Memory>>20, held>>20, h.memory>>20, (h.memory+hostileSlack)>>20)
	}
}

// lateRoutines may come to those of the beginning: the runtime's auditor, which the first audit starts,
// and a subtest's.
const lateRoutines = 2

// checkNothingLeft waits for what works behind a call to end: then nothing may be there any more.
func (h *hostileRun) checkNothingLeft(t *testing.T) {
	t.Helper()
	for end := time.After(10 * time.Second); h.rt.Usage() != (host.Usage{}) || runtime.NumGoroutine() > h.routines+lateRoutines; {
		select {
		case <-end:
			h.errorf(t, "after close: got %+v and %d goroutines, want nothing and at most %d", h.rt.Usage(), runtime.NumGoroutine(), h.routines+lateRoutines)
			return
		case <-time.After(time.Millisecond):
		}
	}
}
