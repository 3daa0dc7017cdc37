//go:build e2e

package e2e_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/host"
	"github.com/routerd/routerd/internal/testkit"
)

func TestP6_TwoNamesShareABlobAndOneCompile(t *testing.T) {
	r := startRouter(t, three(t))
	wasm := byID("same", true)
	before := sum(r.metrics(), "routerd_plugin_compile_seconds_count")
	for i, c := range []struct {
		path   string
		status int
	}{{"one", 201}, {"one", 200}, {"two", 201}, {"three?dry_run=1", 200}} {
		if status := r.call("PUT", "/v1/modules/"+c.path, wasm, nil); status != c.status {
			t.Errorf("put %d: status %d, want %d", i, status, c.status)
		}
	}
	r.must("PUT", "/v1/policies/default", map[string]any{"scorers": []any{map[string]any{"use": "module:one"}, map[string]any{"use": "module:two"}}}, nil)
	if n := sum(r.metrics(), "routerd_plugin_compile_seconds_count") - before; n != 1 {
		t.Errorf("%v compiles, want 1", n)
	}
	blobs, err := os.ReadDir(filepath.Join(r.dataDir, "modules", "blobs"))
	if err != nil || len(blobs) != 1 {
		t.Errorf("blobs %v, %v, want one", blobs, err)
	}
}

// Whatever is refused or only tried leaves no file anywhere, not even in the
// cache of compiled code.
func TestWhatIsNotStoredLeavesNoFile(t *testing.T) {
	r := startRouter(t, three(t))
	r.must("PUT", "/v1/modules/kept", byID("kept", true), nil)
	top := filepath.Dir(r.dataDir)
	before := testkit.Files(t, top)
	r.must("PUT", "/v1/modules/tried?dry_run=1", byID("tried", false), nil)
	for _, m := range slices.Concat(noModules(t), hostileModules()) {
		for _, query := range []string{"", "?dry_run=1"} {
			status, answer := r.raw("PUT", "/v1/modules/bad"+query, m.wasm)
			if e := refusedWith(t, m.name, status, answer); e.Code != string(m.code) || e.Details.Step == "" || e.Details.Item == "" {
				t.Errorf("%s: got %+v, want %s", m.name, e, m.code)
			}
		}
	}
	for _, name := range []string{"..%2fx", "%2e%2e", "a%00b", strings.Repeat("n", 300), "x.wasm%2f..%2f..%2fy", "a%5cb", "%C3%BC-a", "CON"} {
		for _, method := range []string{"PUT", "DELETE"} {
			body := byID("name", true)
			if method == "DELETE" {
				body = nil
			}
			if status, answer := r.raw(method, "/v1/modules/"+name, body); status != http.StatusBadRequest {
				t.Errorf("%s %s: status %d %s", method, name, status, answer)
			}
		}
	}
	if diff := cmp.Diff(before, testkit.Files(t, top)); diff != "" {
		t.Errorf("files (-before +after)\n%s", diff)
	}
}

// configMap is a folder as a kubelet mounts it.
type configMap struct {
	t    *testing.T
	path string
	n    int
}

func newConfigMap(t *testing.T) *configMap {
	t.Helper()
	return &configMap{t: t, path: t.TempDir()}
}

// set switches to other files: modules by name.
func (m *configMap) set(modules map[string][]byte) {
	m.t.Helper()
	m.n++
	dated := fmt.Sprintf("..2026_%05d", m.n)
	errs := []error{os.Mkdir(filepath.Join(m.path, dated), 0o755)}
	for name, wasm := range modules {
		errs = append(errs, os.WriteFile(filepath.Join(m.path, dated, name+".wasm"), wasm, 0o644))
	}
	old, _ := os.Readlink(filepath.Join(m.path, "..data"))
	errs = append(errs,
		os.Symlink(dated, filepath.Join(m.path, "..data_tmp")),
		os.Rename(filepath.Join(m.path, "..data_tmp"), filepath.Join(m.path, "..data")))
	for name := range modules {
		link := filepath.Join(m.path, name+".wasm")
		if _, err := os.Lstat(link); err != nil {
			errs = append(errs, os.Symlink(filepath.Join("..data", name+".wasm"), link))
		}
	}
	links, err := filepath.Glob(filepath.Join(m.path, "*.wasm"))
	errs = append(errs, err)
	for _, link := range links {
		if modules[strings.TrimSuffix(filepath.Base(link), ".wasm")] == nil {
			errs = append(errs, os.Remove(link))
		}
	}
	if old != "" {
		errs = append(errs, os.RemoveAll(filepath.Join(m.path, old)))
	}
	if err := errors.Join(errs...); err != nil {
		m.t.Fatal(err)
	}
}

type moduleList struct {
	Modules []struct {
		Name, Digest, Source string
	}
	Directory struct{ Path, Error string }
}

// digests are those of the router's modules, by name, with their source.
func (r *router) digests() map[string]string {
	r.t.Helper()
	var got moduleList
	r.must("GET", "/v1/modules", nil, &got)
	out := map[string]string{}
	for _, m := range got.Modules {
		out[m.Name] = m.Digest + " " + m.Source
	}
	return out
}

func fromDir(modules map[string][]byte) map[string]string {
	out := map[string]string{}
	for name, wasm := range modules {
		out[name] = host.Digest(wasm) + " dir"
	}
	return out
}

func (r *router) expectModules(want map[string]string) {
	r.t.Helper()
	eventually(r.t, 30*time.Second, func() error {
		if diff := cmp.Diff(want, r.digests()); diff != "" {
			return fmt.Errorf("modules (-want +got)\n%s", diff)
		}
		return nil
	})
}

// A mounted folder is a source of modules: policies of the configuration use
// them at the start, a swap moves the names, and a revision keeps what it was
// made of.
func TestAMountedFolderIsASourceOfModules(t *testing.T) {
	m := newConfigMap(t)
	first := map[string][]byte{"choice": byID("choice", true), "other": byID("other", true)}
	m.set(first)
	yaml := three(t) + "plugins:\n  module_dir: " + m.path + "\npolicies:\n  default:\n    scorers:\n      - use: module:choice\n"
	r := startRouter(t, yaml)
	r.expectModules(fromDir(first))
	chosen := func(want string) {
		t.Helper()
		if status, head, answer := r.complete(2); status != http.StatusOK || head.Get("x-routerd-worker") != want {
			t.Errorf("status %d from %q, want 200 from %s: %s", status, head.Get("x-routerd-worker"), want, answer)
		}
	}
	chosen(highest)

	second := map[string][]byte{"choice": byID("choice", false), "third": byID("third", true)}
	m.set(second)
	r.expectModules(fromDir(second))
	chosen(highest) // the active revision has its digest
	var made struct{ Revision int }
	r.must("PUT", "/v1/policies/default", scorer("module:choice"), &made)
	r.activate(made.Revision)
	chosen(lowest)

	// One bad file: the last good set stays, and everybody can see why.
	m.set(map[string][]byte{"choice": byID("choice", true), "third": []byte("no module")})
	eventually(t, 30*time.Second, func() error {
		var got moduleList
		r.must("GET", "/v1/modules", nil, &got)
		if !strings.Contains(got.Directory.Error, "third.wasm") || got.Directory.Path != m.path {
			return fmt.Errorf("directory %+v", got.Directory)
		}
		return nil
	})
	r.expectModules(fromDir(second))
	if v := r.metrics()["routerd_plugin_dir_refused"]; v != 1 {
		t.Errorf("routerd_plugin_dir_refused is %v, want 1", v)
	}
	if code, out, said := r.cli("module", "list"); code != 0 || !strings.Contains(out, "third.wasm") || !strings.Contains(out, " dir ") {
		t.Errorf("exit code %d: %s%s", code, out, said)
	}
	for _, method := range []string{"PUT", "DELETE"} {
		var body []byte
		if method == "PUT" {
			body = byID("mine", true)
		}
		status, answer := r.raw(method, "/v1/modules/choice", body)
		if e := refusedWith(t, method, status, answer); status != http.StatusConflict || e.Code != "conflict" || !strings.Contains(e.Message, "source dir") {
			t.Errorf("%s: status %d %+v, want 409", method, status, e)
		}
	}

	// A start with the bad files serves the last good set too.
	r.kill()
	r = again(t, r, yaml)
	r.expectModules(fromDir(second))
	chosen(lowest)
	third := map[string][]byte{"choice": byID("choice", false)}
	m.set(third)
	r.expectModules(fromDir(third))

	// Without the folder the names are the API's.
	r.kill()
	r = again(t, r, three(t))
	r.expectModules(map[string]string{"choice": host.Digest(third["choice"]) + " api"})
}

// A kill at any moment of a swap leaves one whole set.
func TestKillWhileAFolderIsSwapped(t *testing.T) {
	m := newConfigMap(t)
	version := func(i int) map[string][]byte {
		out := map[string][]byte{}
		for _, name := range []string{"k1", "k2", "k3", "k4", fmt.Sprintf("only-%d", i)} {
			out[name] = byID(fmt.Sprintf("v%d", i%7), i%2 == 0)
		}
		return out
	}
	m.set(version(0))
	with := func(path string) string { return "plugins:\n  module_dir: " + path + "\n" }
	r := startRouter(t, with(m.path))
	r.expectModules(fromDir(version(0)))
	for i := range crashes {
		m.set(version(i + 1))
		<-time.After(200*time.Millisecond + rand.N(400*time.Millisecond)) // the debounce, checks and writes
		r.kill()
		// Without the files: what is in force is what was.
		r = again(t, r, with(filepath.Join(m.path, "gone")))
		got := r.digests()
		if cmp.Diff(fromDir(version(i)), got) != "" && cmp.Diff(fromDir(version(i+1)), got) != "" {
			t.Errorf("crash %d left neither set: %v", i, got)
		}
		r.kill()
		r = again(t, r, with(m.path))
		r.expectModules(fromDir(version(i + 1)))
	}
}

// Compiled code that was damaged is made again at the next start.
func TestADamagedCacheHealsAtTheNextStart(t *testing.T) {
	yaml := three(t)
	r := startRouter(t, yaml)
	r.activate(r.revise("highest", byID("highest", true)))
	for _, damage := range []func(b []byte) []byte{
		func(b []byte) []byte { b[len(b)/2] ^= 0x40; return b },
		func(b []byte) []byte { return b[:len(b)/2] },
		func([]byte) []byte { return nil },
		func([]byte) []byte { return []byte("something else") },
	} {
		r.kill()
		forms, err := filepath.Glob(filepath.Join(r.dataDir, "compiled", "wazero-*", "*"))
		if err != nil || len(forms) == 0 {
			t.Fatalf("compiled code: %v, %v", forms, err)
		}
		for _, f := range forms {
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(f, damage(b), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		r = again(t, r, yaml)
		if status, head, answer := r.complete(2); status != http.StatusOK || head.Get("x-routerd-worker") != highest {
			t.Errorf("status %d from %q: %s", status, head.Get("x-routerd-worker"), answer)
		}
		if n := sum(r.metrics(), "routerd_plugin_cache_rebuilds_total"); n != 1 {
			t.Errorf("%v rebuilds, want 1", n)
		}
	}
}
