package host_test

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/host"
	"github.com/routerd/routerd/host/pack"
	. "github.com/routerd/routerd/host/wasmtest"
	"github.com/routerd/routerd/plugins/abi"
)

// buildExample builds a Go guest of plugins/examples and packs it.
func buildExample(t testing.TB, name string) []byte {
	t.Helper()
	dir := filepath.Join("..", "plugins", "examples", name)
	manifest, err := os.ReadFile(filepath.Join(dir, "manifest.json"))
	if err != nil {
		t.Fatal(err)
	}
	return buildGuest(t, dir, "", manifest)
}

// buildGuest builds the Go guest in a folder and packs it.
func buildGuest(t testing.TB, dir, flags string, manifest []byte) []byte {
	t.Helper()
	out := filepath.Join(t.TempDir(), "guest.wasm")
	cmd := exec.Command("go", "build", "-buildmode=c-shared", "-trimpath", "-ldflags=-s -w "+flags, "-o", out, "./"+dir)
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0")
	if b, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", dir, err, b)
	}
	raw, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	wasm, report, err := pack.Pack(context.Background(), raw, manifest, nil)
	if err != nil {
		t.Fatalf("pack %s: %v", dir, err)
	}
	t.Logf("%s: %d bytes, fuel %v for rows %v", dir, report.Size, report.Measured.Fuel, report.Measured.Rows)
	return wasm
}

// liveTable is a table as a decision makes it, values by a fixed sequence.
func liveTable(set policy.ColumnSet, n int) *policy.Table {
	t := &policy.Table{}
	t.Reset(n, set)
	x := uint64(n)
	next := func(m uint64) float64 {
		x = x*6364136223846793005 + 1442695040888963407
		return float64((x >> 33) % m)
	}
	t.Seed = 7
	t.SetField(abi.FieldISLBlocks, 64)
	t.SetField(abi.FieldISLTokens, 1024)
	t.SetField(abi.FieldBlockSize, 16)
	for _, name := range set.Names() {
		for row, col := 0, t.NamedCells(name).Fill(); row < n; row++ {
			col[row] = next(1000)
		}
	}
	if pref := t.Fill(abi.ColTaintPreference); pref != nil {
		for row := range pref {
			pref[row] = 1 / (1 + next(4))
		}
	}
	return t
}

func BenchmarkPolicyCall(b *testing.B) {
	native, err := policy.Builtin("builtin:kv-aware", nil)
	if err != nil {
		b.Fatal(err)
	}
	cfg := host.DefaultConfig()
	cfg.CallDeadline = time.Second
	rt, err := host.New(cfg, slog.New(slog.DiscardHandler), nil)
	if err != nil {
		b.Fatal(err)
	}
	defer rt.Close()
	wasm := buildExample(b, "kv-aware")
	guest, err := loaded(context.Background(), rt, "module:kv-aware", wasm)
	if err != nil {
		b.Fatal(err)
	}
	defer guest.Close()
	hand := Guest{}.Bytes()
	plain, err := loaded(context.Background(), rt, "module:plain", hand)
	if err != nil {
		b.Fatal(err)
	}
	defer plain.Close()
	for _, n := range []int{8, 64, 1024} {
		took := map[string]float64{}
		for _, s := range []struct {
			name string
			s    policy.Scorer
		}{{"native", native}, {"go-guest", guest}, {"one-column-guest", plain}} {
			b.Run(fmt.Sprintf("%s/rows=%d", s.name, n), func(b *testing.B) {
				t := liveTable(s.s.Columns(), n)
				scores := make([]float64, n)
				var r policy.StageReport
				ctx := context.Background()
				b.ReportAllocs()
				for b.Loop() {
					if _, err := s.s.Score(ctx, t, scores, &r); err != nil {
						b.Fatal(err)
					}
				}
				took[s.name] = float64(b.Elapsed().Nanoseconds()) / float64(b.N)
				if took["native"] > 0 {
					b.ReportMetric(took[s.name]/took["native"], "x-native")
				}
			})
		}
	}
}

func BenchmarkLoadFromTheCache(b *testing.B) {
	child, err := host.NewChild()
	if err != nil {
		b.Fatal(err)
	}
	cfg := host.DefaultConfig()
	cfg.Compiler, cfg.CacheDir = child, b.TempDir()
	rt, err := host.New(cfg, slog.New(slog.DiscardHandler), nil)
	if err != nil {
		b.Fatal(err)
	}
	defer rt.Close()
	for _, g := range []struct {
		name string
		wasm []byte
	}{{"small", good()}, {"go-guest", buildExample(b, "kv-aware")}} {
		load := func(b *testing.B) {
			s, err := loaded(context.Background(), rt, "module:x", g.wasm)
			if err != nil {
				b.Fatal(err)
			}
			if err := s.Close(); err != nil {
				b.Fatal(err)
			}
		}
		b.Run(g.name, func(b *testing.B) {
			load(b) // compiles
			for b.Loop() {
				load(b)
			}
		})
	}
}

// firstOther is the first row whose bits differ, -1 for none.
func firstOther(a, b []float64) int {
	for i := range a {
		if math.Float64bits(a[i]) != math.Float64bits(b[i]) {
			return i
		}
	}
	return -1
}

func sameBits(a, b []float64) bool { return len(a) == len(b) && firstOther(a, b) < 0 }
