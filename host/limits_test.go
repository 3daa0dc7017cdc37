package host_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/host"
	. "github.com/routerd/routerd/host/wasmtest"
	"github.com/routerd/routerd/plugins/abi"
)

func TestLimitsChangeWhileTheRuntimeRuns(t *testing.T) {
	r := newRuntime(t)
	g := Guest{ScoreTypes: ColumnTypes, Score: sparing(Loop(Br(0))), Extra: `,"limits":{"fuel_base":500000000}`}
	s := stage(t, r, g.Bytes(), "")
	fault := func() *policy.Fault {
		t.Helper()
		_, err := s.Score(context.Background(), badTable(s, 2), make([]float64, 2), &policy.StageReport{})
		var f *policy.Fault
		if !errors.As(err, &f) {
			t.Fatalf("got %v, want a fault", err)
		}
		return f
	}
	l := r.Limits()
	l.FuelCap = 20_000
	r.SetLimits(l)
	if f := fault(); f.Reason != "fuel" || f.Fuel != 20_000 {
		t.Errorf("lower cap: got %s after %d fuel, want fuel after 20,000", f.Reason, f.Fuel)
	}
	if _, _, err := score(s, 2); err != nil {
		t.Errorf("a call within the lower cap: %v", err)
	}
	l.FuelCap, l.CallDeadline = 1_000_000_000, time.Millisecond
	r.SetLimits(l)
	if f := fault(); f.Reason != "deadline" {
		t.Errorf("short deadline: got %s", f.Reason)
	}
	l.MemoryLimit = 1 << 20
	r.SetLimits(l)
	if le := refused(t, r, Guest{Name: "large", Pages: 20}.Bytes(), ""); le.Code != abi.EPool || !strings.Contains(le.Allowed, "1048576") {
		t.Errorf("less memory: got %v", le)
	}
}

func TestLimitsAreCheckedByName(t *testing.T) {
	for field, change := range map[string]func(*host.Config){
		"plugins.call_deadline": func(c *host.Config) { c.CallDeadline = time.Minute },
		"plugins.pool_wait":     func(c *host.Config) { c.PoolWait = -1 },
		"plugins.memory_limit":  func(c *host.Config) { c.MemoryLimit = 5 },
		"plugins.fuel_cap":      func(c *host.Config) { c.FuelCap = 5 },
		"plugins.headers[0]":    func(c *host.Config) { c.Headers = []string{"X-Upper"} },
		"plugins.headers[1]":    func(c *host.Config) { c.Headers = []string{"x-a", "authorization"} },
		"plugins.headers[2]":    func(c *host.Config) { c.Headers = []string{"x-a", "x-b", "x-a"} },
	} {
		c := host.DefaultConfig()
		change(&c)
		var fe *fleet.FieldError
		if err := c.Validate(); !errors.As(err, &fe) || fe.Field != field {
			t.Errorf("got %v, want %s refused", err, field)
		}
	}
}

func TestHeadersOfTheOperatorsListAreSeenAndNoOthers(t *testing.T) {
	r := newRuntime(t, func(c *host.Config) { c.Headers = []string{"x-tier"} })
	reading := func(header string) []byte {
		return Guest{Extra: `,"request_fields":["header.` + header + `"]`, ScoreTypes: ColumnTypes, Score: Constant(Field(0))}.Bytes()
	}
	s := stage(t, r, reading("x-tier"), "")
	tab := table(s, 1)
	tab.SetHeader("x-tier", abi.ID("gold"))
	got, _ := scoresOf(t, s, tab)
	if diff := cmp.Diff([]float64{abi.ID("gold")}, got); diff != "" {
		t.Errorf("score (-want +got):\n%s", diff)
	}
	if got, _ := scoresOf(t, s, table(s, 1)); got[0] != 0 {
		t.Errorf("a request without the header: got %v", got[0])
	}
	for header, text := range map[string]string{"x-other": "plugins.headers", "authorization": "credential", "cookie": "credential", "x-api-key": "credential"} {
		le := refused(t, r, reading(header), "")
		if le.Code != abi.EManifest || !strings.Contains(le.Item, "request_fields[0] header."+header) || !strings.Contains(le.Item, text) || !strings.Contains(le.Allowed, "x-tier") {
			t.Errorf("%s: got %v", header, le)
		}
	}
}

func TestStrictOvercommitIsSeenAtTheStart(t *testing.T) {
	for name, tc := range map[string]struct {
		content string
		mapped  bool
	}{"strict": {"2\n", false}, "heuristic": {"0\n", true}, "always": {"1\n", true}, "unknown": {"", false}} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "overcommit_memory")
			if tc.content != "" {
				if err := os.WriteFile(path, []byte(tc.content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			var out bytes.Buffer
			r, err := host.NewWhere(host.DefaultConfig(), slog.New(slog.NewTextHandler(&out, nil)), path)
			if err != nil {
				t.Fatal(err)
			}
			s, err := loaded(t.Context(), r, "module:test", good())
			if err != nil {
				t.Fatal(err)
			}
			if u := r.Usage(); (u.Mapped > 0) != tc.mapped || strings.Contains(out.String(), "ordinary memory") == tc.mapped {
				t.Errorf("got %d bytes mapped and the log %q, want mapped: %t", u.Mapped, out.String(), tc.mapped)
			}
			if err := errors.Join(s.Close(), r.Close()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestLimitsThatALoadedModuleCannotLiveWithAreRefused(t *testing.T) {
	r := newRuntime(t, func(c *host.Config) { c.Headers = []string{"x-tier"} })
	reads := Guest{Name: "reads", Extra: `,"request_fields":["header.x-tier"]`}
	s := stage(t, r, reads.Bytes(), "")
	heavy := Guest{Name: "heavy", ScoreTypes: ColumnTypes, Score: Cat(
		I32(20_000), Set(1), Loop(Get(1), I32(1), Op(I32Sub), Tee(1), BrIf(0)), Column(0),
	), Extra: `,"limits":{"fuel_base":1000000}`}
	h := stage(t, r, heavy.Bytes(), "")
	good := r.Limits()
	if err := r.CheckLimits(good); err != nil {
		t.Fatalf("the limits in force are refused: %v", err)
	}
	for field, change := range map[string]func(*host.Limits){
		"plugins.headers":       func(l *host.Limits) { l.Headers = nil },
		"plugins.fuel_cap":      func(l *host.Limits) { l.FuelCap = 50_000 },
		"plugins.call_deadline": func(l *host.Limits) { l.CallDeadline = 0 },
	} {
		l := good
		change(&l)
		var fe *fleet.FieldError
		if err := r.CheckLimits(l); !errors.As(err, &fe) || fe.Field != field {
			t.Errorf("got %v, want %s refused", err, field)
		}
	}
	for _, st := range []policy.Scorer{s, h} {
		if err := st.Close(); err != nil {
			t.Fatal(err)
		}
	}
	good.Headers, good.FuelCap = nil, 50_000
	if err := r.CheckLimits(good); err != nil {
		t.Errorf("with no module in use: %v", err)
	}
}
