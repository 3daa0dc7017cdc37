package sharedcache_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/internal/testkit"
	"github.com/routerd/routerd/kvcache"
	"github.com/routerd/routerd/sharedcache"
)

var _ core.SharedCache = (*sharedcache.Client)(nil)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var key = fleet.PartitionKey{Model: "m", Group: "default"}

// posting is a Poster made of a function; it counts its calls.
type posting struct {
	calls atomic.Int64
	post  func(ctx context.Context, body string) (int, string, error)
}

func (p *posting) Post(ctx context.Context, _, _ string, body []byte) (status int, answer []byte, err error) {
	p.calls.Add(1)
	status, text, err := p.post(ctx, string(body))
	return status, []byte(text), err
}

// answering is a Poster that always gives the same answer.
func answering(status int, answer string) *posting {
	return &posting{post: func(context.Context, string) (int, string, error) { return status, answer, nil }}
}

// isProbe tells the questions of Run from those for a prompt.
func isProbe(body string) bool { return body == `{"hashes":[]}` }

// over is a Poster over real connections.
type over struct{ client *http.Client }

func (o over) Post(ctx context.Context, endpoint, path string, body []byte) (status int, answer []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	resp, err := o.client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err = io.ReadAll(resp.Body)
	return resp.StatusCode, answer, err
}

// rig is a Client, what it logged and what it counted.
type rig struct {
	*sharedcache.Client
	reg *prometheus.Registry
	log *lockedBuffer
}

func newRig(t testing.TB, url string, deadline time.Duration, poster sharedcache.Poster) *rig {
	t.Helper()
	r := &rig{reg: prometheus.NewRegistry(), log: &lockedBuffer{}}
	cfg := sharedcache.Config{URL: url, Deadline: deadline}
	c, err := sharedcache.New(cfg, poster, slog.New(slog.NewTextHandler(r.log, nil)), r.reg)
	if err != nil {
		t.Fatal(err)
	}
	r.Client = c
	return r
}

// run lets Run go until the returned function was called, which waits for it.
func (r *rig) run(t testing.TB) (stop func()) {
	t.Helper()
	return testkit.Running(t, r.Run)
}

func (r *rig) hits(t testing.TB, n int) ([]kvcache.BlockRange, error) {
	t.Helper()
	return r.Hits(t.Context(), key, hashes(n), nil)
}

// counted is the value of a metric, with the reason where it has one.
func (r *rig) counted(t testing.TB, name, reason string) float64 {
	t.Helper()
	families, err := r.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() != "routerd_shared_cache_"+name || (reason != "" && m.GetLabel()[0].GetValue() != reason) {
				continue
			}
			return m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	t.Fatalf("no metric %s %s", name, reason)
	return 0
}

func (r *rig) failures(t testing.TB, reason string) int {
	t.Helper()
	return int(r.counted(t, "errors_total", reason))
}

// lines counts the lines of the log that hold text.
func (r *rig) lines(text string) int { return strings.Count(r.log.String(), text) }

func hashes(n int) []kvcache.SequenceHash {
	out := make([]kvcache.SequenceHash, n)
	for i := range out {
		out[i] = ^kvcache.SequenceHash(0) - kvcache.SequenceHash(i)
	}
	return out
}

type lockedBuffer struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
