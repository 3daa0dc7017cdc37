//go:build e2e

package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/sim"
	"github.com/routerd/routerd/sim/simtest"
)

// again starts a router in the folder of one that was killed.
func again(t *testing.T, r *router, yaml string) *router {
	t.Helper()
	return startRouterIn(t, filepath.Dir(r.dataDir), yaml)
}

func names(t *testing.T, r *router, path, list, field string) []string {
	t.Helper()
	var got map[string][]map[string]any
	r.must("GET", path, nil, &got)
	var out []string
	for _, entry := range got[list] {
		out = append(out, fmt.Sprint(entry[field]))
	}
	slices.Sort(out)
	return out
}

// What was answered survives kill -9 that comes right after the answer.
func TestStateSurvivesKill(t *testing.T) {
	quick := func(name string) *sim.Engine {
		return simtest.Start(t, func(c *sim.Config) { c.Name, c.Model = name, "m" })
	}
	first, second := quick("w1"), quick("w9")
	yaml := "workers:\n  static:\n" + worker(1, "w1", "m", first)
	r := startRouter(t, yaml)
	revision := r.revise("highest", byID("highest", true))
	r.activate(revision)
	r.must("PUT", "/v1/workers/9", map[string]any{"id": 9, "name": "w9", "url": second.URL(), "model": "m"}, nil)
	r.kill()

	r = again(t, r, yaml)
	if got := r.policy("default").Active; got != revision {
		t.Errorf("revision %d is active after the crash, want %d", got, revision)
	}
	eventually(t, 10*time.Second, func() error {
		if got := r.rank("m", "w9"); got.Lifecycle != "ready" {
			return fmt.Errorf("w9 is %s", got.Lifecycle)
		}
		return nil
	})
	status, head, answer := r.complete(2)
	if status != http.StatusOK || head.Get("x-routerd-worker") != "w9" {
		t.Errorf("status %d from %q, want 200 from w9: %s", status, head.Get("x-routerd-worker"), answer)
	}
	if d := r.decision(head); d.Pick.By != "policy" || d.Policy.Revision != revision {
		t.Errorf("decided by %s with revision %d, want the policy's revision %d", d.Pick.By, d.Policy.Revision, revision)
	}

	other := r.revise("lowest", byID("lowest", false))
	r.activate(other)
	r.kill()
	r = again(t, r, yaml)
	if got := r.policy("default").Active; got != other {
		t.Errorf("revision %d is active, want %d", got, other)
	}
	var back struct {
		Active int `json:"active"`
	}
	r.must("POST", "/v1/policies/default/rollback", struct{}{}, &back)
	r.must("DELETE", "/v1/workers/9", nil, nil)
	r.kill()
	r = again(t, r, yaml)
	if got := r.policy("default").Active; back.Active != revision || got != revision {
		t.Errorf("rollback went to %d and %d is active after the crash, want %d", back.Active, got, revision)
	}
	if diff := cmp.Diff([]string{"w1"}, names(t, r, "/v1/workers", "workers", "name")); diff != "" {
		t.Errorf("workers (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff([]string{"highest", "lowest"}, names(t, r, "/v1/modules", "modules", "name")); diff != "" {
		t.Errorf("modules (-want +got)\n%s", diff)
	}
}

// change makes one change by the admin API and tells whether it was answered.
func change(ctx context.Context, r *router, method, path string, body []byte) bool {
	req, err := http.NewRequestWithContext(ctx, method, r.admin+path, bytes.NewReader(body))
	if err != nil {
		return false
	}
	req.Header.Set("Authorization", "Bearer "+r.token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	defer func() { _ = resp.Body.Close() }()
	_, err = io.Copy(io.Discard, resp.Body)
	return err == nil && resp.StatusCode < 300
}

// killAmid kills the router while changes are made one after the other, and
// returns how many of them were answered. step makes change number i.
func killAmid(r *router, first int, step func(i int) bool) (answered int) {
	ended := make(chan int)
	go func() {
		i := first
		for step(i) {
			i++
		}
		ended <- i
	}()
	<-time.After(50*time.Millisecond + rand.N(100*time.Millisecond))
	r.kill()
	return <-ended
}

// A kill at any moment leaves the last answered activation or the one under
// way, whole.
func TestKillWhileActivating(t *testing.T) {
	yaml := three(t)
	r := startRouter(t, yaml)
	var revisions []int
	for _, name := range []string{"a1", "b2", "c3", "d4", "e5"} {
		revisions = append(revisions, r.revise(name, byID(name, true)))
	}
	r.activate(revisions[0])
	done := 1 // change 0 activated revision 0
	for range crashes {
		done = killAmid(r, done, func(i int) bool {
			return change(t.Context(), r, "POST", "/v1/policies/default/activate", fmt.Appendf(nil, `{"revision":%d}`, revisions[i%len(revisions)]))
		})
		r = again(t, r, yaml)
		answered, pending := revisions[(done-1)%len(revisions)], revisions[done%len(revisions)]
		switch active := r.policy("default").Active; active {
		case answered:
		case pending:
			done++
		default:
			t.Fatalf("revision %d is active, want %d, which was answered, or %d, which was under way", active, answered, pending)
		}
		if status, _, answer := r.complete(2); status != http.StatusOK {
			t.Errorf("status %d after the crash: %s", status, answer)
		}
	}
	t.Logf("%d activations, %d crashes", done, crashes)
}

// Every module and worker whose change was answered is there after a kill at
// any moment, and of the others at most the one under way.
func TestKillWhileStoring(t *testing.T) {
	yaml := three(t)
	r := startRouter(t, yaml)
	done := 0
	for range crashes {
		done = killAmid(r, done, func(i int) bool {
			name := fmt.Sprintf("n%04d", i)
			if i%2 == 0 {
				return change(t.Context(), r, "PUT", "/v1/modules/"+name, byID(name, true))
			}
			return change(t.Context(), r, "PUT", "/v1/workers/"+name, fmt.Appendf(nil, `{"url":"http://127.0.0.1:%d","model":"other","block_size":16}`, 20000+i))
		})
		r = again(t, r, yaml)
		var want []string
		for i := range done {
			want = append(want, fmt.Sprintf("n%04d", i))
		}
		got := names(t, r, "/v1/modules", "modules", "name")
		for _, w := range names(t, r, "/v1/workers", "workers", "name") {
			if strings.HasPrefix(w, "n") {
				got = append(got, w)
			}
		}
		slices.Sort(got)
		if pending := fmt.Sprintf("n%04d", done); slices.Contains(got, pending) {
			want = append(want, pending)
			done++
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("modules and workers after the crash (-want +got)\n%s", diff)
		}
	}
	t.Logf("%d changes, %d crashes", done, crashes)
}

// half sends the head and half of the body of a module, and returns the
// connection.
func half(t *testing.T, r *router, name string, wasm []byte) net.Conn {
	t.Helper()
	c := dial(t, r.admin)
	head := fmt.Sprintf("PUT /v1/modules/%s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n", name, r.token, len(wasm))
	if _, err := c.Write(append([]byte(head), wasm[:len(wasm)/2]...)); err != nil {
		t.Fatal(err)
	}
	return c
}

// Half an upload leaves nothing, whoever ends it.
func TestHalfAnUploadLeavesNothing(t *testing.T) {
	yaml := three(t)
	r := startRouter(t, yaml)
	r.must("PUT", "/v1/modules/kept", byID("kept", true), nil)
	before := files(t, r.dataDir)
	// Large enough that the server has begun to read it.
	wasm := append(byID("cut", true), make([]byte, 2<<20)...)

	_ = half(t, r, "cut", wasm).Close()
	eventually(t, 5*time.Second, func() error {
		if diff := cmp.Diff(before, files(t, r.dataDir)); diff != "" {
			return fmt.Errorf("files (-before +after)\n%s", diff)
		}
		return nil
	})

	half(t, r, "cut", wasm)
	r.kill()
	r = again(t, r, yaml)
	if diff := cmp.Diff(before, files(t, r.dataDir)); diff != "" {
		t.Errorf("files after the crash (-before +after)\n%s", diff)
	}
	if diff := cmp.Diff([]string{"kept"}, names(t, r, "/v1/modules", "modules", "name")); diff != "" {
		t.Errorf("modules (-want +got)\n%s", diff)
	}
}
