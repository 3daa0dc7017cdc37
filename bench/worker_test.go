package bench_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/valyala/fasthttp"
)

const (
	workers    = 8 // addresses of the one worker process
	eventCount = 100
)

// event is one chunk of a streamed answer, of a usual size.
const event = `data: {"id":"chatcmpl-0","object":"chat.completion.chunk","created":1700000000,"model":"m",` +
	`"choices":[{"index":0,"delta":{"content":" token"},"finish_reason":null}]}` + "\n\n"

const done = "data: [DONE]\n\n"

// unaryAnswer is a whole answer of 1 KB.
func unaryAnswer() []byte {
	const head = `{"id":"chatcmpl-0","object":"chat.completion","created":1700000000,"model":"m","choices":[{"index":0,` +
		`"message":{"role":"assistant","content":"`
	const tail = `"},"finish_reason":"stop"}],"usage":{"prompt_tokens":250,"completion_tokens":180,"total_tokens":430}}`
	return []byte(head + strings.Repeat("x", 1024-len(head)-len(tail)) + tail)
}

// serveWorkers answers completions on several addresses at the least cost: what
// it answers is fixed. sim, which is an engine, would cost more than what is
// measured.
func serveWorkers() ([]string, func() error, error) {
	unary := unaryAnswer()
	streamed, short := []byte(`"stream":true`), []byte(`"max_tokens":1,`)
	return serveHTTP(workers, func(ctx *fasthttp.RequestCtx) {
		if !ctx.IsPost() {
			ctx.SetContentType("application/json")
			ctx.SetBodyString(`{"object":"list","data":[{"id":"m","object":"model"}]}`)
			return
		}
		start := ctx.PostBody()
		start = start[:min(len(start), 64)]
		if !bytes.Contains(start, streamed) {
			ctx.SetContentType("application/json")
			ctx.SetBody(unary)
			return
		}
		ctx.SetContentType("text/event-stream")
		e := &events{left: eventCount}
		if bytes.Contains(start, short) {
			e.left = 1
		}
		ctx.SetBodyStream(e, -1)
	})
}

// events is a streamed answer: a chunk and a flush for each event and for the
// mark of the end.
type events struct{ left int }

// Read hands out one event.
func (e *events) Read(p []byte) (int, error) {
	e.left--
	switch {
	case e.left >= 0:
		return copy(p, event), nil
	case e.left == -1:
		return copy(p, done), nil
	}
	return 0, io.EOF
}

// serveHTTP serves h on n loopback addresses until stop is called.
func serveHTTP(n int, h fasthttp.RequestHandler) (addrs []string, stop func() error, err error) {
	s := &fasthttp.Server{
		Handler: h, MaxRequestBodySize: 16 << 20, NoDefaultServerHeader: true, NoDefaultDate: true,
		ReadBufferSize: 4 << 10, CloseOnShutdown: true,
	}
	served := make(chan error)
	for range n {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, nil, fmt.Errorf("listen: %w", err)
		}
		addrs = append(addrs, ln.Addr().String())
		go func() { served <- s.Serve(ln) }()
	}
	return addrs, func() error {
		err := s.Shutdown()
		for range n {
			err = errors.Join(err, <-served)
		}
		return err
	}, nil
}
