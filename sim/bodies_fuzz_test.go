package sim_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/routerd/routerd/sim"
)

func FuzzBodiesAreAnsweredOrRefused(f *testing.F) {
	for _, body := range []string{
		hello + `}`,
		hello + `,"stream":true,"stream_options":{"include_usage":true},"n":2,"stop":["a","the "],"max_tokens":4}`,
		`{"prompt":[[1,2],[3]],"echo":true}`, `{"prompt":["a","b"]}`, `{"prompt":[1.5]}`, `{"prompt":[4294967296]}`,
		`{"messages":[{"role":"user","content":[{"type":"text","text":"x"},{}]}],"continue_final_message":true}`,
		`{"messages":[null]}`, `[`, `null`, `{"prompt":"\ud800"}`, `{"tokens":[0,99999999]}`, `{"kind":"status","status":200,"body":null}`,
	} {
		f.Add(body)
	}
	c := sim.DefaultConfig()
	c.Events, c.MaxModelLen = false, 64
	e, err := sim.New(c, slog.New(slog.DiscardHandler))
	if err != nil {
		f.Fatal(err)
	}
	if err := e.Start(); err != nil {
		f.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{}}
	f.Cleanup(func() {
		client.CloseIdleConnections()
		if err := e.Close(); err != nil {
			f.Error(err)
		}
	})
	f.Fuzz(func(t *testing.T, body string) {
		for _, path := range []string{"/v1/chat/completions", "/v1/completions", "/tokenize", "/detokenize"} {
			req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, e.URL()+path, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			resp, err := client.Do(req)
			if err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			raw, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil || resp.StatusCode >= 500 {
				t.Errorf("%s: status %d, %v: %.200s", path, resp.StatusCode, err, raw)
			}
		}
	})
}
