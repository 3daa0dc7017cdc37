//go:build e2e

package e2e_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

const streamed = `{"model":"m","prompt":"hi","stream":true,"stream_options":{"include_usage":true}}`

// openStream asks for a streamed completion and returns the answer's body,
// unread.
func (r *router) openStream() io.ReadCloser {
	r.t.Helper()
	resp, err := http.Post(r.frontend+"/v1/completions", "application/json", strings.NewReader(streamed))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = resp.Body.Close() })
	if resp.StatusCode != http.StatusOK {
		r.t.Fatalf("status %d, want 200", resp.StatusCode)
	}
	return resp.Body
}

func TestS1_CharacterCutBetweenTwoWrites(t *testing.T) {
	event := []byte("data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"北京\"}}]}\n\n")
	cut := bytes.Index(event, []byte("北")) + 1
	f := startFake(t, func(c net.Conn, _ *seen) bool {
		eventStream(c)
		say(c, string(event[:cut]))
		<-time.After(50 * time.Millisecond)
		say(c, string(event[cut:]))
		say(c, "data: [DONE]\n\n")
		return false
	})
	r := startRouter(t, fakes(f))
	got := r.post("/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"hi"}],"stream":true}`).body
	want := append(bytes.Clone(event), "data: [DONE]\n\n"...)
	if sha256.Sum256(got) != sha256.Sum256(want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if bytes.Contains(got, []byte{0xef, 0xbf, 0xbd}) {
		t.Error("the answer has a replacement character")
	}
	r.idle("m", 5*time.Second)
}

func TestS3_LoadIsShownDuringTheWholeStream(t *testing.T) {
	release := make(chan struct{})
	slow := func(c net.Conn, _ *seen) bool {
		eventStream(c)
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-release:
				say(c, "data: [DONE]\n\n")
				return false
			case <-tick.C:
				say(c, "data: {\"choices\":[]}\n\n")
			}
		}
	}
	var list []*fake
	for range 4 {
		list = append(list, startFake(t, slow))
	}
	r := startRouter(t, fakes(list...))
	req, err := http.NewRequestWithContext(t.Context(), "POST", r.frontend+"/v1/completions", strings.NewReader(streamed))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("x-routerd-pin", "w1")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	ended := make(chan time.Time, 1)
	go func() {
		_, _ = io.Copy(io.Discard, resp.Body)
		ended <- time.Now()
	}()
	looks := 0
	for end := time.Now().Add(streamRun); time.Now().Before(end); looks++ {
		for _, v := range r.partition("m").Ranks {
			want := 0
			if v.Name == "w1" {
				want = 1
			}
			if v.Load.Active != want {
				t.Fatalf("look %d: %s has %d active requests during the stream, want %d", looks, v.Name, v.Load.Active, want)
			}
		}
	}
	close(release)
	at := <-ended
	r.idle("m", 100*time.Millisecond*patience)
	t.Logf("%d looks; idle %s after the end (stated: 100 ms)", looks, time.Since(at))
}

func TestS5_UsageEventWithoutChoices(t *testing.T) {
	text := "data: {\"choices\":[{\"index\":0,\"text\":\"a\"}]}\n\n" +
		"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":11,\"completion_tokens\":3,\"total_tokens\":14}}\n\n" +
		"data: [DONE]\n\n"
	f := startFake(t, func(c net.Conn, _ *seen) bool {
		eventStream(c)
		say(c, text)
		return false
	})
	r := startRouter(t, fakes(f))
	got := r.post("/v1/completions", streamed)
	if got.status != http.StatusOK || string(got.body) != text {
		t.Errorf("status %d, %q, want %q", got.status, got.body, text)
	}
	r.idle("m", 5*time.Second)
	m := r.metrics()
	prompt, completed := sum(m, "routerd_frontend_tokens_total", `"prompt"`), sum(m, "routerd_frontend_tokens_total", `"completion"`)
	if prompt != 11 || completed != 3 {
		t.Errorf("recorded %v prompt and %v completion tokens, want 11 and 3", prompt, completed)
	}
}

func TestD1_ClientGoesWhileTheWorkerIsSilent(t *testing.T) {
	closed := make(chan time.Time, 1)
	f := startFake(t, func(c net.Conn, _ *seen) bool {
		eventStream(c)
		for i := range 3 {
			say(c, fmt.Sprintf("data: {\"choices\":[{\"index\":0,\"text\":\"%d\"}]}\n\n", i))
		}
		// Silent until the router goes.
		_, _ = c.Read(make([]byte, 1))
		closed <- time.Now()
		return false
	})
	r := startRouter(t, fakes(f))
	stream := r.openStream()
	buffer := make([]byte, 0, 4096)
	for bytes.Count(buffer, []byte("\n\n")) < 3 {
		n, err := stream.Read(buffer[len(buffer):cap(buffer)])
		buffer = buffer[:len(buffer)+n]
		if err != nil {
			t.Fatal(err)
		}
	}
	if got := r.rank("m", "w1").Load.Active; got != 1 {
		t.Errorf("%d active requests during the stream, want 1", got)
	}
	left := time.Now()
	_ = stream.Close()
	select {
	case at := <-closed:
		t.Logf("the worker saw the close after %s (stated: %s)", at.Sub(left), closeWithin)
		if at.Sub(left) > closeWithin*patience {
			t.Errorf("the worker saw the close after %s, want within %s (asserted at %d times)", at.Sub(left), closeWithin, patience)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the worker's connection was not closed within 10 s")
	}
	r.idle("m", closeWithin*patience)
	m := r.metrics()
	if got := sum(m, "routerd_frontend_client_cancelled_total"); got != 1 {
		t.Errorf("%v cancelled by clients, want 1", got)
	}
	if got := sum(m, "routerd_frontend_worker_failures_total"); got != 0 {
		t.Errorf("%v worker failures, want 0", got)
	}
}
