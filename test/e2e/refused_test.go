//go:build e2e

package e2e_test

import (
	"crypto/rand"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/host"
	"github.com/routerd/routerd/host/wasmtest"
	"github.com/routerd/routerd/internal/testkit"
	"github.com/routerd/routerd/plugins/abi"
)

const sectionWalk = "section walk"

// badModule is a module that must be refused at a step.
type badModule struct {
	name string
	wasm []byte
	step string
	code abi.HostCode
}

// noModules are what O2 lists.
func noModules(t *testing.T) []badModule {
	t.Helper()
	noise := make([]byte, 4096)
	if _, err := rand.Read(noise); err != nil {
		t.Fatal(err)
	}
	manifest := `{"abi":"routerd.policy/v2","name":"test","version":"1.0.0","kinds":["scorer"]}`
	return []badModule{
		{"random bytes", noise, sectionWalk, abi.EParse},
		{"no exports", wasmtest.Guest{Skip: map[string]bool{"rp_score": true, "rp_bind": true}}.Bytes(), host.StepExports, abi.EExport},
		{"wrong ABI major", wasmtest.Guest{Manifest: manifest}.Bytes(), host.StepManifest, abi.EManifest},
		{"wrong ABI minor", wasmtest.Guest{ABI: wasmtest.I32(7)}.Bytes(), host.StepStart, abi.EABI},
		{"start function traps", wasmtest.Guest{Start: wasmtest.Op(wasmtest.Unreachable)}.Bytes(), host.StepStart, abi.EInitTrap},
		{"start function loops", wasmtest.Guest{Start: wasmtest.Loop(wasmtest.Br(0))}.Bytes(), host.StepStart, abi.EInitTrap},
		{"result out of range", wasmtest.Guest{Extra: `,"score_range":{"min":0,"max":1}`}.Bytes(), host.StepSelfTest, abi.ERange},
		{"unknown import", wasmtest.Guest{Imports: [][4]string{{"env", "foo", "", ""}}}.Bytes(), host.StepImports, abi.EImport},
	}
}

// refuseModule stores a module and makes a revision with it; one of the two
// must be refused. Either way no module of the name is left.
func refuseModule(t *testing.T, r *router, m badModule) apiError {
	t.Helper()
	const name = "refused"
	if status, answer := r.raw("PUT", "/v1/modules/"+name, m.wasm); status >= 300 {
		e := refusedWith(t, "PUT module "+m.name, status, answer)
		if status, _ := r.raw("GET", "/v1/modules/"+name, nil); status != http.StatusNotFound {
			t.Errorf("%s: the refused module is there: status %d", m.name, status)
		}
		return e
	}
	spec, err := json.Marshal(scorer("module:" + name))
	if err != nil {
		t.Fatal(err)
	}
	e := r.refusal("PUT", "/v1/policies/default", spec)
	r.must("DELETE", "/v1/modules/"+name, nil, nil)
	return e
}

// Whatever is no good module is refused with its step, and nothing changes.
func TestO2_BadModulesLeaveTheActiveRevision(t *testing.T) {
	r := startRouter(t, three(t))
	revision := r.revise("highest", byID("highest", true))
	r.activate(revision)
	before := r.policy("default")
	shots := during(r, func() {
		for _, m := range noModules(t) {
			e := refuseModule(t, r, m)
			t.Logf("%s: %s at %s: %s", m.name, e.Code, e.Details.Step, e.Details.Item)
			if e.Code != string(m.code) || e.Details.Step != m.step || e.Message == "" {
				t.Errorf("%s: got %+v, want %s at step %s", m.name, e, m.code, m.step)
			}
			if diff := cmp.Diff(before, r.policy("default")); diff != "" {
				t.Errorf("%s changed the policy (-before +after)\n%s", m.name, diff)
			}
		}
		for _, body := range []string{`{"revision":99}`, `{"revision":0}`, `{"revision":-1}`, `{"revision":"x"}`, `{"revison":1}`, `{}`, "\x00\xff"} {
			r.refusal("POST", "/v1/policies/default/activate", []byte(body))
		}
	})
	for _, s := range shots {
		if s.err != nil || s.worker != highest {
			t.Fatalf("a request went to %q with error %v, want %s", s.worker, s.err, highest)
		}
	}
	if got := r.policy("default").Active; got != revision {
		t.Errorf("revision %d is active, want %d", got, revision)
	}
}

// What was refused is not kept either.
func TestO2_RefusedModulesLeaveNoFiles(t *testing.T) {
	r := startRouter(t, three(t))
	r.activate(r.revise("highest", byID("highest", true)))
	before := files(t, r.dataDir)
	for _, m := range noModules(t) {
		refuseModule(t, r, m)
	}
	if diff := cmp.Diff(before, files(t, r.dataDir)); diff != "" {
		t.Errorf("files of the data folder (-before +after)\n%s", diff)
	}
}

// files lists the files under a folder that hold state; compiled code is a
// cache.
func files(t *testing.T, dir string) []string {
	t.Helper()
	return slices.DeleteFunc(testkit.Files(t, dir), func(name string) bool { return strings.HasPrefix(name, "compiled") })
}
