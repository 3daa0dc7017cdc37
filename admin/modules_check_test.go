package admin_test

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/admin"
	"github.com/routerd/routerd/host"
	"github.com/routerd/routerd/host/library"
	. "github.com/routerd/routerd/host/wasmtest"
	"github.com/routerd/routerd/internal/testkit"
	"github.com/routerd/routerd/plugins/abi"
)

// compiles is how many modules were compiled.
func (b *bench) compiles(t *testing.T) uint64 {
	t.Helper()
	families, err := b.plugins.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "routerd_plugin_compile_seconds" {
			return f.GetMetric()[0].GetHistogram().GetSampleCount()
		}
	}
	t.Fatal("no metric routerd_plugin_compile_seconds")
	return 0
}

// A module that cannot load is refused with the step, the code and the item,
// and nothing of it is kept: no name, no bytes, no compiled form.
func TestO2_AModuleThatCannotLoadIsNotStored(t *testing.T) {
	b := newBench(t)
	b.call(t, "PUT", "/v1/modules/there", guest("there")).into(t, http.StatusCreated, nil)
	before := testkit.Files(t, b.dir)
	for _, c := range []struct {
		name  string
		guest Guest
		code  abi.HostCode
		step  string
	}{
		{"the engine refuses it", Guest{Score: Op(I32Add)}, abi.EParse, host.StepValidate},
		{"its start section traps", Guest{Start: Op(Unreachable)}, abi.EInitTrap, host.StepStart},
		{"its start section loops", Guest{Start: Loop(Br(0))}, "", host.StepStart},
		{"_initialize traps", Guest{Initialize: Op(Unreachable)}, abi.EInitTrap, host.StepStart},
		{"it refuses to be configured", Guest{Configure: I32(-3)}, abi.EConfigure, host.StepConfigure},
		{"its memory is not there", Guest{Alloc: I32(0)}, abi.EInitTrap, ""},
		{"it writes no scores", Guest{Score: I32(0)}, abi.EUnwritten, host.StepSelfTest},
		{"it traps when it scores", Guest{Score: Op(Unreachable)}, abi.ETrap, host.StepSelfTest},
		{"it scores for ever", Guest{Score: Cat(Loop(Br(0)), I32(0))}, abi.EFuel, host.StepSelfTest},
	} {
		for _, path := range []string{"/v1/modules/bad", "/v1/modules/bad?dry_run=1", "/v1/modules/there"} {
			a := b.call(t, "PUT", path, c.guest.Bytes())
			f := a.failure(t)
			if a.status != http.StatusUnprocessableEntity || c.code != "" && f.Code != string(c.code) || c.step != "" && f.Details.Step != c.step || f.Details.Item == "" {
				t.Errorf("%s: %s: got %d %+v, want 422 %s at %s", c.name, path, a.status, f, c.code, c.step)
			}
		}
	}
	if diff := cmp.Diff(before, testkit.Files(t, b.dir)); diff != "" {
		t.Errorf("files changed (-before +after)\n%s", diff)
	}
	var got moduleAnswer
	b.call(t, "GET", "/v1/modules/there", nil).into(t, http.StatusOK, &got)
	if got.Digest != host.Digest(guest("there")) {
		t.Errorf("the name moved to %s", got.Digest)
	}
}

func TestTheAnswerSaysHowFarAModuleWasChecked(t *testing.T) {
	b := newBench(t)
	needs := Guest{Extra: `,"config_schema":{"type":"object","required":["x"]}`}
	for query, status := range map[string]int{"?dry_run=1": http.StatusOK, "": http.StatusCreated} {
		for name, c := range map[string]struct {
			guest Guest
			want  string
		}{"plain": {Guest{}, "configured"}, "needs": {needs, "load"}} {
			var got struct{ Checked, Source string }
			b.call(t, "PUT", "/v1/modules/"+name+query, c.guest.Bytes()).into(t, status, &got)
			if got.Checked != c.want || got.Source != "api" {
				t.Errorf("%s%s: got %+v, want %q", name, query, got, c.want)
			}
		}
	}
	if a := b.call(t, "GET", "/v1/modules/plain", nil); strings.Contains(a.body, "checked") {
		t.Errorf("GET says what only a PUT knows: %s", a.body)
	}
}

func TestADryRunKeepsNothingAndHarmsNothing(t *testing.T) {
	b := newBench(t)
	before := testkit.Files(t, b.dir)
	for range 2 {
		b.call(t, "PUT", "/v1/modules/dry?dry_run=1", guest("dry")).into(t, http.StatusOK, nil)
	}
	if diff := cmp.Diff(before, testkit.Files(t, b.dir)); diff != "" {
		t.Errorf("files changed (-before +after)\n%s", diff)
	}
	b.call(t, "GET", "/v1/modules/dry", nil).refused(t, http.StatusNotFound, "not_found", "dry")
	b.call(t, "PUT", "/v1/modules/dry", guest("dry")).into(t, http.StatusCreated, nil)
	stored := testkit.Files(t, b.dir)
	b.call(t, "PUT", "/v1/modules/dry?dry_run=1", guest("dry")).into(t, http.StatusOK, nil)
	b.call(t, "PUT", "/v1/modules/dry?dry_run=1", guest("other")).into(t, http.StatusOK, nil)
	if diff := cmp.Diff(stored, testkit.Files(t, b.dir)); diff != "" {
		t.Errorf("files changed (-before +after)\n%s", diff)
	}
}

func TestP6_TheSameBytesAreCompiledOnce(t *testing.T) {
	b := newBench(t)
	var first, again, second moduleAnswer
	b.call(t, "PUT", "/v1/modules/one", guest("same")).into(t, http.StatusCreated, &first)
	b.call(t, "PUT", "/v1/modules/one", guest("same")).into(t, http.StatusOK, &again)
	b.call(t, "PUT", "/v1/modules/two", guest("same")).into(t, http.StatusCreated, &second)
	b.call(t, "PUT", "/v1/policies/both", `{"scorers":[{"use":"module:one"},{"use":"module:two"}]}`).into(t, http.StatusCreated, nil)
	if n := b.compiles(t); n != 1 {
		t.Errorf("compiled %d times, want 1", n)
	}
	if first.Digest != again.Digest || first.Digest != second.Digest {
		t.Errorf("digests %s %s %s", first.Digest, again.Digest, second.Digest)
	}
	// One name goes, the other keeps the blob.
	b.call(t, "PUT", "/v1/modules/three", guest("same")).into(t, http.StatusCreated, nil)
	b.call(t, "PUT", "/v1/modules/two", guest("else")).into(t, http.StatusCreated, nil)
	blobs, err := os.ReadDir(filepath.Join(b.modulesDir(), "blobs"))
	if err != nil || len(blobs) != 2 {
		t.Errorf("%d blobs, %v", len(blobs), err)
	}
}

// A sender that is slow but never silent is cut all the same, and whoever sends
// meanwhile is served.
func TestP4_ASlowSenderIsCut(t *testing.T) {
	b := newBench(t, func(c *admin.Config, _ *admin.Parts) { c.ReadTimeout = time.Second })
	before := testkit.Files(t, b.modulesDir())
	c, err := net.Dial("tcp", b.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	began := time.Now()
	if _, err := io.WriteString(c, head("PUT", "/v1/modules/slow", "Content-Length: 100000")); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				if _, err := c.Write([]byte{0}); err != nil {
					return
				}
			}
		}
	}()
	b.call(t, "PUT", "/v1/modules/slow", guest("quick")).into(t, http.StatusCreated, nil)
	b.call(t, "DELETE", "/v1/modules/slow", nil).into(t, http.StatusNoContent, nil)
	if err := c.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(c)
	if err != nil || !strings.Contains(string(answer), " 408 ") {
		t.Errorf("got %q, %v, want 408 and the end", answer, err)
	}
	t.Logf("cut after %v", time.Since(began))
	b.call(t, "GET", "/v1/modules/slow", nil).refused(t, http.StatusNotFound, "not_found", "slow")
	if diff := cmp.Diff(before, testkit.Files(t, b.modulesDir())); diff != "" {
		t.Errorf("files changed (-before +after)\n%s", diff)
	}
}

func TestNamesOfTheModuleDirectoryAreNotTheAPIs(t *testing.T) {
	b := newBench(t)
	b.call(t, "PUT", "/v1/modules/mine", guest("mine")).into(t, http.StatusCreated, nil)
	path := t.TempDir()
	write := func(name string, wasm []byte) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(path, name), wasm, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("given.wasm", guest("given"))
	dir := library.NewDir(library.DirConfig{Path: path, Debounce: time.Millisecond}, b.lib, slog.New(slog.DiscardHandler))
	load := func() (got struct {
		Modules   []struct{ Name, Source string }
		Directory struct {
			Path, Error string
			AppliedAt   *time.Time `json:"applied_at"`
		}
	},
	) {
		t.Helper()
		if err := dir.Load(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.call(t, "GET", "/v1/modules", nil).into(t, http.StatusOK, &got)
		return got
	}
	got := load()
	if fmt.Sprint(got.Modules) != "[{given dir} {mine api}]" || got.Directory.Path != path || got.Directory.Error != "" || got.Directory.AppliedAt == nil {
		t.Errorf("got %+v", got)
	}
	for _, query := range []string{"", "?dry_run=1"} {
		b.call(t, "PUT", "/v1/modules/given"+query, guest("other")).refused(t, http.StatusConflict, "conflict", "source dir")
	}
	a := b.call(t, "DELETE", "/v1/modules/given", nil)
	a.refused(t, http.StatusConflict, "conflict", "source dir")
	if f := a.failure(t); f.Details.Step != "source" {
		t.Errorf("details %+v", f.Details)
	}
	// The other way round.
	write("mine.wasm", guest("theirs"))
	write("given.wasm", guest("newer"))
	got = load()
	if !strings.Contains(got.Directory.Error, "mine.wasm") || fmt.Sprint(got.Modules) != "[{given dir} {mine api}]" {
		t.Errorf("got %+v", got)
	}
	var given moduleAnswer
	b.call(t, "GET", "/v1/modules/given", nil).into(t, http.StatusOK, &given)
	if given.Digest != host.Digest(guest("given")) {
		t.Error("half a set was applied")
	}
	// A kept revision keeps its digest when the file changes.
	b.call(t, "PUT", "/v1/policies/uses", `{"scorers":[{"use":"module:given"}]}`).into(t, http.StatusCreated, nil)
	if err := os.Remove(filepath.Join(path, "mine.wasm")); err != nil {
		t.Fatal(err)
	}
	if got = load(); got.Directory.Error != "" {
		t.Errorf("got %+v", got)
	}
	if a := b.call(t, "GET", "/v1/policies/uses", nil); !strings.Contains(a.body, host.Digest(guest("given"))) {
		t.Errorf("the revision lost its digest: %s", a.body)
	}
	b.call(t, "POST", "/v1/policies/uses/activate", `{"revision":1}`).into(t, http.StatusOK, nil)
}

func TestAFullDiskIsUnavailable(t *testing.T) {
	b := newBench(t)
	if err := os.RemoveAll(b.compiledDir()); err != nil {
		t.Fatal(err)
	}
	a := b.call(t, "PUT", "/v1/modules/late", guest("late"))
	a.refused(t, http.StatusServiceUnavailable, "unavailable", "compiled modules")
	if f := a.failure(t); f.Details.Step != host.StepCompile {
		t.Errorf("details %+v", f.Details)
	}
	b.call(t, "GET", "/v1/modules/late", nil).refused(t, http.StatusNotFound, "not_found", "late")
}
