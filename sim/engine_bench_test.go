package sim_test

import (
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/routerd/routerd/sim"
)

// benchmarkAnswers measures an engine together with net/http's client, over
// keep-alive connections on loopback.
func benchmarkAnswers(b *testing.B, body string) {
	c := sim.DefaultConfig()
	c.Events = false
	e, err := sim.New(c, slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	if err := e.Start(); err != nil {
		b.Fatal(err)
	}
	defer e.Close()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	defer client.CloseIdleConnections()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			resp, err := client.Post(e.URL()+"/v1/completions", "application/json", strings.NewReader(body))
			if err != nil {
				b.Error(err)
				return
			}
			if _, err := io.Copy(io.Discard, resp.Body); err != nil {
				b.Error(err)
			}
			resp.Body.Close()
		}
	})
}

func BenchmarkUnaryAnswer(b *testing.B) {
	benchmarkAnswers(b, `{"prompt":"`+strings.Repeat("word ", 200)+`","max_tokens":16}`)
}

func BenchmarkStreamOf100Chunks(b *testing.B) {
	benchmarkAnswers(b, `{"prompt":"hello","max_tokens":100,"ignore_eos":true,"stream":true}`)
}
