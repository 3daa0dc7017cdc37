package policy_test

import (
	"fmt"
	"iter"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/plugins/abi"
)

// BenchmarkKVAware is the native default policy, table given, scores to pick.
func BenchmarkKVAware(b *testing.B) {
	for _, n := range []int{8, 64, 512, 1024} {
		b.Run(fmt.Sprintf("candidates=%d", n), func(b *testing.B) {
			rev := revision(b, use("builtin:kv-aware"), nil)
			t := busyTable(n, rev.Columns())
			var d policy.Decision
			b.ReportAllocs()
			before := cpu()
			for b.Loop() {
				t.Seed++
				if err := rev.Decide(b.Context(), t, &d); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(cpu()-before)/float64(b.N)/float64(n), "cpu-ns/candidate")
		})
	}
}

// BenchmarkBuiltins is every other built-in scorer and whole policy, as
// BenchmarkKVAware is.
func BenchmarkBuiltins(b *testing.B) {
	for name, spec := range builtinSpecs() {
		for _, n := range []int{8, 64, 512} {
			b.Run(fmt.Sprintf("policy=%s/candidates=%d", strings.TrimPrefix(name, policy.BuiltinPrefix), n), func(b *testing.B) {
				rev := revision(b, spec, nil)
				t := busyTable(n, rev.Columns())
				var d policy.Decision
				b.ReportAllocs()
				before := cpu()
				for b.Loop() {
					t.Seed++
					if err := rev.Decide(b.Context(), t, &d); err != nil || d.By != policy.ByPolicy {
						b.Fatal(err, d.Fault)
					}
				}
				b.ReportMetric(float64(cpu()-before)/float64(b.N)/float64(n), "cpu-ns/candidate")
			})
		}
	}
}

// builtinSpecs are specifications of one built-in stage each, in order.
func builtinSpecs() iter.Seq2[string, policy.Spec] {
	return func(yield func(string, policy.Spec) bool) {
		for _, name := range policy.Builtins() {
			if !yield(name, use(name)) {
				return
			}
		}
		for _, name := range policy.BuiltinPolicies() {
			if !yield(name, wholeOf(name, "")) {
				return
			}
		}
	}
}

// BenchmarkComposed is a filter that drops a third, two normalised scorers and a
// picker.
func BenchmarkComposed(b *testing.B) {
	thirds := &filtering{answer: func(_ *policy.Table, keep []byte) (policy.Verdict, error) {
		for row := 0; row < len(keep); row += 3 {
			keep[row] = 0
		}
		return policy.Answered, nil
	}}
	for _, p := range policy.BuiltinPickers() {
		for _, n := range []int{8, 64, 512} {
			b.Run(fmt.Sprintf("picker=%s/candidates=%d", strings.TrimPrefix(p, policy.BuiltinPrefix), n), func(b *testing.B) {
				spec := filtered([]string{"module:f"}, []string{"builtin:kv-aware", "builtin:least-load"}, func(s *policy.Spec) {
					s.Picker = picker(p)
					s.Scorers[0].Normalise, s.Scorers[1].Normalise = "minmax", "minmax"
					if p == policy.SoftmaxPicker {
						s.Picker.Config = []byte(`{"temperature":0.5}`)
					}
				})
				rev := revision(b, spec, modules{"module:f": thirds})
				t := busyTable(n, rev.Columns())
				var d policy.Decision
				b.ReportAllocs()
				before := cpu()
				for b.Loop() {
					t.Seed++
					if err := rev.Decide(b.Context(), t, &d); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(cpu()-before)/float64(b.N)/float64(n), "cpu-ns/candidate")
			})
		}
	}
}

// busyTable is a table of n ranks with uneven loads and overlaps.
func busyTable(n int, set policy.ColumnSet) *policy.Table {
	t := &policy.Table{}
	t.Reset(n, set)
	t.At = time.Now() // as the core says with each table
	t.SetField(abi.FieldBlockSize, 16)
	t.SetField(abi.FieldISLTokens, 2000)
	t.SetField(abi.FieldISLBlocks, 125)
	put := func(c abi.Column, f func(i int) float64) {
		for i := range t.Column(c) {
			t.Column(c)[i] = f(i)
		}
	}
	for i := range t.Rows {
		t.Rows[i] = fleet.Worker{ID: fleet.WorkerID(i + 1)}
	}
	t.SetField(abi.FieldSession, abi.ID("s"))
	t.SetPrefix(16, beginning("p", 125))
	put(abi.ColWorkerID, func(i int) float64 { return float64(i + 1) })
	put(abi.ColKVOverlapDevice, func(i int) float64 { return float64(i * 7 % 120) })
	put(abi.ColKVOverlapHost, func(i int) float64 { return float64(i % 3) })
	put(abi.ColLoadPrefillTokens, func(i int) float64 { return float64(i * 331 % 9000) })
	put(abi.ColLoadPotentialPrefillTokens, func(i int) float64 { return float64(i*331%9000 + 2000) })
	put(abi.ColLoadPotentialDecodeBlocks, func(i int) float64 { return float64(i*53%4000 + 125) })
	put(abi.ColLoadActiveRequests, func(i int) float64 { return float64(i % 17) })
	return t
}

func TestDecideAllocatesNothing(t *testing.T) {
	for stage, spec := range builtinSpecs() {
		rev := revision(t, spec, nil)
		table := busyTable(64, rev.Columns())
		var d policy.Decision
		if n := testing.AllocsPerRun(100, func() {
			if err := rev.Decide(t.Context(), table, &d); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations a decision; want 0", stage, n)
		}
	}
}

func TestFiltersAndPickersAllocateNothing(t *testing.T) {
	for _, p := range policy.BuiltinPickers() {
		spec := filtered([]string{"module:f", "module:g"}, []string{"builtin:kv-aware", "builtin:least-load"}, func(s *policy.Spec) {
			s.Picker = picker(p)
			s.Scorers[0].Normalise, s.Scorers[1].Normalise = "rank", "minmax"
			s.Lora = []policy.ScorerSpec{{StageSpec: policy.StageSpec{Use: policy.LoraAffinity}}}
			if p == policy.SoftmaxPicker {
				s.Picker.Config = []byte(`{"temperature":0.5}`)
			}
		})
		every := func(k int) *filtering {
			return &filtering{answer: func(_ *policy.Table, keep []byte) (policy.Verdict, error) {
				for row := 0; row < len(keep); row += k {
					keep[row] = 0
				}
				return policy.Answered, nil
			}}
		}
		rev := revision(t, spec, modules{"module:f": every(3), "module:g": every(5)})
		table := busyTable(64, rev.Columns())
		table.SetField(abi.FieldHasLora, 1)
		var d policy.Decision
		if n := testing.AllocsPerRun(100, func() {
			if err := rev.Decide(t.Context(), table, &d); err != nil || d.Mask == nil || d.By != policy.ByPolicy {
				t.Fatal(err, d.Fault)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations a decision; want 0", p, n)
		}
	}
}

// cpu is the process's processor time: on a machine that others use too, the
// clock tells more of them than of us.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
