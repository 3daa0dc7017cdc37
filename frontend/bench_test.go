package frontend_test

import (
	"bufio"
	"io"
	"log/slog"
	"net"
	"net/textproto"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/valyala/fasthttp"
)

// caller is a client at the smallest cost, so that a benchmark shows what
// stands behind it.
type caller struct {
	nc   net.Conn
	br   *bufio.Reader
	send []byte
}

func dial(b *testing.B, addr, send string) *caller {
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { nc.Close() })
	return &caller{nc: nc, br: bufio.NewReaderSize(nc, 64<<10), send: []byte(send)}
}

// call sends the request and reads one answer to its end.
func (c *caller) call(b *testing.B) {
	if _, err := c.nc.Write(c.send); err != nil {
		b.Fatal(err)
	}
	length := -1
	for {
		line, err := c.br.ReadSlice('\n')
		if err != nil {
			b.Fatal(err)
		}
		if len(line) == 2 {
			break
		}
		if len(line) > 16 && strings.EqualFold(string(line[:15]), "content-length:") {
			length, _ = strconv.Atoi(textproto.TrimString(string(line[15:])))
		}
	}
	if length >= 0 {
		if _, err := c.br.Discard(length); err != nil {
			b.Fatal(err)
		}
		return
	}
	for {
		line, err := c.br.ReadSlice('\n')
		if err != nil {
			b.Fatal(err)
		}
		size, err := strconv.ParseInt(strings.TrimSpace(string(line)), 16, 64)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := c.br.Discard(int(size) + 2); err != nil {
			b.Fatal(err)
		}
		if size == 0 {
			return
		}
	}
}

// engine answers at the smallest cost.
func engine(b *testing.B, pieces ...string) *worker {
	return serve(b, func(p *peer) {
		buf := make([]byte, 64<<10)
		for {
			if _, err := p.Conn.Read(buf); err != nil {
				return
			}
			for _, s := range pieces {
				if _, err := io.WriteString(p, s); err != nil {
					return
				}
			}
		}
	})
}

// relayServer is a bare relay of fasthttp's own parts, for comparison.
func relayServer(b *testing.B, target string) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	hc := &fasthttp.HostClient{Addr: target, StreamResponseBody: true, MaxIdleConnDuration: 100 * time.Millisecond, Dial: func(addr string) (net.Conn, error) { return net.Dial("tcp", addr) }}
	s := &fasthttp.Server{NoDefaultServerHeader: true, MaxIdleWorkerDuration: 100 * time.Millisecond, Handler: func(ctx *fasthttp.RequestCtx) {
		if err := hc.Do(&ctx.Request, &ctx.Response); err != nil {
			ctx.SetStatusCode(502)
		}
	}}
	done := make(chan error, 1)
	go func() { done <- s.Serve(ln) }()
	b.Cleanup(func() {
		ln.Close()
		<-done
		hc.CloseIdleConnections()
	})
	return ln.Addr().String()
}

func benchmarkProxy(b *testing.B, pieces ...string) {
	body := `{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat("x", 1000) + `"}]}`
	send := post(chatPath, body, "Content-Type: application/json", "Authorization: Bearer k", "Accept: */*", "User-Agent: bench")
	wk := engine(b, pieces...)
	target := strings.TrimPrefix(wk.url, "http://")
	w := start(b, func(s *setup) { s.level = slog.LevelWarn; s.policy = scoring("builtin:kv-aware") })
	w.join(b, "w1", wk.url)
	for _, c := range []struct{ name, addr string }{{"direct", target}, {"fasthttp", relayServer(b, target)}, {"routerd", w.addr}} {
		b.Run(c.name, func(b *testing.B) {
			caller := dial(b, c.addr, send)
			b.ReportAllocs()
			for b.Loop() {
				caller.call(b)
			}
		})
	}
}

func BenchmarkProxyUnary(b *testing.B) {
	benchmarkProxy(b, plain(strings.Repeat("x", 1000)))
}

func BenchmarkProxyStream(b *testing.B) {
	one := event(`{"id":"chatcmpl-1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"word"}}],"usage":null}`)
	benchmarkProxy(b, sse+strings.Repeat(one, 100)+event("[DONE]")+lastChunk)
}
