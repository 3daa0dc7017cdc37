package bench_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/host"
	"github.com/routerd/routerd/plugins/abi"
)

// BenchmarkPolicyDecision is one decision of a revision over a table that is
// ready: for the guest that is frame, metered call, check of the scores and
// pick; for its native twin the scores and the pick. Both make the same choice.
// The single call without the pipeline around it is host's BenchmarkPolicyCall.
func BenchmarkPolicyDecision(b *testing.B) {
	native := newDecider(b, "builtin:kv-aware", nil)
	guest := newDecider(b, "module:kv-aware", newGuests(b))
	for _, rows := range []int{8, 64, 1024} {
		b.Run(fmt.Sprintf("candidates=%d", rows), func(b *testing.B) {
			native.prepare(b, rows)
			guest.prepare(b, rows)
			if native.decision.Row != guest.decision.Row {
				b.Fatalf("native picks row %d, the guest %d", native.decision.Row, guest.decision.Row)
			}
			for range 15 {
				native.round(b)
				guest.round(b)
			}
			report(b, []string{"native", "go-guest"}, map[string]figures{
				"native":   native.figures(native),
				"go-guest": guest.figures(native),
			})
		})
	}
}

// decider makes decisions by one revision and measures them.
type decider struct {
	revision *policy.Revision
	table    policy.Table
	decision policy.Decision
	batch    int    // decisions of one round
	took     series // CPU time of a decision in nanoseconds
}

func newDecider(b *testing.B, use string, src policy.StageSource) *decider {
	spec := policy.Spec{Scorers: []policy.ScorerSpec{{StageSpec: policy.StageSpec{Use: use}}}}
	p, digests, err := policy.Compile(context.Background(), spec, src)
	if err != nil {
		b.Fatal(err)
	}
	d := &decider{revision: policy.NewRevision("bench", 1, spec, p, digests)}
	b.Cleanup(func() {
		d.revision.Retire()
		<-d.revision.Closed()
		if err := d.revision.CloseErr(); err != nil {
			b.Error(err)
		}
	})
	return d
}

// prepare fills the table and finds how many decisions make a round of at least
// 10 ms.
func (d *decider) prepare(b *testing.B, rows int) {
	fill(&d.table, d.revision.Columns(), rows)
	d.took = nil
	for d.batch = 16; ; d.batch *= 2 {
		if d.decide(b) >= 10*time.Millisecond {
			return
		}
	}
}

func (d *decider) figures(native *decider) figures {
	f := figures{
		"ns/decision":  d.took.median(),
		"ns/candidate": d.took.median() / float64(d.table.Len()),
	}
	if d != native {
		f["fuel"] = float64(d.decision.Fuel)
		f["x-native"] = d.took.over(native.took)
	}
	return f
}

func (d *decider) round(b *testing.B) { d.took.add(float64(d.decide(b)) / float64(d.batch)) }

// decide makes a batch of decisions and returns the CPU time of all.
func (d *decider) decide(b *testing.B) time.Duration {
	ctx := context.Background()
	begun := cpuTime()
	for range d.batch {
		if err := d.revision.Decide(ctx, &d.table, &d.decision); err != nil {
			b.Fatal(err)
		}
		if d.decision.Fault != nil || d.decision.By != policy.ByPolicy {
			b.Fatalf("decided by %s, fault %v", d.decision.By, d.decision.Fault)
		}
	}
	return cpuTime() - begun
}

// fill makes a table by a fixed sequence of values.
func fill(t *policy.Table, set policy.ColumnSet, rows int) {
	t.Reset(rows, set)
	t.Seed = 7
	t.SetField(abi.FieldISLBlocks, 64)
	t.SetField(abi.FieldISLTokens, 1024)
	t.SetField(abi.FieldBlockSize, 16)
	x := uint64(rows)
	for row := range rows {
		t.Rows[row] = fleet.Worker{ID: fleet.WorkerID(row + 1)}
	}
	for _, name := range set.Names() {
		col := t.Named(name)
		for row := range col {
			x = x*6364136223846793005 + 1442695040888963407
			col[row] = float64((x >> 33) % 1000)
		}
	}
	if pref := t.Column(abi.ColTaintPreference); pref != nil {
		for row := range pref {
			pref[row] = 1 / (1 + pref[row])
		}
	}
}

// guests makes stages of the Go-written kv-aware.
type guests struct {
	runtime *host.Runtime
	wasm    []byte
}

var _ policy.StageSource = (*guests)(nil)

func newGuests(b *testing.B) *guests {
	wasm, err := os.ReadFile(buildKVAware(b))
	if err != nil {
		b.Fatal(err)
	}
	cfg := host.DefaultConfig()
	cfg.CallDeadline = time.Second // a crowded machine may hold a call up for longer than 10 ms
	rt, err := host.New(cfg, slog.New(slog.DiscardHandler), nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { rt.Close() })
	return &guests{rt, wasm}
}

// Scorer makes a stage, whatever its name.
func (g *guests) Stage(ctx context.Context, kind abi.Kind, use string, config json.RawMessage) (policy.Stage, string, error) {
	digest := host.Digest(g.wasm)
	s, err := g.runtime.Stage(ctx, kind, use, g.wasm, digest, config)
	return s, digest, err
}
