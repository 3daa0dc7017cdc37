package frontend_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/routerd/routerd/prompt"
)

// toLength is a chat body of n bytes.
func toLength(n int) string {
	const head, tail = `{"model":"m","messages":[{"content":"`, `"}]}`
	return head + strings.Repeat("x", n-len(head)-len(tail)) + tail
}

func TestAnAnnouncedBodyCostsNoMemoryBeforeItComes(t *testing.T) {
	w := start(t)
	before := heap()
	for i := range 40 {
		framing, first := "Content-Length: 16777216", "{"
		if i%2 == 1 {
			framing, first = "Transfer-Encoding: chunked", "ff0000\r\n{"
		}
		nc := w.raw(t, "POST "+chatPath+" HTTP/1.1\r\nHost: r\r\nExpect: 100-continue\r\n"+framing+"\r\n\r\n")
		readUntil(t, nc, "100 Continue\r\n\r\n")
		if _, err := io.WriteString(nc, first); err != nil {
			t.Fatal(err)
		}
	}
	if got := w.do(t, "GET", "/health", ""); got.status != 200 {
		t.Errorf("%+v", got)
	}
	if grown := int64(heap()) - int64(before); grown > 8<<20 {
		t.Errorf("heap grew by %d bytes", grown)
	}
}

func TestBodiesOfAnySizeArriveWhole(t *testing.T) {
	w := start(t)
	wk, got := recording(t)
	w.join(t, "w1", wk.url)
	for _, size := range []int{60, 16<<10 - 1, 16 << 10, 16<<10 + 1, 64 << 10, 64<<10 + 1, 300_000} {
		body := toLength(size)
		chunked := ""
		for rest := body; rest != ""; {
			n := min(len(rest), 7001)
			chunked += chunk(rest[:n])
			rest = rest[n:]
		}
		for name, send := range map[string]string{
			"length":  post(chatPath, body, "Connection: close"),
			"chunked": "POST " + chatPath + " HTTP/1.1\r\nHost: r\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked + lastChunk,
		} {
			if a := w.rawAnswer(t, send); a.status != 200 {
				t.Fatalf("%s of %d: %+v", name, size, a)
			}
			if r := wait(t, "request", got); string(r.body) != body {
				t.Errorf("%s of %d: %d bytes came", name, size, len(r.body))
			}
		}
	}
}

func TestABodyThatDoesNotComeIsAnswered408(t *testing.T) {
	t.Parallel()
	w := start(t, func(s *setup) { s.patience = 100 * time.Millisecond })
	wk := answering(t, plain("{}"))
	w.join(t, "w1", wk.url)
	for _, rest := range []string{
		"Content-Length: 100\r\n\r\n",
		"Content-Length: 100\r\n\r\n{",
		"Transfer-Encoding: chunked\r\n\r\n",
		"Transfer-Encoding: chunked\r\n\r\n5\r\n{",
		"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n",
	} {
		begun := time.Now()
		got := w.rawAnswer(t, "POST "+chatPath+" HTTP/1.1\r\nHost: r\r\n"+rest)
		checkError(t, got, 408, "request_timeout")
		if took := time.Since(begun); took > 3*time.Second {
			t.Errorf("%q took %v", rest, took)
		}
	}
	if n := wk.seen.Load(); n != 0 {
		t.Errorf("the worker saw %d requests", n)
	}
}

func TestABodyThatEndsEarlyReachesNoWorker(t *testing.T) {
	w := start(t)
	wk := answering(t, plain("{}"))
	w.join(t, "w1", wk.url)
	for _, rest := range []string{
		fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(chatBody)+1, chatBody),
		"Transfer-Encoding: chunked\r\n\r\n" + chunk(chatBody),
		"Transfer-Encoding: chunked\r\n\r\n" + chunk(chatBody) + "zz\r\n",
	} {
		nc := w.raw(t, "POST "+chatPath+" HTTP/1.1\r\nHost: r\r\n"+rest)
		if err := nc.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(nc); err != nil || !strings.HasPrefix(string(b), "HTTP/1.1 400 ") || !strings.Contains(string(b), "invalid_http") {
			t.Errorf("%q: %q, %v", rest, b, err)
		}
	}
	if n := wk.seen.Load(); n != 0 {
		t.Errorf("the worker saw %d requests", n)
	}
}

func TestATooLargeBodyIsNotAskedFor(t *testing.T) {
	w := start(t, func(s *setup) { s.frontend.MaxBody = 1 << 20 })
	nc := w.raw(t, "POST "+chatPath+" HTTP/1.1\r\nHost: r\r\nX-Request-Id: id-1\r\nExpect: 100-continue\r\nContent-Length: 1048577\r\n\r\n")
	b, err := io.ReadAll(nc)
	if err != nil || !strings.HasPrefix(string(b), "HTTP/1.1 413 ") || !strings.Contains(string(b), "body_too_large") ||
		!strings.Contains(string(b), "Connection: close") || !strings.Contains(string(b), "id-1") {
		t.Errorf("%q, %v", b, err)
	}
}

func TestBodiesThatNobodyReadsHideNoAnswer(t *testing.T) {
	w := start(t)
	const missing = "HTTP/1.1 404 Not Found"
	nc := w.raw(t, post("/nope", toLength(100<<10))+post("/nope", "x", "Connection: close"))
	if b, err := io.ReadAll(nc); err != nil || strings.Count(string(b), missing) != 2 {
		t.Errorf("%q, %v", b, err)
	}
	got := w.rawAnswer(t, post("/nope", toLength(4<<20)))
	checkError(t, got, 404, "not_found")
}

func TestABodyThatIsStillBeingTokenizedIsNotReused(t *testing.T) {
	var late []byte
	w := start(t, func(s *setup) {
		s.tokens.answer = func(_ context.Context, in prompt.Input) ([]uint32, prompt.Outcome) {
			if late == nil {
				late = in.Fields[0].Value
			}
			return nil, prompt.Slow
		}
	})
	w.join(t, "w1", answering(t, plain("{}")).url)
	c := client(t)
	for _, text := range []string{"first", "other", "third", "fours"} {
		if got, err := w.try(t, c, "POST", textPath, `{"model":"m","prompt":"`+text+`"}`); err != nil || got.status != 200 {
			t.Fatalf("%v %+v", err, got)
		}
	}
	if string(late) != `"first"` {
		t.Errorf("the first prompt became %s", late)
	}
}
