package admin_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/admin"
	"github.com/routerd/routerd/host/wasmtest"
	"github.com/routerd/routerd/internal/testkit"
)

const mebi = 1 << 20

// chunked is a body in the chunked coding that ends properly.
func chunked(size int) []string {
	var parts []string
	piece := strings.Repeat("x", mebi)
	for ; size > 0; size -= mebi {
		parts = append(parts, fmt.Sprintf("%x\r\n%s\r\n", mebi, piece))
	}
	return append(parts, "0\r\n\r\n")
}

func TestP3_LargeBodiesAreRefusedEarly(t *testing.T) {
	b := newBench(t, func(c *admin.Config, _ *admin.Parts) { c.ReadTimeout = time.Second })
	before := testkit.Files(t, b.dir)
	var memory runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&memory)
	held := memory.HeapAlloc

	announced := head("PUT", "/v1/modules/big", fmt.Sprintf("Content-Length: %d", 17*mebi))
	start := time.Now()
	b.raw(t, announced).refused(t, http.StatusRequestEntityTooLarge, "too_large", "too large")
	b.raw(t, announced, strings.Repeat("x", 17*mebi)).refused(t, http.StatusRequestEntityTooLarge, "too_large", "too large")
	b.raw(t, head("PUT", "/v1/modules/big", "Content-Length: 1073741824")).refused(t, http.StatusRequestEntityTooLarge, "too_large", "too large")
	t.Logf("three refusals by their head took %v", time.Since(start))
	b.raw(t, head("PUT", "/v1/modules/big", "Transfer-Encoding: chunked"), chunked(17*mebi)...).
		refused(t, http.StatusRequestEntityTooLarge, "too_large", "too large")

	// Within the limit, but it never comes.
	a := b.raw(t, head("PUT", "/v1/modules/big", fmt.Sprintf("Content-Length: %d", 7*mebi)), "part")
	a.refused(t, http.StatusRequestTimeout, "invalid", "in time")

	runtime.GC()
	runtime.ReadMemStats(&memory)
	if grown := int64(memory.HeapAlloc) - int64(held); grown > 32*mebi {
		t.Errorf("the heap grew by %d bytes", grown)
	}
	if diff := cmp.Diff(before, testkit.Files(t, b.dir)); diff != "" {
		t.Errorf("files changed (-before +after)\n%s", diff)
	}
}

func TestABodyOfACallerWithoutTokenIsNotRead(t *testing.T) {
	b := newBench(t)
	for _, length := range []int{2, 7 * mebi, 1 << 30} {
		a := b.raw(t, fmt.Sprintf("PUT /v1/modules/big HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", length))
		a.refused(t, http.StatusUnauthorized, "unauthorized", "bearer token")
	}
	a := b.raw(t, "PUT /v1/modules/big HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", chunked(mebi)...)
	a.refused(t, http.StatusUnauthorized, "unauthorized", "bearer token")
	// A token in a trailer comes too late.
	a = b.raw(t, "PUT /v1/modules/big HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
		"2\r\nxx\r\n0\r\nAuthorization: Bearer "+token+"\r\n\r\n")
	a.refused(t, http.StatusUnauthorized, "unauthorized", "bearer token")
}

func TestH1_TwoFramingsAreRefusedAndEndTheConnection(t *testing.T) {
	b := newBench(t)
	record := `{"url":"http://127.0.0.1:9","model":"m"}`
	body := fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(record), record)
	smuggled := head("DELETE", "/v1/workers/w1", "Content-Length: 0")
	for _, framing := range [][]string{
		{"Content-Length: 5", "Transfer-Encoding: chunked"},
		{"Transfer-Encoding: chunked", "content-length: 5"},
		{"Transfer-Encoding: chunked", "Content-Length: 0"},
	} {
		for _, uri := range []string{"/v1/workers/w1", "/v1/nothing"} {
			c, err := net.Dial("tcp", b.addr)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
			if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(c, head("PUT", uri, framing...)+body+smuggled); err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(c)
			if err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(string(got), "HTTP/1.1 "); n != 1 {
				t.Errorf("%q: %d answers, want 1: %s", framing, n, got)
			}
			if uri == "/v1/workers/w1" && !(strings.HasPrefix(string(got), "HTTP/1.1 400 ") && strings.Contains(string(got), "Transfer-Encoding and Content-Length")) {
				t.Errorf("%q: got %s", framing, got)
			}
		}
	}
	b.raw(t, "PUT /v1/workers/w1 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n"+body).
		refused(t, http.StatusUnauthorized, "unauthorized", "bearer token")
	if a := b.call(t, "GET", "/v1/workers", nil); strings.Contains(a.body, "127.0.0.1:9") {
		t.Errorf("a worker was made: %s", a.body)
	}
}

func TestALimitBelowAModulesIsKept(t *testing.T) {
	b := newBench(t, func(c *admin.Config, _ *admin.Parts) { c.MaxBody = 1024 })
	b.call(t, "PUT", "/v1/modules/big", strings.Repeat("x", 1025)).refused(t, http.StatusRequestEntityTooLarge, "too_large", "too large")
}

func TestAClientMayAskBeforeItSends(t *testing.T) {
	b := newBench(t)
	wasm := wasmtest.Guest{}.Bytes()
	c, err := net.Dial("tcp", b.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, head("PUT", "/v1/modules/asked", "Expect: 100-continue", fmt.Sprintf("Content-Length: %d", len(wasm))))
	r := bufio.NewReader(c)
	if line, err := r.ReadString('\n'); err != nil || !strings.Contains(line, " 100 ") {
		t.Fatalf("got %q, %v", line, err)
	}
	r.ReadString('\n')
	c.Write(wasm)
	resp, err := http.ReadResponse(r, nil)
	if err != nil || resp.StatusCode != http.StatusCreated {
		t.Fatal(resp, err)
	}
	resp.Body.Close()
	a := b.raw(t, "PUT /v1/modules/asked HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 1073741824\r\n\r\n")
	a.refused(t, http.StatusUnauthorized, "unauthorized", "")
	a = b.raw(t, head("PUT", "/v1/modules/asked", "Expect: 100-continue", "Content-Length: 1073741824"))
	a.refused(t, http.StatusRequestEntityTooLarge, "too_large", "")
}

func TestP4_ACutUploadLeavesNothing(t *testing.T) {
	b := newBench(t)
	wasm := wasmtest.Guest{}.Bytes()
	before := testkit.Files(t, b.dir)
	c, err := net.Dial("tcp", b.addr)
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(c, head("PUT", "/v1/modules/cut", fmt.Sprintf("Content-Length: %d", len(wasm))))
	c.Write(wasm[:len(wasm)/2])
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(c); err != nil { // the server has noticed
		t.Fatal(err)
	}
	c.Close()
	b.call(t, "GET", "/v1/modules/cut", nil).refused(t, http.StatusNotFound, "not_found", "cut")
	if diff := cmp.Diff(before, testkit.Files(t, b.dir)); diff != "" {
		t.Errorf("files changed (-before +after)\n%s", diff)
	}
	if left, _ := os.ReadDir(filepath.Join(b.modulesDir(), "tmp")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestMalformedHTTPGetsTheErrorForm(t *testing.T) {
	b := newBench(t)
	auth := "Authorization: Bearer " + token + "\r\n"
	for _, c := range []struct {
		name, request string
		status        int
	}{
		{"no HTTP", "nonsense\r\n\r\n", 400},
		{"bad header", "GET / HTTP/1.1\r\nHost: a\r\nno colon here\r\n\r\n", 400},
		{"two lengths", "PUT /v1/modules/ab HTTP/1.1\r\nHost: a\r\n" + auth + "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", 400},
		{"bad length", "PUT /v1/modules/ab HTTP/1.1\r\nHost: a\r\n" + auth + "Content-Length: x\r\n\r\n", 400},
		{"bad chunk", "PUT /v1/modules/ab HTTP/1.1\r\nHost: a\r\n" + auth + "Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400},
		{"large head", "GET /" + strings.Repeat("x", 40<<10) + " HTTP/1.1\r\nHost: a\r\n\r\n", 431},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := b.raw(t, c.request)
			if f := a.failure(t); a.status != c.status || strings.Contains(a.body, "CANARY") {
				t.Errorf("got %d %+v", a.status, f)
			}
			if got := a.header.Get("Content-Type"); got != "application/json" {
				t.Errorf("content type %q", got)
			}
		})
	}
}

func TestABodyWhereNoneBelongsIsRefused(t *testing.T) {
	b := newBench(t)
	b.call(t, "DELETE", "/v1/modules/name", "x").refused(t, http.StatusBadRequest, "invalid", "body")
	b.call(t, "DELETE", "/v1/modules/name", "xyz").refused(t, http.StatusBadRequest, "invalid", "body")
}
