package upstream_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/valyala/fasthttp"

	"github.com/routerd/routerd/upstream"
)

const sse = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"

// relay serves one answer in the given writes; each waits for a token, so the
// test says when. It returns the open body.
func relay(t *testing.T, c *upstream.Client, head string, writes []string) (b *upstream.Body, next chan<- struct{}) {
	t.Helper()
	turn := make(chan struct{})
	t.Cleanup(func() { close(turn) })
	w := serve(t, func(p *peer) {
		p.request()
		p.say(head)
		for _, s := range writes {
			if _, ok := <-turn; !ok {
				return
			}
			p.say(s)
		}
		p.waitClosed()
	})
	call := new(upstream.Call)
	b, err := c.Do(call, w.ep, post("{}"), new(fasthttp.ResponseHeader))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b, turn
}

func chunk(s string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(s), s) }

func TestS1_MultibyteCutInsideACharacter(t *testing.T) {
	event := "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"北京\"}}]}\n\n"
	cut := strings.Index(event, "北") + 1
	b, turn := relay(t, newClient(t, nil), sse+"Transfer-Encoding: chunked\r\n\r\n",
		[]string{chunk(event[:cut]), chunk(event[cut:]) + "0\r\n\r\n"})
	buf := make([]byte, 4096)
	turn <- struct{}{}
	n, err := b.Read(buf)
	if err != nil || string(buf[:n]) != event[:cut] {
		t.Fatalf("first read %q, %v; want the bytes up to the cut, at once", buf[:n], err)
	}
	turn <- struct{}{}
	rest, err := io.ReadAll(b)
	if err != nil {
		t.Fatal(err)
	}
	if sha256.Sum256(append(buf[:n:n], rest...)) != sha256.Sum256([]byte(event)) {
		t.Errorf("received %q, want %q", append(buf[:n:n], rest...), event)
	}
}

func TestS1_EverySplitOfAnAnswerGivesTheSameBytes(t *testing.T) {
	event := "data: {\"delta\":\"北京\"}\r\n\r\ndata: [DONE]\r\n\r\n"
	raw := chunk(event[:9]) + chunk(event[9:]) + "0\r\nX-T: 1\r\n\r\n"
	for cut := range len(raw) {
		got, err := io.ReadAll(upstream.NewChunkedReader(&pieces{[]byte(raw[:cut]), []byte(raw[cut:])}, 1024))
		if err != nil || string(got) != event {
			t.Fatalf("cut at %d: %q, %v", cut, got, err)
		}
	}
	got, err := io.ReadAll(upstream.NewChunkedReader(iotest.OneByteReader(strings.NewReader(raw)), 1024))
	if err != nil || string(got) != event {
		t.Fatalf("byte by byte: %q, %v", got, err)
	}
}

func TestChunksThatHaveArrivedComeInOneRead(t *testing.T) {
	var all, raw strings.Builder
	for i := range 50 {
		e := fmt.Sprintf("data: %d\n\n", i)
		all.WriteString(e)
		raw.WriteString(chunk(e))
	}
	// The next chunk is half there: what is complete must not wait for it.
	for name, half := range map[string]string{"size": "5", "size line": "5\r", "data": "5\r\n", "end": "5\r\nhello", "half end": "5\r\nhello\r"} {
		t.Run(name, func(t *testing.T) {
			b, turn := relay(t, newClient(t, nil), sse+"Transfer-Encoding: chunked\r\n\r\n", []string{raw.String() + half})
			turn <- struct{}{}
			buf := make([]byte, 16<<10)
			n, err := b.Read(buf)
			want := all.String() + strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(half, "5\r"), "\n"), "\r")
			if half == "5" {
				want = all.String()
			}
			if diff := cmp.Diff(want, string(buf[:n])); diff != "" || err != nil {
				t.Errorf("%v, %v", diff, err)
			}
		})
	}
}

func TestS6_EventStreamWithLengthIsDeliveredAsWritten(t *testing.T) {
	writes := slices.Repeat([]string{strings.Repeat("e", 512)}, 8)
	b, turn := relay(t, newClient(t, nil), sse+"Content-Length: 4096\r\n\r\n", writes)
	buf := make([]byte, 4096)
	for i := range writes {
		turn <- struct{}{}
		sent := time.Now()
		n, err := b.Read(buf)
		if n != 512 || err != nil {
			t.Fatalf("write %d: read %d bytes, %v", i, n, err)
		}
		if took := time.Since(sent); took > 500*time.Millisecond {
			t.Errorf("write %d took %v", i, took)
		}
	}
	if n, err := b.Read(buf); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("after the last write: %d, %v; want EOF", n, err)
	}
}

func TestS7_OneHugeEventAndWhatFollows(t *testing.T) {
	event := "data: " + strings.Repeat("x", 3<<20) + "\n\n"
	want := event + "data: [DONE]\n\n"
	w := answer(t, sse+"Transfer-Encoding: chunked\r\n\r\n"+chunk(event)+chunk("data: [DONE]\n\n")+"0\r\n\r\n")
	c := newClient(t, nil)
	for range 2 {
		_, body, err := fetch(c, w.ep, post("{}"))
		if err != nil || body != want {
			t.Fatalf("%d bytes, %v; want %d", len(body), err, len(want))
		}
	}
	if n := w.accepted.Load(); n != 1 {
		t.Errorf("%d connections", n)
	}
}

func TestUnreadBodyClosesTheConnection(t *testing.T) {
	closed := make(chan struct{})
	w := serve(t, func(p *peer) {
		p.request()
		p.say(sse + "Transfer-Encoding: chunked\r\n\r\n" + chunk("data: 1\n\n"))
		p.waitClosed()
		close(closed)
	})
	c := newClient(t, nil)
	var call upstream.Call
	b, err := c.Do(&call, w.ep, post("{}"), new(fasthttp.ResponseHeader))
	if err != nil {
		t.Fatal(err)
	}
	if n, err := b.Read(make([]byte, 100)); n == 0 || err != nil {
		t.Fatal(n, err)
	}
	for range 2 {
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	}
	wait(t, "close at the worker", closed)
	if _, err := b.Read(make([]byte, 1)); !errors.Is(err, upstream.ErrBodyClosed) {
		t.Errorf("read after Close: %v", err)
	}
	if s := c.Stats(); s.Open != 0 {
		t.Errorf("%+v", s)
	}
}

func TestSecondCloseDoesNotTouchTheNextUserOfTheConnection(t *testing.T) {
	w := answer(t, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	c := newClient(t, nil)
	var first upstream.Call
	b, err := c.Do(&first, w.ep, post("{}"), new(fasthttp.ResponseHeader))
	if err != nil {
		t.Fatal(err)
	}
	io.Copy(io.Discard, b)
	b.Close()
	var second upstream.Call
	b2, err := c.Do(&second, w.ep, post("{}"), new(fasthttp.ResponseHeader))
	if err != nil {
		t.Fatal(err)
	}
	b.Close()
	first.Cancel()
	if got, err := io.ReadAll(b2); string(got) != "ok" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	b2.Close()
	if n := w.accepted.Load(); n != 1 {
		t.Errorf("%d connections", n)
	}
}

func TestAppendToReadsTheRestWithinItsLimit(t *testing.T) {
	body := strings.Repeat("0123456789", 1000)
	for name, raw := range map[string]string{
		"length":  "HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n" + body,
		"chunked": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(body) + "0\r\n\r\n",
		"empty":   "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			want := "pre" + body
			if name == "empty" {
				want = "pre"
			}
			w, c := answer(t, raw), newClient(t, nil)
			for _, limit := range []int{10000, 9999} {
				var call upstream.Call
				b, err := c.Do(&call, w.ep, post("{}"), new(fasthttp.ResponseHeader))
				if err != nil {
					t.Fatal(err)
				}
				got, err := b.AppendTo([]byte("pre"), limit)
				b.Close()
				if limit == 9999 && name != "empty" {
					if !errors.Is(err, upstream.ErrBodyTooLarge) || len(got) > 3+limit {
						t.Errorf("limit %d: %d bytes, %v", limit, len(got), err)
					}
					continue
				}
				if err != nil || string(got) != want {
					t.Errorf("limit %d: %d bytes, %v; want %d", limit, len(got), err, len(want))
				}
			}
			if s := c.Stats(); name == "length" && s.Idle != 0 {
				t.Errorf("a connection with unread bytes was kept: %+v", s)
			}
		})
	}
}

func TestABodyCanBeBoundedForAWhile(t *testing.T) {
	goOn := make(chan struct{})
	w := serve(t, func(p *peer) {
		for range 2 {
			if _, _, ok := p.request(); !ok {
				return
			}
			p.say("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\na")
			<-goOn
			p.say("b")
		}
	})
	c := newClient(t, nil)
	var call upstream.Call
	b, err := c.Do(&call, w.ep, post("{}"), new(fasthttp.ResponseHeader))
	if err != nil {
		t.Fatal(err)
	}
	b.Within(time.Minute)
	b.Within(0)
	goOn <- struct{}{}
	if all, err := io.ReadAll(b); err != nil || string(all) != "ab" {
		t.Errorf("%q, %v", all, err)
	}
	b.Close()
	b.Within(time.Second) // does nothing
	if b, err = c.Do(&call, w.ep, post("{}"), new(fasthttp.ResponseHeader)); err != nil {
		t.Fatal(err)
	}
	b.Within(20 * time.Millisecond)
	if all, err := io.ReadAll(b); string(all) != "a" || !failed(t, err).Timeout {
		t.Errorf("%q, %v", all, err)
	}
	b.Close()
	close(goOn)
}
