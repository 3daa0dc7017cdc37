//go:build e2e

package e2e_test

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// hi is a small request.
const hi = `{"model":"m","prompt":"hi"}`

// ours is the error form of the OpenAI routes.
type ours struct {
	Message string `json:"message"`
	Type    string `json:"type"`
	Param   string `json:"param"`
	Code    string `json:"code"`
}

// routerError checks that an answer is an error that the router made, and that
// it is small and holds nothing of what it must not.
func routerError(t *testing.T, what string, r reply, never ...string) ours {
	t.Helper()
	var got struct {
		Error ours `json:"error"`
	}
	if err := json.Unmarshal(r.body, &got); err != nil || got.Error.Message == "" || got.Error.Type == "" || got.Error.Code == "" {
		t.Errorf("%s: body %.300q, want an error with message, type and code", what, r.body)
	}
	if ct := r.header.Get("Content-Type"); ct != "application/json" {
		t.Errorf("%s: content type %q, want application/json", what, ct)
	}
	if len(r.body) > 1<<10 {
		t.Errorf("%s: the error has %d bytes, want at most 1024", what, len(r.body))
	}
	for _, n := range never {
		if bytes.Contains(r.body, []byte(n)) {
			t.Errorf("%s: the error %q holds %q", what, r.body, n)
		}
	}
	return got.Error
}

func TestE1_StatusOfTheWorkerPasses(t *testing.T) {
	text := func(status int) string { return fmt.Sprintf(`{"error":{"message":"worker's %d"}}`, status) }
	var next, requests atomic.Int64
	answer := func(c net.Conn, _ *seen) bool {
		requests.Add(1)
		status := int(next.Load())
		say(c, whole(status, "Retry-After: 3\r\nX-Worker-Says: yes\r\n", text(status)))
		return true
	}
	r := startRouter(t, fakes(startFake(t, answer), startFake(t, answer)))
	for _, status := range []int{400, 401, 404, 413, 422, 429, 500, 503} {
		next.Store(int64(status))
		before := requests.Load()
		got := r.post("/v1/completions", hi)
		if got.status != status {
			t.Errorf("the worker's %d became %d: %s", status, got.status, got.body)
		}
		if string(got.body) != text(status) || got.header.Get("Retry-After") != "3" || got.header.Get("X-Worker-Says") != "yes" {
			t.Errorf("%d: body %q, headers %v, want the worker's", status, got.body, got.header)
		}
		// Only a 503 may be tried on the other worker too.
		if n := requests.Load() - before; n != 1 && (status != 503 || n != 2) {
			t.Errorf("%d: %d requests at the workers, want 1", status, n)
		}
	}
	r.idle("m", 5*time.Second)
}

func TestE5_OnlyWorkerRefusesConnections(t *testing.T) {
	const address = "127.0.0.77"
	r := startRouter(t, untold+
		"  - {id: 1, name: w1, url: \"http://"+address+":9\", model: m, no_health_check: true}\n"+
		"  - {id: 2, name: w2, url: \"http://"+address+":99\", model: n}\n")
	// Where health is checked nobody calls it.
	const never = "a worker that never answered"
	unasked := r.post("/v1/completions", strings.Replace(hi, `"m"`, `"n"`, 1))
	refused(t, never, unasked, http.StatusServiceUnavailable, "no_workers", "")
	routerError(t, never, unasked, address, "health_refused")
	r.logged(unasked, address+":99", "health_refused")
	began := time.Now()
	got := r.post("/v1/completions", hi)
	took := time.Since(began)
	t.Logf("status %d after %s: %s", got.status, took, got.body)
	if got.status != http.StatusBadGateway && got.status != http.StatusServiceUnavailable {
		t.Errorf("status %d, want 502 or 503", got.status)
	}
	if took > time.Second*patience {
		t.Errorf("took %s, want within 1 s (asserted at %d times)", took, patience)
	}
	routerError(t, "no connection", got, address, "dial", "refused", "tcp")
	r.logged(got, address+":9", "refused")
	r.idle("m", 5*time.Second)
}

// logged waits until a line of the log has an answer's request id and all the texts.
func (r *router) logged(a reply, texts ...string) {
	r.t.Helper()
	id := a.header.Get("x-request-id")
	if id == "" {
		r.t.Fatal("the answer has no request id")
	}
	eventually(r.t, soon, func() error {
		for line := range strings.Lines(r.log.String()) {
			if strings.Contains(line, id) && !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(line, text) }) {
				return nil
			}
		}
		return fmt.Errorf("no line of the log has the request id %s and %q", id, texts)
	})
}

func TestH3_RepeatedHeadersAndForwardedFor(t *testing.T) {
	for mode, want := range map[string]string{"append": "1.1.1.1, 127.0.0.1", "replace": "127.0.0.1"} {
		t.Run(mode, func(t *testing.T) {
			f := startFake(t, func(c net.Conn, _ *seen) bool {
				say(c, whole(200, "Set-Cookie: a=1\r\nSet-Cookie: b=2\r\n", completion))
				return true
			})
			r := startRouter(t, fakes(f)+"frontend: {forwarded_for: "+mode+"}\n")
			c := dial(t, r.frontend)
			say(c, fmt.Sprintf("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nX-Tag: one\r\nX-Tag: two\r\n"+
				"X-Forwarded-For: 1.1.1.1\r\nContent-Length: %d\r\n\r\n%s", len(hi), hi))
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if diff := cmp.Diff([]string{"a=1", "b=2"}, resp.Header.Values("Set-Cookie")); diff != "" {
				t.Errorf("cookies (-want +got)\n%s", diff)
			}
			if len(f.all()) != 1 {
				t.Fatalf("%d requests at the worker, want 1", len(f.all()))
			}
			req := f.all()[0]
			if diff := cmp.Diff([]string{"one", "two"}, req.values("x-tag")); diff != "" {
				t.Errorf("tags at the worker (-want +got)\n%s", diff)
			}
			if got := strings.Join(req.values("x-forwarded-for"), ", "); got != want {
				t.Errorf("X-Forwarded-For at the worker is %q, want %q", got, want)
			}
			if framing := len(req.values("content-length")) + len(req.values("transfer-encoding")); framing != 1 {
				t.Errorf("%d framing headers at the worker, want 1: %v", framing, req.headers)
			}
		})
	}
}

func TestH5_BodyAboveTheLimit(t *testing.T) {
	f := startFake(t, func(c net.Conn, _ *seen) bool { say(c, whole(200, "", completion)); return true })
	r := startRouter(t, fakes(f)+"frontend: {max_body: 1MiB}\n")
	large := `{"model":"m","prompt":"` + strings.Repeat("canary ", (2<<20)/7) + `"}`
	before := r.metrics()["process_resident_memory_bytes"]
	const clients = 16
	var wg sync.WaitGroup
	for range clients {
		for name, body := range map[string]io.Reader{"length": strings.NewReader(large), "chunked": io.MultiReader(strings.NewReader(large))} {
			wg.Go(func() {
				resp, err := http.Post(r.frontend+"/v1/completions", "application/json", body)
				if err != nil {
					t.Errorf("%s: %v", name, err)
					return
				}
				answer, err := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				if err != nil || resp.StatusCode != http.StatusRequestEntityTooLarge {
					t.Errorf("%s: status %d %v, want 413", name, resp.StatusCode, err)
				}
				routerError(t, name, reply{resp.StatusCode, resp.Header, answer}, "canary")
			})
		}
	}
	wg.Wait()
	grown := int64(r.metrics()["process_resident_memory_bytes"] - before)
	t.Logf("resident memory grew by %d KiB over %d refused bodies of 2 MiB at once", grown>>10, 2*clients)
	if grown > 2*clients*4<<20 {
		t.Errorf("memory grew by %d KiB, want below 4 MiB a connection", grown>>10)
	}
	if got := len(f.all()); got != 0 {
		t.Errorf("the worker saw %d requests, want none", got)
	}
}

func TestB1_BodyReachesTheWorkerAsItIs(t *testing.T) {
	f := startFake(t, func(c net.Conn, _ *seen) bool { say(c, whole(200, "", completion)); return true })
	r := startRouter(t, fakes(f))
	body := "{ \"seed\":9007199254740993,\n\t\"temperature\":1.0 ,\"x\":1e400, \"\\u00e9\":\"é\",\"é\":\"\\u00e9\",\r\n" +
		"\"nested\":{\"unknown\":[{\"deep\":-0.0},null,[ ]]},\"prompt\" : \"hi\" ,  \"model\":\"m\"  }\n"
	answer := r.post("/v1/completions", body)
	if answer.status != http.StatusOK || len(f.all()) != 1 {
		t.Fatalf("status %d and %d requests at the worker, want 200 and 1: %s", answer.status, len(f.all()), answer.body)
	}
	if got := f.all()[0].body; sha256.Sum256(got) != sha256.Sum256([]byte(body)) {
		t.Errorf("the worker got %q, want %q", got, body)
	}
	if string(answer.body) != completion {
		t.Errorf("the client got %q, want %q", answer.body, completion)
	}
}

func TestB6_ModelThatIsNone(t *testing.T) {
	f := startFake(t, func(c net.Conn, _ *seen) bool { say(c, whole(200, "", completion)); return true })
	r := startRouter(t, fakes(f))
	long := strings.Repeat("canary", 10<<10/6)
	bodies := map[string]string{
		"missing": `{"prompt":"hi"}`, "null": `{"model":null,"prompt":"hi"}`, "empty": `{"model":"","prompt":"hi"}`,
		"a number": `{"model":123,"prompt":"hi"}`, "a list": `{"model":["m"],"prompt":"hi"}`, "10 KiB": `{"model":"` + long + `","prompt":"hi"}`,
	}
	send := func() {
		for name, body := range bodies {
			got := r.post("/v1/completions", body)
			e := routerError(t, name, got, long)
			if got.status != http.StatusBadRequest && (name != "10 KiB" || got.status != http.StatusNotFound) {
				t.Errorf("%s: status %d, want 400", name, got.status)
			}
			if e.Param != "model" {
				t.Errorf("%s: param %q, want model: %s", name, e.Param, got.body)
			}
		}
	}
	send() // the series of statuses 400 and 404 are made
	before := series(r)
	bodies["10 KiB"] = `{"model":"another ` + long[1:] + `","prompt":"hi"}`
	send()
	if diff := cmp.Diff(before, series(r)); diff != "" {
		t.Errorf("series of the metrics (-before +after)\n%s", diff)
	}
	if _, text := r.raw("GET", "/metrics", nil); bytes.Contains(text, []byte("canary")) {
		t.Error("the metrics hold an unknown model's name")
	}
	if got := len(f.all()); got != 0 {
		t.Errorf("the worker saw %d requests, want none", got)
	}
}

// series are the names of all series.
func series(r *router) map[string]bool {
	out := map[string]bool{}
	for name := range r.metrics() {
		out[name] = true
	}
	return out
}
