package selection_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/valyala/fasthttp"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/selection"
)

// selectOf is a body with so many token ids, as Python's json writes them.
func selectOf(tokens int) []byte {
	rng := rand.New(rand.NewPCG(1, 2))
	parts := make([]string, tokens)
	for i := range parts {
		parts[i] = fmt.Sprint(rng.IntN(128_000))
	}
	return []byte(`{"model_name": "default", "token_ids": [` + strings.Join(parts, ", ") + `]}`)
}

func BenchmarkScan(b *testing.B) {
	for _, tokens := range []int{512, 8192} {
		b.Run(fmt.Sprintf("tokens=%d", tokens), func(b *testing.B) {
			raw := selectOf(tokens)
			var bodies selection.Bodies
			b.SetBytes(int64(len(raw)))
			b.ReportAllocs()
			for b.Loop() {
				if err := bodies.Select(raw, func(*core.Request) {}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(tokens), "ns/id")
		})
	}
}

// fleetOf joins so many workers.
func (w *world) fleetOf(t testing.TB, n int) {
	t.Helper()
	var recs []fleet.Record
	for i := range n {
		recs = append(recs, worker(fleet.WorkerID(i+1)))
	}
	w.join(t, recs...)
}

// call answers a request in place, as often as it is called.
func (w *world) call(t testing.TB, path string, body []byte) func() {
	t.Helper()
	var rc fasthttp.RequestCtx
	var req fasthttp.Request
	req.Header.SetMethod("POST")
	req.Header.SetContentType("application/json")
	req.SetRequestURI(path)
	req.SetBodyRaw(body)
	rc.Init(&req, nil, nil)
	rc.Request.SetBodyRaw(body)
	return func() {
		rc.Response.Reset()
		if w.srv.Handle(&rc); rc.Response.StatusCode() != 200 {
			t.Fatalf("got %d: %s", rc.Response.StatusCode(), rc.Response.Body())
		}
	}
}

func BenchmarkSelect(b *testing.B) {
	for _, tokens := range []int{512, 8192} {
		b.Run(fmt.Sprintf("workers=64/tokens=%d", tokens), func(b *testing.B) {
			w := newWorld(b, options{})
			w.fleetOf(b, 64)
			call := w.call(b, "/select", selectOf(tokens))
			b.ReportAllocs()
			for b.Loop() {
				call()
			}
		})
	}
}
