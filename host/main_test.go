package host_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/host"
	"github.com/routerd/routerd/host/wasmtest"
	"github.com/routerd/routerd/plugins/abi"
)

// TestMain makes this binary a compile child when it is started as one.
func TestMain(m *testing.M) {
	if host.IsCompileChild(os.Args) {
		os.Exit(host.CompileChildMain(os.Args, os.Stdin, os.Stdout))
	}
	if len(os.Args) == 3 && os.Args[1] == crashCommand {
		fmt.Fprintln(os.Stderr, changeUntilKilled(os.Args[2]))
		os.Exit(1)
	}
	if len(os.Args) == 3 && (os.Args[1] == burnCommand || os.Args[1] == eatCommand || os.Args[1] == orphanCommand) {
		runIntoLimit(os.Args[1], os.Args[2])
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// newRuntime makes a runtime that compiles in this process.
func newRuntime(t testing.TB, change ...func(*host.Config)) *host.Runtime {
	t.Helper()
	cfg := host.DefaultConfig()
	cfg.CallDeadline, cfg.PoolWait = 5*time.Second, 5*time.Second // a crowded machine misses 10 and 20 ms
	for _, c := range change {
		c(&cfg)
	}
	r, err := host.New(cfg, slog.New(slog.DiscardHandler), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil { // ends an audit that holds on to its module
			t.Error(err)
		}
		if u := r.Usage(); u.Instances != 0 || u.Modules != 0 || u.Pools != 0 || u.Memory != 0 || u.Mapped != 0 {
			t.Errorf("usage after the test: got %+v, want zero", u)
		}
	})
	return r
}

// loaded makes a scorer without configuration.
func loaded(ctx context.Context, r *host.Runtime, use string, wasm []byte) (policy.Scorer, error) {
	s, err := r.Stage(ctx, abi.KindScorer, use, wasm, host.Digest(wasm), nil)
	if err != nil {
		return nil, err
	}
	return s.(policy.Scorer), nil
}

// stage loads a guest that must be accepted as a scorer.
func stage(t testing.TB, r *host.Runtime, wasm []byte, config string) policy.Scorer {
	t.Helper()
	return staged[policy.Scorer](t, r, abi.KindScorer, wasm, config)
}

// staged loads a guest that must be accepted as a kind.
func staged[S policy.Stage](t testing.TB, r *host.Runtime, kind abi.Kind, wasm []byte, config string) S {
	t.Helper()
	s, err := r.Stage(context.Background(), kind, "module:test", wasm, host.Digest(wasm), json.RawMessage(config))
	if err != nil {
		t.Fatalf("load guest: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s.(S)
}

// refused loads a guest that must be refused and returns why.
func refused(t testing.TB, r *host.Runtime, wasm []byte, config string) *host.LoadError {
	t.Helper()
	s, err := r.Stage(context.Background(), abi.KindScorer, "module:test", wasm, host.Digest(wasm), json.RawMessage(config))
	if err == nil {
		_ = s.Close()
		t.Fatal("the guest was accepted")
	}
	var le *host.LoadError
	if !errors.As(err, &le) {
		t.Fatalf("got error %T %v, want a LoadError", err, err)
	}
	if u := r.Usage(); u.Instances != 0 && u.Pools == 0 {
		t.Errorf("a refused module left %d instances", u.Instances)
	}
	return le
}

// table has n rows whose load.active_requests are 0, 1, 2, …
func table(s policy.Scorer, n int) *policy.Table {
	t := &policy.Table{}
	t.Reset(n, s.Columns())
	for row, col := 0, t.Fill(abi.ColLoadActiveRequests); row < len(col); row++ {
		col[row] = float64(row)
	}
	return t
}

// score calls once and commits.
func score(s policy.Scorer, n int) ([]float64, policy.StageReport, error) {
	var r policy.StageReport
	scores := make([]float64, n)
	_, err := s.Score(context.Background(), table(s, n), scores, &r)
	if r.Effects != nil {
		r.Effects.Publish()
	}
	return scores, r, err
}

// faulted calls once and returns the fault that must be the answer.
func faulted(t testing.TB, s policy.Scorer, n int) *policy.Fault {
	t.Helper()
	_, _, err := score(s, n)
	var f *policy.Fault
	if !errors.As(err, &f) {
		t.Fatalf("got error %v, want a fault", err)
	}
	return f
}

func good() []byte { return wasmtest.Guest{}.Bytes() }

// guardOff makes a revision that never trips.
func guardOff() policy.RevisionOption {
	var off atomic.Bool
	off.Store(true)
	return policy.GuardSwitch(&off)
}
