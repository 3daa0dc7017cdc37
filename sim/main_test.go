package sim_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/routerd/routerd/sim"
	"github.com/routerd/routerd/sim/simtest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// fasthttp keeps one clock goroutine for the life of the process.
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"),
	)
}

// bench is a running engine with an HTTP client of its own.
type bench struct {
	*sim.Engine
	t      *testing.T
	client *http.Client
}

func startEngine(t *testing.T, change func(*sim.Config)) *bench {
	t.Helper()
	e := simtest.Start(t, func(c *sim.Config) {
		c.Events = false
		if change != nil {
			change(c)
		}
	})
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &bench{Engine: e, t: t, client: &http.Client{Transport: transport, Timeout: 20 * time.Second}}
}

// send makes a request and returns the answer with its body still to be read.
func (b *bench) send(ctx context.Context, method, path, body string, headers ...string) *http.Response {
	b.t.Helper()
	resp, err := b.trySend(ctx, method, path, body, headers...)
	if err != nil {
		b.t.Fatalf("%s %s: %v", method, path, err)
	}
	return resp
}

func (b *bench) trySend(ctx context.Context, method, path, body string, headers ...string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, b.URL()+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	return b.client.Do(req)
}

// do makes a request and returns status and body.
func (b *bench) do(method, path, body string, headers ...string) (int, []byte) {
	b.t.Helper()
	resp := b.send(b.t.Context(), method, path, body, headers...)
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatalf("%s %s: read body: %v", method, path, err)
	}
	return resp.StatusCode, raw
}

// ok is do for a request that must succeed, decoded into a generic value.
func (b *bench) ok(method, path, body string, headers ...string) map[string]any {
	b.t.Helper()
	status, raw := b.do(method, path, body, headers...)
	if status != http.StatusOK {
		b.t.Fatalf("%s %s: status %d: %s", method, path, status, raw)
	}
	var v map[string]any
	if err := json.Unmarshal(raw, &v); err != nil {
		b.t.Fatalf("%s %s: %v in %s", method, path, err, raw)
	}
	return v
}

// counts are the numbers of GET /sim/stats that tests wait for.
type counts struct {
	Requests, Running, Waiting, Cancelled, Restarts int
	Cancellations                                   []struct {
		ID         string
		Rank       int
		AtUnixNano int64 `json:"at_unix_nano"`
	}
	Ranks []struct {
		Requests, Running, Waiting, Cancelled, Blocks int
		NextSeq                                       int `json:"next_seq"`
		DroppedBatches                                int `json:"dropped_batches"`
		ReplaysAnswered                               int `json:"replays_answered"`
	}
}

func (b *bench) stats() counts {
	b.t.Helper()
	status, raw := b.do("GET", "/sim/stats", "")
	var c counts
	if err := json.Unmarshal(raw, &c); err != nil || status != http.StatusOK {
		b.t.Fatalf("stats: status %d, %v: %s", status, err, raw)
	}
	return c
}

// waitStats polls until the numbers are as wanted.
func (b *bench) waitStats(what string, good func(counts) bool) counts {
	b.t.Helper()
	var last counts
	eventually(b.t, what, func() bool { last = b.stats(); return good(last) })
	return last
}

// eventually polls a condition for at most 10 s.
func eventually(t *testing.T, what string, good func() bool) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	ticker := time.NewTicker(2 * time.Millisecond)
	defer ticker.Stop()
	for !good() {
		select {
		case <-deadline:
			t.Fatalf("did not happen: %s", what)
		case <-ticker.C:
		}
	}
}

// events reads server-sent events one by one.
type events struct {
	body io.ReadCloser
	r    *bufio.Reader
}

func (b *bench) stream(ctx context.Context, path, body string, headers ...string) *events {
	b.t.Helper()
	resp := b.send(ctx, "POST", path, body, headers...)
	b.t.Cleanup(func() { resp.Body.Close() })
	if got := resp.Header.Get("Content-Type"); resp.StatusCode != http.StatusOK || !strings.HasPrefix(got, "text/event-stream") {
		b.t.Fatalf("stream: status %d, type %q", resp.StatusCode, got)
	}
	return &events{body: resp.Body, r: bufio.NewReader(resp.Body)}
}

// next returns the data of the next event.
func (e *events) next() (string, error) {
	var data bytes.Buffer
	for {
		line, err := e.r.ReadString('\n')
		if err != nil {
			return "", err
		}
		if line == "\n" {
			return data.String(), nil
		}
		data.WriteString(strings.TrimPrefix(strings.TrimSuffix(line, "\n"), "data: "))
	}
}

// rest returns the data of all further events.
func (e *events) rest() ([]string, error) {
	var list []string
	for {
		data, err := e.next()
		if errors.Is(err, io.EOF) {
			return list, nil
		}
		if err != nil {
			return list, err
		}
		list = append(list, data)
	}
}

const hello = `{"model":"sim-model","messages":[{"role":"user","content":"hello there"}]`
