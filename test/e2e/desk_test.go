//go:build e2e

package e2e_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// atOnce begins the prompts that a desk answers without being let.
const atOnce = "now"

// desk is a worker that answers a completion with its prompt, and only when the
// test lets it. A streamed answer begins at once and ends when it is let. It is
// healthy, and tells nothing of itself.
type desk struct {
	url  string
	mayI chan struct{} // one receive an answer; closed once all may

	mu  sync.Mutex // guards got
	got []string   // prompts in order of arrival
}

// startDesk serves until the end of the test.
func startDesk(t *testing.T) *desk {
	t.Helper()
	d := &desk{mayI: make(chan struct{}, 4096)} // more than any test lets ahead
	s := httptest.NewServer(http.HandlerFunc(d.serve))
	d.url = s.URL
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return d
}

// openDesk is a desk that answers all at once.
func openDesk(t *testing.T) *desk {
	t.Helper()
	d := startDesk(t)
	d.open()
	return d
}

// let allows n more answers.
func (d *desk) let(n int) {
	for range n {
		d.mayI <- struct{}{}
	}
}

// open allows all answers from now on.
func (d *desk) open() { close(d.mayI) }

// prompts are those of the requests so far, in order of arrival.
func (d *desk) prompts() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]string(nil), d.got...)
}

// arrived waits until n requests have come.
func (d *desk) arrived(t *testing.T, n int) {
	t.Helper()
	eventually(t, soon, func() error {
		if got := len(d.prompts()); got != n {
			return fmt.Errorf("%d requests at the worker, want %d", got, n)
		}
		return nil
	})
}

func (d *desk) serve(w http.ResponseWriter, r *http.Request) {
	if probed(w, r) {
		return
	}
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	var body struct {
		Prompt   json.RawMessage `json:"prompt"`
		Messages []struct {
			Content string `json:"content"`
		} `json:"messages"`
		Stream bool `json:"stream"`
	}
	if err := json.Unmarshal(raw, &body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var prompt string
	switch {
	case len(body.Messages) > 0:
		prompt = body.Messages[0].Content
	case json.Unmarshal(body.Prompt, &prompt) != nil:
		prompt = string(body.Prompt)
	}
	d.mu.Lock()
	d.got = append(d.got, prompt)
	d.mu.Unlock()

	if body.Stream {
		w.Header().Set("Content-Type", "text/event-stream")
		event(w, prompt)
		event(w, prompt)
	}
	if !strings.HasPrefix(prompt, atOnce) {
		select {
		case <-d.mayI:
		case <-r.Context().Done():
			return
		}
	}
	if body.Stream {
		_, _ = io.WriteString(w, "data: [DONE]\n\n")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"choices": []any{map[string]any{"index": 0, "text": prompt}}})
}

// probed answers what a router asks of its own accord, as an engine does that is
// healthy and tells nothing of itself.
func probed(w http.ResponseWriter, r *http.Request) bool {
	if r.Method == http.MethodGet && r.URL.Path != "/health" {
		http.NotFound(w, r)
	}
	return r.Method == http.MethodGet
}

func event(w http.ResponseWriter, text string) {
	_, _ = fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"text\":%q}]}\n\n", text)
	if f, ok := w.(http.Flusher); ok {
		f.Flush()
	}
}

// desks is the configuration of workers w1, w2, … of a model; the first has the
// id first.
func desks(first int, model string, list ...*desk) string {
	var b strings.Builder
	for i, d := range list {
		fmt.Fprintf(&b, "  - {id: %d, name: w%d, url: %q, model: %s, max_batched_tokens: 8192}\n", first+i, first+i, d.url, model)
	}
	return b.String()
}

// untold begins a configuration whose models m and n count tokens as requests
// bring them, and whose workers follow.
const untold = "models: {m: {block_size: 16, tokenize: \"off\"}, n: {block_size: 16, tokenize: \"off\"}}\nworkers:\n  static:\n"
