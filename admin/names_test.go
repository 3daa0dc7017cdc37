package admin_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/host/wasmtest"
	"github.com/routerd/routerd/internal/testkit"
)

func TestP1_NamesThatCouldLeaveTheStoreAreRefused(t *testing.T) {
	b := newBench(t)
	wasm := string(wasmtest.Guest{}.Bytes())
	b.call(t, "PUT", "/v1/modules/good", wasm).into(t, http.StatusCreated, nil)
	before := testkit.Files(t, b.dir)
	for _, name := range []string{
		"../x", "a/b", "..%2fx", "%2e%2e%2fx", `a\\b`, "a%5cb", ".", "..", "%2e", "", "a%00b", strings.Repeat("n", 300), "x.wasm/../../y",
		"good/../../y", "good/", "/good", "Good", "a b", "%", "%zz", "ab%", "é",
	} {
		for _, method := range []string{"PUT", "GET", "DELETE"} {
			length := fmt.Sprintf("Content-Length: %d", len(wasm))
			b.raw(t, head(method, "/v1/modules/"+name, length), wasm).refused(t, http.StatusBadRequest, "invalid", "")
		}
		body := `{"scorers":[{"use":"builtin:least-load"}]}`
		a := b.raw(t, head("PUT", "/v1/policies/"+name, fmt.Sprintf("Content-Length: %d", len(body))), body)
		a.refused(t, http.StatusBadRequest, "invalid", "")
	}
	if diff := cmp.Diff(before, testkit.Files(t, b.dir)); diff != "" {
		t.Errorf("files changed (-before +after)\n%s", diff)
	}
}

func TestAPercentEncodedNameIsTheSameName(t *testing.T) {
	b := newBench(t)
	b.call(t, "PUT", "/v1/modules/good", wasmtest.Guest{}.Bytes()).into(t, http.StatusCreated, nil)
	b.raw(t, head("GET", "/v1/modules/%67ood")).into(t, http.StatusOK, nil)
}

func TestUnknownPathsAndMethods(t *testing.T) {
	b := newBench(t)
	for _, c := range []struct {
		method, uri string
		status      int
		code, part  string
	}{
		{"GET", "/", 404, "not_found", "no such path"},
		{"GET", "/v1", 404, "not_found", "no such path"},
		{"GET", "/v1/modules2", 404, "not_found", "no such path"},
		{"POST", "/v1/policies/default/retry", 404, "not_found", "no such path"},
		{"GET", "/v1/policies/default/shadow", 405, "unsupported", "POST"},
		{"GET", "/v1/decisions/none", 404, "not_found", "1,024"},
		{"GET", "/v1/modules/none", 404, "not_found", "none"},
		{"GET", "/v1/policies/none", 404, "not_found", "none"},
		{"GET", "/v1/workers/none", 404, "not_found", "none"},
		{"DELETE", "/v1/workers/none", 404, "not_found", "none"},
		{"GET", "//v1/modules", 404, "not_found", ""},
		{"GET", "/v1/./modules", 404, "not_found", ""},
		{"GET", "/x/../v1/modules", 404, "not_found", ""},
		{"GET", "http://admin//v1/modules", 404, "not_found", ""},
		{"PATCH", "/v1/modules/good", 405, "unsupported", "PUT, GET, DELETE"},
		{"POST", "/v1/modules", 405, "unsupported", "GET"},
		{"TRACE", "/healthz", 405, "unsupported", "GET"},
		{"GET", "/v1/modules?x=1", 400, "invalid", "no parameters"},
		{"GET", "/v1/decisions?limit=1&limit=2", 400, "invalid", "twice"},
		{"GET", "/v1/decisions?limit=0", 400, "invalid", "1 to 1024"},
		{"GET", "/v1/decisions?limt=1", 400, "invalid", "limt"},
		{"GET", "/v1/partitions?blocks=yes", 400, "invalid", "true, false"},
		{"GET", "/v1/partitions?%zz", 400, "invalid", "query"},
	} {
		a := b.raw(t, head(c.method, c.uri))
		if f := a.failure(t); a.status != c.status || f.Code != c.code || !strings.Contains(a.body, c.part) {
			t.Errorf("%s %s: got %d %s, want %d %s with %q", c.method, c.uri, a.status, a.body, c.status, c.code, c.part)
		}
		if c.status == 405 && a.header.Get("Allow") != c.part {
			t.Errorf("%s %s: Allow is %q", c.method, c.uri, a.header.Get("Allow"))
		}
	}
	if a := b.raw(t, head("HEAD", "/healthz", "Connection: close")); a.status != 200 {
		t.Errorf("HEAD: %+v", a)
	}
}
