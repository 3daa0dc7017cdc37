package host_test

import (
	"bytes"
	"context"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/host"
	. "github.com/routerd/routerd/host/wasmtest"
	"github.com/routerd/routerd/internal/testkit"
	"github.com/routerd/routerd/plugins/abi"
)

// everyImport is a guest that imports all of WASI; where says which function a
// test wants.
func everyImport() (imports [][4]string, where map[string]uint64) {
	letters := map[abi.ValType]string{abi.I32: "i", abi.I64: "l", abi.F64: "d"}
	text := func(ts []abi.ValType) (s string) {
		for _, v := range ts {
			s += letters[v]
		}
		return s
	}
	where = map[string]uint64{}
	for _, i := range abi.Imports() {
		if i.Module == abi.ModuleWASI {
			where[i.Name] = uint64(len(imports))
			imports = append(imports, [4]string{i.Module, i.Name, text(i.Params), text(i.Results)})
		}
	}
	return imports, where
}

// constantOf is a guest that gives every row the f64 that value pushes.
func constantOf(imports [][4]string, value Code) Guest {
	return Guest{Imports: imports, Score: Constant(value), ScoreTypes: ColumnTypes}
}

func one(t *testing.T, g Guest) float64 {
	t.Helper()
	scores, _, err := score(stage(t, newRuntime(t), g.Bytes(), ""), 1)
	if err != nil {
		t.Fatal(err)
	}
	return scores[0]
}

func TestW10_WASIGivesNoAuthority(t *testing.T) {
	imports, where := everyImport()
	args := func(n int, long ...int) Code {
		var c Code
		for i := range n {
			isLong := false
			for _, l := range long {
				isLong = isLong || l == i
			}
			if isLong {
				c = append(c, I64(0)...)
			} else {
				c = append(c, I32(64)...)
			}
		}
		return c
	}
	for _, tc := range []struct {
		name string
		args Code
		want float64
	}{
		{"path_open", args(9, 5, 6), 8},
		{"fd_read", args(4), 8},
		{"fd_prestat_get", args(2), 8},
		{"sock_accept", args(3), 8},
		{"sock_recv", args(6), 8},
		{"fd_close", args(1), 8},
		{"path_readlink", args(6), 8},
		{"proc_raise", args(1), 52},
		{"fd_fdstat_set_rights", args(3, 1, 2), 52},
		{"sched_yield", nil, 0},
		{"args_get", args(2), 0},
		{"environ_get", args(2), 0},
		{"fd_write", args(4), 8},
		{"clock_time_get", args(3, 1), 0},
		{"clock_res_get", args(2), 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := one(t, constantOf(imports, Cat(tc.args, Call(where[tc.name]), Op(F64ConvertU)))); got != tc.want {
				t.Errorf("errno: got %v, want %v", got, tc.want)
			}
		})
	}
}

func TestWASIClockIsVirtualAndRestarts(t *testing.T) {
	imports, where := everyImport()
	read := Cat(I32(0), I64(1), I32(512), Call(where["clock_time_get"]), Op(Drop))
	// The first row reads 0, later reads add 1 µs each; every row reads once.
	g := Guest{Imports: imports, ScoreTypes: ColumnTypes, Score: Constant(read, I32(512), LoadI64(0), Op(0xb9))} // f64.convert_i64_s
	s := stage(t, newRuntime(t), g.Bytes(), "")
	for range 2 {
		got, _, err := score(s, 3)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]float64{0, 1000, 2000}, got); diff != "" {
			t.Errorf("clock in ns (-want +got):\n%s", diff)
		}
	}
}

func TestWASIPollMovesTheClockOn(t *testing.T) {
	imports, where := everyImport()
	// One clock subscription at 512 for 5 ms: type at +8 is 0, time-out at +24.
	sleep := Cat(
		I32(512), I64(5_000_000), StoreI64(24),
		I32(512), I32(768), I32(1), I32(1000), Call(where["poll_oneoff"]), Op(Drop),
	)
	read := Cat(I32(0), I64(1), I32(512), Call(where["clock_time_get"]), Op(Drop), I32(512), LoadI64(0), Op(0xb9))
	clear := Cat(I32(512), I64(0), StoreI64(0), I32(512), I64(0), StoreI64(8))
	if got := one(t, constantOf(imports, Cat(clear, sleep, read))); got != 5_000_000 {
		t.Errorf("clock after the sleep: got %v ns, want 5000000", got)
	}
}

func TestWASIRandomIsTheSameAtEachCall(t *testing.T) {
	imports, where := everyImport()
	draw := func(n int32) Code {
		return Cat(I32(512), I32(n), Call(where["random_get"]))
	}
	g := constantOf(imports, Cat(draw(8), Op(Drop), I32(512), LoadI64(0), Op(0xb9)))
	s := stage(t, newRuntime(t), g.Bytes(), "")
	first, _, err := score(s, 2)
	if err != nil {
		t.Fatal(err)
	}
	again, _, err := score(s, 2)
	if err != nil || !sameBits(first, again) || first[0] == first[1] {
		t.Errorf("got %v, then %v (%v), want one sequence that moves on and restarts", first, again, err)
	}
	if got := one(t, constantOf(imports, Cat(draw(257), Op(F64ConvertU)))); got != 28 {
		t.Errorf("257 bytes: got errno %v, want 28", got)
	}
}

// lines is a log that keeps what guests say.
type lines struct{ testkit.Log }

// all are the lines that guests said.
func (l *lines) all() (said []string) {
	for line := range strings.SplitSeq(l.String(), "\n") {
		if strings.Contains(line, "plugin says") {
			said = append(said, line)
		}
	}
	return said
}

func logging(t *testing.T, g Guest) (policy.Scorer, *lines) {
	t.Helper()
	out := &lines{}
	rt, err := host.New(host.DefaultConfig(), slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: slog.LevelDebug})), nil)
	if err != nil {
		t.Fatal(err)
	}
	wasm := g.Bytes()
	s, err := loaded(context.Background(), rt, "module:test", wasm)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if err := rt.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, out
}

func TestLogIsEscapedAndThinnedOut(t *testing.T) {
	text := "two\nlines\x1b[31m " + strings.Repeat("x", 600)
	g := Guest{
		Imports: [][4]string{{"routerd_v1", "log", "iii", ""}}, Extra: `,"imports":["log"]`, ScoreTypes: ColumnTypes,
		Score: Cat(I32(2), I32(512), I32(int32(len(text))), Call(0), Column(0, Op(F64Neg))),
		After: func(m *Module) { m.Data(512, []byte(text)) },
		// The data lies where the allocator would start.
		Alloc: Cat(I32(8192), Set(1), Get(0), I32(128), Op(0x4a), If(I32(65_536), Set(1)), Get(1)),
	}
	s, out := logging(t, g)
	for range 200 {
		if _, _, err := score(s, 1); err != nil {
			t.Fatal(err)
		}
	}
	got := out.all()
	if len(got) < 40 || len(got) > 60 {
		t.Errorf("%d lines for 200 calls at once, want a burst of 40 and little more", len(got))
	}
	if !strings.Contains(got[0], "level=WARN") || !strings.Contains(got[0], `two\\nlines\\x1b[31m`) || len(got[0]) > 1000 {
		t.Errorf("line: %s", got[0])
	}
}

func TestFdWriteBecomesLogLines(t *testing.T) {
	imports, where := everyImport()
	g := Guest{
		Imports: imports, ScoreTypes: ColumnTypes,
		// One vector at 600: 11 bytes at 512.
		Score: Cat(
			I32(600), I32(512), Store32(0), I32(600), I32(11), Store32(4),
			I32(1), I32(600), I32(1), I32(700), Call(where["fd_write"]), Op(Drop), Column(0, Op(F64Neg)),
		),
		After: func(m *Module) { m.Data(512, []byte("hello\nthere")) },
	}
	s, out := logging(t, g)
	if _, _, err := score(s, 1); err != nil {
		t.Fatal(err)
	}
	got := out.all()
	if len(got) != 2 || !strings.Contains(got[0], "text=hello") || !strings.Contains(got[1], "text=there") {
		t.Errorf("got %q, want two lines", got)
	}
}

// printing calls fd_write with 4 KiB of lines of one letter, then does rest.
func printing(rest ...Code) Code {
	return Cat(
		I32(8192), I32(16_384), Store32(0), I32(8192), I32(4096), Store32(4),
		Cat(rest...),
	)
}

// manyLines is a guest with the text of printing; import 0 is fd_write.
func manyLines(score Code) Guest {
	return Guest{
		Imports: [][4]string{{"wasi_snapshot_preview1", "fd_write", "iiii", "i"}}, ScoreTypes: ColumnTypes, Score: score,
		After: func(m *Module) { m.Data(16_384, bytes.Repeat([]byte("a\n"), 2048)) },
		// The text lies where the allocator would start.
		Alloc: Cat(I32(1024), Set(1), Get(0), I32(128), Op(0x4a), If(I32(65_536), Set(1)), Get(1)),
	}
}

// write is the call of fd_write that printing prepared.
func write() Code { return Cat(I32(1), I32(8192), I32(1), I32(8200), Call(0), Op(Drop)) }

func TestFdWriteLogsFewLinesOfOneCall(t *testing.T) {
	s, out := logging(t, manyLines(printing(write(), Column(0, Op(F64Neg)))))
	for range 2 {
		if _, _, err := score(s, 1); err != nil {
			t.Fatal(err)
		}
	}
	got := out.all()
	if len(got) != 2*8 || !strings.Contains(got[8], "dropped=2040") {
		t.Errorf("got %d lines, %q after the first 8, want 8 of each call and 2040 dropped", len(got), got[min(8, len(got)-1)])
	}
}

func TestPriceOfManyLines(t *testing.T) {
	s := stage(t, newRuntime(t), manyLines(sparing(printing(Loop(write(), Br(0))))).Bytes(), "")
	best := math.Inf(1)
	for range 5 {
		var rep policy.StageReport
		began := time.Now()
		if _, err := s.Score(context.Background(), badTable(s, 1000), make([]float64, 1000), &rep); err == nil {
			t.Fatal("no fault")
		}
		best = min(best, float64(time.Since(began).Nanoseconds())/float64(rep.Fuel))
	}
	t.Logf("%.1f ns a unit of fuel", best)
	if best > 60 {
		t.Errorf("%.1f ns a unit of fuel, want at most 60", best)
	}
}

func TestImportsAreChargedBeforeTheyWork(t *testing.T) {
	imports, where := everyImport()
	fuel := func(body Code) uint64 {
		_, r, err := score(stage(t, newRuntime(t), Guest{Imports: imports, ScoreTypes: ColumnTypes, Score: Cat(body, Column(0))}.Bytes(), ""), 1)
		if err != nil {
			t.Fatal(err)
		}
		return r.Fuel
	}
	call := Cat(Call(where["sched_yield"]), Op(Drop))
	if got := fuel(Cat(call, call)) - fuel(call); got < 500 || got > 520 {
		t.Errorf("one more sched_yield costs %d fuel, want 500 and the call", got)
	}
	random := func(n int32) Code { return Cat(I32(512), I32(n), Call(where["random_get"]), Op(Drop)) }
	if got := fuel(random(256)) - fuel(random(0)); got < 16 || got > 18 {
		t.Errorf("256 bytes cost %d fuel more than none, want 16", got)
	}
}

func TestPiecesOfALineAreOneLine(t *testing.T) {
	imports, where := everyImport()
	piece := func(fd, at, n int32) Code { // one vector at 600
		return Cat(I32(600), I32(at), Store32(0), I32(600), I32(n), Store32(4),
			I32(fd), I32(600), I32(1), I32(700), Call(where["fd_write"]), Op(Drop))
	}
	g := Guest{
		Imports: imports, ScoreTypes: ColumnTypes,
		Score: Cat(piece(2, 512, 2), piece(1, 518, 5), piece(2, 514, 6), piece(2, 520, 3), Column(0, Op(F64Neg))),
		After: func(m *Module) { m.Data(512, []byte("hello\nthere")) },
	}
	s, out := logging(t, g)
	for range 2 {
		if _, _, err := score(s, 1); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for _, line := range out.all() {
		_, text, _ := strings.Cut(line, "text=")
		got = append(got, text)
	}
	want := []string{"hello", "there", "there", "hello", "there", "there"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
