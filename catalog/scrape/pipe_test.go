package scrape_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"
)

// wait lets the bubble's time pass.
func wait(d time.Duration) { <-time.After(d) }

// pipeEngine answers over pipes, so that time can be synctest's.
type pipeEngine struct {
	mu      sync.Mutex // guards all below
	bodies  map[string]string
	asked   map[string][]time.Time // by path, when
	hang    map[string]bool        // addresses that never answer
	delay   time.Duration
	waiting int // connections with a question
	most    int
}

func newPipeEngine(metrics, models string) *pipeEngine {
	return &pipeEngine{
		bodies: map[string]string{"/metrics": metrics, "/v1/models": models},
		asked:  map[string][]time.Time{}, hang: map[string]bool{},
	}
}

// set changes the bodies; an empty one stays.
func (e *pipeEngine) set(metrics, models string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for path, body := range map[string]string{"/metrics": metrics, "/v1/models": models} {
		if body != "" {
			e.bodies[path] = body
		}
	}
}

func (e *pipeEngine) count(path string) int { return len(e.times(path)) }

func (e *pipeEngine) times(path string) []time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.asked[path])
}

// atOnce is the largest number of questions that waited for an answer at a time.
func (e *pipeEngine) atOnce() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.most
}

func (e *pipeEngine) hangs(address string, yes bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.hang[address] = yes
}

func (e *pipeEngine) dial(_ context.Context, address string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	c := &pipeConn{Conn: ours, engine: e}
	go e.serve(c, theirs, address)
	return c, nil
}

// pipeConn is the asker's end of a connection.
type pipeConn struct {
	net.Conn
	engine *pipeEngine
	busy   bool // whether a question waits for its answer; the engine's mu guards it
}

// Close implements net.Conn.
func (c *pipeConn) Close() error {
	c.setBusy(false)
	return c.Conn.Close()
}

func (c *pipeConn) setBusy(busy bool) {
	e := c.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case busy && !c.busy:
		e.waiting++
	case !busy && c.busy:
		e.waiting--
	}
	c.busy = busy
	e.most = max(e.most, e.waiting)
}

func (e *pipeEngine) serve(c *pipeConn, conn net.Conn, address string) {
	defer func() { _ = conn.Close() }()
	in := bufio.NewReader(conn)
	for {
		_ = conn.SetReadDeadline(time.Time{})
		req, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		c.setBusy(true)
		e.mu.Lock()
		body, hang, delay := e.bodies[req.URL.Path], e.hang[address], e.delay
		for _, key := range []string{req.URL.Path, address} {
			e.asked[key] = append(e.asked[key], time.Now())
		}
		e.mu.Unlock()
		if !hang {
			_ = conn.SetReadDeadline(time.Now().Add(delay))
		}
		if _, err := in.ReadByte(); !errors.Is(err, os.ErrDeadlineExceeded) {
			return // the other end has had enough
		}
		c.setBusy(false)
		if _, err := fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body); err != nil {
			return
		}
	}
}
