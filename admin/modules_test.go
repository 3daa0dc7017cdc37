package admin_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/host"
	. "github.com/routerd/routerd/host/wasmtest"
	"github.com/routerd/routerd/internal/testkit"
	"github.com/routerd/routerd/plugins/abi"
)

type moduleAnswer struct {
	Name, Digest, Version string
	Size                  int
	DryRun                bool `json:"dry_run"`
	Kinds, Columns        []string
	Imports               []string
	Limits                map[string]int
}

// guest is a good module; different names give different bytes.
func guest(name string) []byte { return Guest{Name: name}.Bytes() }

func TestAModuleIsStoredShownAndRemoved(t *testing.T) {
	b := newBench(t)
	wasm := guest("first")
	want := moduleAnswer{
		Name: "kv-aware", Digest: host.Digest(wasm), Size: len(wasm), Kinds: []string{"scorer"}, Columns: []string{"load.active_requests"}, Imports: []string{},
	}
	check := func(what string, got moduleAnswer) {
		t.Helper()
		if got.Version == "" || got.Limits["memory_pages"] == 0 {
			t.Errorf("%s: version %q, limits %v", what, got.Version, got.Limits)
		}
		got.Version, got.Limits = "", nil
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got)\n%s", what, diff)
		}
	}
	var put, shown moduleAnswer
	b.call(t, "PUT", "/v1/modules/kv-aware", wasm).into(t, http.StatusCreated, &put)
	check("put", put)
	b.call(t, "GET", "/v1/modules/kv-aware", nil).into(t, http.StatusOK, &shown)
	check("get", shown)
	var list struct{ Modules []moduleAnswer }
	b.call(t, "PUT", "/v1/modules/another", guest("second")).into(t, http.StatusCreated, nil)
	b.call(t, "GET", "/v1/modules", nil).into(t, http.StatusOK, &list)
	if len(list.Modules) != 2 || list.Modules[0].Name != "another" || list.Modules[1].Digest != want.Digest {
		t.Errorf("list: %+v", list)
	}
	if a := b.call(t, "DELETE", "/v1/modules/kv-aware", nil); a.status != http.StatusNoContent || a.body != "" {
		t.Errorf("delete: %+v", a)
	}
	b.call(t, "DELETE", "/v1/modules/kv-aware", nil).refused(t, http.StatusNotFound, "not_found", "kv-aware")
}

func TestAnEmptyStoreIsAnEmptyList(t *testing.T) {
	b := newBench(t)
	if a := b.call(t, "GET", "/v1/modules", nil); a.body != "{\"modules\":[]}\n" {
		t.Errorf("got %q", a.body)
	}
	if a := b.call(t, "GET", "/v1/workers", nil); a.body != "{\"workers\":[]}\n" {
		t.Errorf("got %q", a.body)
	}
	if a := b.call(t, "GET", "/v1/partitions", nil); a.body != "{\"partitions\":[]}\n" {
		t.Errorf("got %q", a.body)
	}
	if a := b.call(t, "GET", "/v1/decisions", nil); a.body != "{\"decisions\":[]}\n" {
		t.Errorf("got %q", a.body)
	}
}

func TestO2_AModuleThatIsNoneIsRefusedWithItsStep(t *testing.T) {
	b := newBench(t)
	before := testkit.Files(t, b.dir)
	for _, c := range []struct {
		name string
		wasm []byte
		code abi.HostCode
		step string
	}{
		{"random bytes", []byte("random bytes that are no module"), abi.EParse, ""},
		{"empty", nil, abi.EParse, ""},
		{"no exports", Guest{Skip: map[string]bool{"rp_score": true}}.Bytes(), abi.EExport, host.StepExports},
		{"no manifest", Guest{Manifest: "-"}.Bytes(), abi.EManifest, host.StepManifest},
		{"unknown import", Guest{Imports: [][4]string{{"env", "sudo", "", ""}}}.Bytes(), abi.EImport, host.StepImports},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, query := range []string{"", "?dry_run=true"} {
				a := b.call(t, "PUT", "/v1/modules/bad"+query, c.wasm)
				a.refused(t, http.StatusUnprocessableEntity, string(c.code), c.step)
				if f := a.failure(t); f.Details.Step == "" || f.Details.Item == "" {
					t.Errorf("details: %+v", f.Details)
				}
			}
		})
	}
	if diff := cmp.Diff(before, testkit.Files(t, b.dir)); diff != "" {
		t.Errorf("files changed (-before +after)\n%s", diff)
	}
}

func TestADryRunStoresNothing(t *testing.T) {
	b := newBench(t)
	before := testkit.Files(t, b.dir)
	var got moduleAnswer
	b.call(t, "PUT", "/v1/modules/dry?dry_run=true", guest("dry")).into(t, http.StatusOK, &got)
	if !got.DryRun || got.Digest != host.Digest(guest("dry")) {
		t.Errorf("got %+v", got)
	}
	if diff := cmp.Diff(before, testkit.Files(t, b.dir)); diff != "" {
		t.Errorf("files changed (-before +after)\n%s", diff)
	}
}

func TestP4_TwoUploadsOfOneNameDoNotMix(t *testing.T) {
	b := newBench(t)
	digests := map[string]bool{}
	var uploads sync.WaitGroup
	for i := range 8 {
		wasm := guest(fmt.Sprintf("writer-%d", i))
		digests[host.Digest(wasm)] = true
		uploads.Go(func() {
			a := b.call(t, "PUT", "/v1/modules/contested", wasm)
			var got moduleAnswer
			a.into(t, http.StatusCreated, &got)
			if got.Digest != host.Digest(wasm) {
				t.Errorf("the answer has another's digest")
			}
		})
		uploads.Go(func() {
			if a := b.call(t, "DELETE", "/v1/modules/contested", nil); a.status != 204 && a.status != 404 {
				t.Errorf("delete: %+v", a)
			}
		})
	}
	uploads.Wait()
	a := b.call(t, "GET", "/v1/modules/contested", nil)
	blobs, _ := os.ReadDir(filepath.Join(b.modulesDir(), "blobs"))
	switch a.status {
	case http.StatusNotFound:
		if len(blobs) != 0 {
			t.Errorf("%d blobs without a name", len(blobs))
		}
	case http.StatusOK:
		var got moduleAnswer
		a.into(t, http.StatusOK, &got)
		if !digests[got.Digest] || len(blobs) != 1 {
			t.Errorf("digest %s, %d blobs", got.Digest, len(blobs))
		}
	default:
		t.Errorf("got %+v", a)
	}
	if left, _ := os.ReadDir(filepath.Join(b.modulesDir(), "tmp")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestP5_OtherBytesThanDeclaredAreRefused(t *testing.T) {
	b := newBench(t)
	before := testkit.Files(t, b.dir)
	other := strings.TrimPrefix(host.Digest(guest("other")), "sha256:")
	b.call(t, "PUT", "/v1/modules/declared?sha256="+other, guest("declared")).refused(t, http.StatusUnprocessableEntity, "E_DIGEST", other)
	for _, bad := range []string{"", "sha256:", "12", "sha256:xyz", strings.Repeat("g", 64), other + "0", other[1:], "sha512:" + other, "sha256:sha256:" + other} {
		a := b.call(t, "PUT", "/v1/modules/declared?sha256="+bad, guest("declared"))
		a.refused(t, http.StatusBadRequest, "invalid", "64 hexadecimal digits")
		if f := a.failure(t); f.Details.Item != "query parameter sha256" {
			t.Errorf("%q: got %+v", bad, f)
		}
	}
	for _, empty := range []string{"/v1/modules/declared?dry_run=", "/v1/modules/declared?dry_run"} {
		b.call(t, "PUT", empty, guest("declared")).refused(t, http.StatusBadRequest, "invalid", "query parameter dry_run")
	}
	if diff := cmp.Diff(before, testkit.Files(t, b.dir)); diff != "" {
		t.Errorf("files changed (-before +after)\n%s", diff)
	}
	own := host.Digest(guest("declared"))
	b.call(t, "PUT", "/v1/modules/declared?sha256="+own, guest("declared")).into(t, http.StatusCreated, nil)
	for _, same := range []string{strings.ToUpper(own[7:]), "sha256:" + strings.ToUpper(own[7:])} {
		b.call(t, "PUT", "/v1/modules/declared?sha256="+same, guest("declared")).into(t, http.StatusOK, nil)
	}
}

func TestP6_TheSameBytesAreStoredOnce(t *testing.T) {
	b := newBench(t)
	b.call(t, "PUT", "/v1/modules/one", guest("same")).into(t, http.StatusCreated, nil)
	b.call(t, "PUT", "/v1/modules/one", guest("same")).into(t, http.StatusOK, nil)
	b.call(t, "PUT", "/v1/modules/two", guest("same")).into(t, http.StatusCreated, nil)
	blobs, err := os.ReadDir(filepath.Join(b.modulesDir(), "blobs"))
	if err != nil || len(blobs) != 1 {
		t.Errorf("%d blobs, %v", len(blobs), err)
	}
}

func TestAModuleInUseStays(t *testing.T) {
	b := newBench(t)
	b.call(t, "PUT", "/v1/modules/used", guest("used")).into(t, http.StatusCreated, nil)
	b.call(t, "PUT", "/v1/policies/uses", `{"scorers":[{"use":"module:used"}]}`).into(t, http.StatusCreated, nil)
	b.call(t, "DELETE", "/v1/modules/used", nil).refused(t, http.StatusConflict, "conflict", "uses")
	b.call(t, "GET", "/v1/modules/used", nil).into(t, http.StatusOK, nil)
}
