package frontend_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// streamed is an answer that is being read; its end is the test's.
type streamed struct {
	Body          io.ReadCloser
	ContentLength int64
}

// stream opens a streamed completion and returns its response.
func (w *world) stream(t testing.TB, c *http.Client, headers ...string) streamed {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+w.addr+chatPath, strings.NewReader(`{"model":"m","stream":true,"messages":[{"role":"user","content":"hello hello"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Add(headers[i], headers[i+1])
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return streamed{resp.Body, resp.ContentLength}
}

// told relays pieces as the test hands them over; closing the channel ends the
// stream without its last chunk.
func told(t testing.TB, head string) (*worker, chan string) {
	pieces, over := make(chan string), make(chan struct{})
	wk := serve(t, func(p *peer) {
		if _, ok := p.next(); !ok {
			return
		}
		p.say(head)
		for {
			select {
			case s, ok := <-pieces:
				if !ok {
					return
				}
				p.say(s)
			case <-over:
				return
			}
		}
	})
	t.Cleanup(func() { close(over) })
	return wk, pieces
}

func TestS1_MultibyteCutInsideACharacter(t *testing.T) {
	const body = `data: {"choices":[{"index":0,"delta":{"content":"北京"}}]}` + "\n\n"
	w := start(t)
	wk, pieces := told(t, sse)
	w.join(t, "w1", wk.url)
	resp := w.stream(t, client(t))
	cut := strings.Index(body, "北") + 1
	pieces <- chunk(body[:cut])
	first := make([]byte, cut)
	if _, err := io.ReadFull(resp.Body, first); err != nil {
		t.Fatal(err)
	}
	pieces <- chunk(body[cut:]) + event("[DONE]") + lastChunk
	rest, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	close(pieces)
	if got := string(first) + string(rest); got != body+"data: [DONE]\n\n" {
		t.Errorf("got %q", got)
	}
}

func TestS2_SeparatorsCutAnywhere(t *testing.T) {
	w := start(t)
	wk, pieces := told(t, sse)
	w.join(t, "w1", wk.url)
	resp := w.stream(t, client(t))
	pieces <- chunk(": hello\r\n\r\ndata: {\"choices\":[{}]}\r")
	head := make([]byte, 34)
	if _, err := io.ReadFull(resp.Body, head); err != nil {
		t.Fatal(err)
	}
	if n := w.prefill(); n == 0 {
		t.Error("prefill complete before the first event")
	}
	pieces <- chunk("\n\r")
	eventually(t, "prefill complete at the first event", func() bool { return w.prefill() == 0 })
	if n := w.active("w1"); n != 1 {
		t.Errorf("%d active in the stream", n)
	}
	pieces <- chunk("\ndata: {\"usage\":{\"completion_tokens\":7,\"prompt_tokens\":2}}\r\n\r")
	pieces <- chunk("\ndata: [DONE]\r\n\r\n") + lastChunk
	rest, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	close(pieces)
	want := ": hello\r\n\r\ndata: {\"choices\":[{}]}\r\n\r\ndata: {\"usage\":{\"completion_tokens\":7,\"prompt_tokens\":2}}\r\n\r\ndata: [DONE]\r\n\r\n"
	if got := string(head) + string(rest); got != want {
		t.Errorf("got %q", got)
	}
	eventually(t, "release", func() bool { return w.active("") == 0 })
	if n := w.metric(t, "routerd_frontend_tokens_total", "completion"); n != 7 {
		t.Errorf("%v output tokens", n)
	}
	if got := w.released.kinds(); len(got) != 1 || got["completed"] != 1 {
		t.Errorf("%v", got)
	}
}

// prefill is the number of tokens to be prefilled over all ranks.
func (w *world) prefill() (n int64) {
	for _, p := range w.core.Partitions() {
		for _, r := range p.Ranks {
			n += r.Load.PrefillTokens
		}
	}
	return n
}

func TestS3_ABookingLastsAsLongAsItsStream(t *testing.T) {
	w := start(t)
	wk, pieces := told(t, sse)
	w.join(t, "w1", wk.url)
	for i := range 3 {
		w.join(t, fmt.Sprintf("other%d", i), answering(t, plain("{}")).url)
	}
	resp := w.stream(t, client(t), "x-routerd-pin", "w1")
	br := bufio.NewReader(resp.Body)
	for i := range 20 {
		pieces <- event(fmt.Sprint(i))
		if _, err := br.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		if _, err := br.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		if n := w.active("w1"); n != 1 {
			t.Fatalf("%d active requests at event %d", n, i)
		}
	}
	ended := time.Now()
	pieces <- event("[DONE]") + lastChunk
	close(pieces)
	if _, err := io.Copy(io.Discard, br); err != nil {
		t.Fatal(err)
	}
	eventually(t, "release", func() bool { return w.active("w1") == 0 })
	if took := time.Since(ended); took > time.Second {
		t.Errorf("released after %v", took)
	}
}

func TestS4_AWorkerThatClosesBeforeTheFirstByteCostsNoRequest(t *testing.T) {
	w := start(t)
	w.join(t, "w1", serve(t, func(p *peer) { p.next() }).url)
	w.join(t, "w2", serve(t, func(p *peer) {
		for {
			if _, ok := p.next(); !ok {
				return
			}
			p.say(sse + event("1") + event("2") + event("[DONE]") + lastChunk)
		}
	}).url)
	c := client(t)
	for i := range 100 {
		got, err := w.try(t, c, "POST", chatPath, `{"model":"m","stream":true,"messages":[]}`)
		if err != nil || got.status != 200 || got.header.Get("X-Routerd-Worker") != "w2" || got.body != "data: 1\n\ndata: 2\n\ndata: [DONE]\n\n" {
			t.Fatalf("request %d: %v %+v", i, err, got)
		}
	}
	if n := w.active(""); n != 0 {
		t.Errorf("%d bookings left", n)
	}
	if n := w.metric(t, "routerd_frontend_worker_failures_total", "w1"); n == 0 {
		t.Error("the failure of w1 is not counted")
	}
	if n := w.metric(t, "routerd_frontend_client_cancelled_total"); n != 0 {
		t.Errorf("%v cancelled", n)
	}
	if got := w.released.kinds(); got["completed"] != 100 || got["failed"] == 0 {
		t.Errorf("%v", got)
	}
}

func TestS5_TheUsageEventWithoutChoicesPassesAndCounts(t *testing.T) {
	const usage = `{"choices":[],"usage":{"prompt_tokens":11,"completion_tokens":3,"total_tokens":14}}`
	w := start(t)
	w.join(t, "w1", answering(t, sse+event(`{"choices":[{"delta":{"content":"a \"usage\" {"}}],"usage":null}`)+event(usage)+event("[DONE]")+lastChunk).url)
	got := w.do(t, "POST", chatPath, `{"model":"m","stream":true,"stream_options":{"include_usage":true},"messages":[]}`)
	if !strings.Contains(got.body, "data: "+usage+"\n\n") {
		t.Errorf("got %q", got.body)
	}
	eventually(t, "release", func() bool { return w.active("") == 0 })
	for kind, want := range map[string]float64{"prompt": 11, "completion": 3} {
		if n := w.metric(t, "routerd_frontend_tokens_total", kind); n != want {
			t.Errorf("%v %s tokens, want %v", n, kind, want)
		}
	}
}

func TestS6_AKnownLengthIsStillRelayedAsItComes(t *testing.T) {
	for _, kind := range []string{"text/event-stream", "application/json"} {
		t.Run(kind, func(t *testing.T) {
			w := start(t)
			wk, pieces := told(t, "HTTP/1.1 200 OK\r\nContent-Type: "+kind+"\r\nContent-Length: 4096\r\n\r\n")
			w.join(t, "w1", wk.url)
			pieced := make(chan struct{})
			go func() {
				defer close(pieced)
				pieces <- strings.Repeat("a", 512)
			}()
			resp := w.stream(t, client(t))
			<-pieced
			if resp.ContentLength != 4096 {
				t.Errorf("Content-Length %d", resp.ContentLength)
			}
			piece := make([]byte, 512)
			for i := range 8 {
				if i > 0 {
					pieces <- strings.Repeat(string(rune('a'+i)), 512)
				}
				sent := time.Now()
				if _, err := io.ReadFull(resp.Body, piece); err != nil {
					t.Fatalf("piece %d: %v", i, err)
				}
				if took := time.Since(sent); took > 500*time.Millisecond {
					t.Errorf("piece %d took %v", i, took)
				}
			}
			if n, err := resp.Body.Read(piece); n != 0 || err != io.EOF {
				t.Errorf("%d, %v at the end", n, err)
			}
			close(pieces)
			eventually(t, "release", func() bool { return w.active("") == 0 })
		})
	}
}

func TestS7_AnEventOfThreeMebibytesPassesInLittleMemory(t *testing.T) {
	const size = 3 << 20
	w := start(t)
	w.join(t, "w1", serve(t, func(p *peer) {
		if _, ok := p.next(); !ok {
			return
		}
		p.say(sse + chunk("data: {\"x\":\""))
		piece := []byte(chunk(strings.Repeat("x", 16<<10))) // say would copy it each time
		for range size / (16 << 10) {
			_, _ = p.Write(piece)
		}
		p.say(chunk("\"}\n\n") + event(`{"usage":{"completion_tokens":9}}`) + event("[DONE]") + lastChunk)
		p.closedByRouter()
	}).url)
	resp := w.stream(t, client(t))
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	n, err := io.Copy(io.Discard, resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if want := int64(size + len("data: {\"x\":\"\"}\n\n") + len("data: {\"usage\":{\"completion_tokens\":9}}\n\ndata: [DONE]\n\n")); n != want {
		t.Errorf("%d bytes, want %d", n, want)
	}
	if grown := int64(after.TotalAlloc - before.TotalAlloc); grown > 2<<20 {
		t.Errorf("%d bytes allocated in all, worker and client included", grown)
	}
	eventually(t, "tokens of the event after", func() bool { return w.metric(t, "routerd_frontend_tokens_total", "completion") == 9 })
}

func TestAnErrorInsideAStreamCountsAsTheWorkersFailure(t *testing.T) {
	for name, tail := range map[string]string{
		"error object": event(`{"error":{"message":"x"}}`) + event("[DONE]") + lastChunk,
		"no DONE":      lastChunk,
		"cut":          "",
	} {
		t.Run(name, func(t *testing.T) {
			w := start(t)
			w.join(t, "w1", serve(t, func(p *peer) {
				if _, ok := p.next(); ok {
					p.say(sse + event(`{"choices":[]}`) + tail)
				}
			}).url)
			resp := w.stream(t, client(t))
			_, err := io.Copy(io.Discard, resp.Body)
			if (err != nil) != (name == "cut") {
				t.Errorf("read: %v", err)
			}
			eventually(t, "failure", func() bool { return w.metric(t, "routerd_frontend_worker_failures_total", "w1") == 1 })
			if got := w.released.kinds(); got["failed"] != 1 {
				t.Errorf("%v", got)
			}
		})
	}
}

func TestHeadAndBodyOfAnUnaryAnswerAreOneWrite(t *testing.T) {
	w := start(t)
	w.join(t, "w1", answering(t, plain(strings.Repeat("x", 1000))).url)
	nc := w.raw(t, post(chatPath, chatBody))
	buf := make([]byte, 64<<10)
	n, err := nc.Read(buf)
	if err != nil || !strings.HasSuffix(string(buf[:n]), "xxx") {
		t.Errorf("first read gave %d bytes, %v", n, err)
	}
}

func TestAnHTTP10ClientGetsAWholeAnswer(t *testing.T) {
	w := start(t)
	w.join(t, "w1", answering(t, sse+event("1")+event("[DONE]")+lastChunk).url)
	nc := w.raw(t, strings.Replace(post(chatPath, chatBody), "HTTP/1.1", "HTTP/1.0", 1))
	b, err := io.ReadAll(nc)
	if err != nil {
		t.Fatal(err)
	}
	got := string(b)
	if !strings.HasSuffix(got, "\r\n\r\ndata: 1\n\ndata: [DONE]\n\n") || strings.Contains(strings.ToLower(got), "transfer-encoding") {
		t.Errorf("got %q", got)
	}
}

func TestAnHTTP10ClientGetsLongAnswersOnlyOfKnownLength(t *testing.T) {
	w := start(t)
	for name, c := range map[string]struct {
		raw    string
		status string
		bytes  int
	}{
		"known":   {plain(strings.Repeat("x", 9<<20)), "200", 9 << 20},
		"chunked": {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + strings.Repeat(chunk(strings.Repeat("x", 1<<20)), 9) + lastChunk, "502", 0},
		"short":   {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + strings.Repeat(chunk(strings.Repeat("x", 1<<20)), 7) + lastChunk, "200", 7 << 20},
		"refusal": {"HTTP/1.1 503 Busy\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(strings.Repeat("x", 100<<10)) + lastChunk, "503", 100 << 10},
	} {
		w.join(t, name, answering(t, c.raw).url)
		b, err := io.ReadAll(w.raw(t, strings.Replace(post(chatPath, chatBody, "x-routerd-allow: "+name), "HTTP/1.1", "HTTP/1.0", 1)))
		head, body, _ := strings.Cut(string(b), "\r\n\r\n")
		if err != nil || !strings.HasPrefix(head, "HTTP/1.1 "+c.status) || c.bytes != strings.Count(body, "x") && c.bytes > 0 {
			t.Errorf("%s: %.200q, %d bytes, %v", name, head, len(body), err)
		}
		if c.bytes == 0 && !strings.Contains(body, "answer_too_long") {
			t.Errorf("%s: %.200q", name, body)
		}
	}
}

func TestManyStreamsEndWithNoBookingLeft(t *testing.T) {
	w := start(t)
	for i := range 4 {
		w.join(t, fmt.Sprintf("w%d", i), serve(t, func(p *peer) {
			for {
				if _, ok := p.next(); !ok {
					return
				}
				p.say(sse)
				for range 10 {
					p.say(event("x"))
				}
				p.say(event("[DONE]") + lastChunk)
			}
		}).url)
	}
	var wg sync.WaitGroup
	for range 8 {
		c := client(t)
		wg.Go(func() {
			for range 10 {
				got, err := w.try(t, c, "POST", chatPath, chatBody)
				if err != nil || strings.Count(got.body, "data: x\n\n") != 10 {
					t.Errorf("%v %q", err, got.body)
				}
			}
		})
	}
	wg.Wait()
	eventually(t, "release", func() bool { return w.active("") == 0 && w.metric(t, "routerd_frontend_in_flight") == 0 })
	if got := w.released.kinds(); got["completed"] != 80 || len(got) != 1 {
		t.Errorf("%v", got)
	}
}
