// Package apiserver is the HTTP server below routerd's own JSON APIs: how it
// begins and ends, how large bodies may be before they are read, and how an error
// is written. Routes, tokens and answers are the APIs'.
//
// A Server starts its goroutines in Serve and has ended them when Shutdown has
// returned.
package apiserver

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/routerd/routerd/internal/httpapi"
)

const (
	headLimit      = 32 << 10 // bytes of a request's head
	idlePatience   = 2 * time.Minute
	stopPatience   = 5 * time.Second        // for running calls when Shutdown begins
	answerPatience = 250 * time.Millisecond // for answers of calls that were cancelled
	cutPatience    = 2 * time.Second        // for calls whose connection was cut
	cutPoll        = 5 * time.Millisecond
	poolSweep      = 100 * time.Millisecond
)

// ReadPatience is how long a request may take to arrive whole, unless configured.
const ReadPatience = 30 * time.Second

// MaxBody is the largest body in bytes, whatever is configured.
const MaxBody = 1 << 30

// API is what is served.
type API struct {
	// Handle answers a request.
	Handle fasthttp.RequestHandler
	// BodyLimit is the largest body that a request may have by its head, in bytes;
	// 0 for none.
	BodyLimit func(h *fasthttp.RequestHeader) int64
	// Cancel ends the calls that run.
	Cancel func()
	// Unreadable hears of the answer to a request that could not be read; may be nil.
	Unreadable func(f *httpapi.Failure)
	// Realm is what the API is called where a token is asked for.
	Realm string
	// ReadTimeout is how long a request may take to arrive whole, WriteTimeout how
	// long a caller may take over its answer; 0 is no bound of this server's.
	ReadTimeout, WriteTimeout time.Duration
}

// Server serves one API. Its methods are safe for concurrent use.
type Server struct {
	api   API
	http  *fasthttp.Server
	conns httpapi.Conns

	mu       sync.Mutex // guards both below
	stopped  bool       // Shutdown was called
	listener net.Listener
}

// New makes a server. Nothing runs before Serve.
func New(api API) *Server {
	s := &Server{api: api}
	s.http = &fasthttp.Server{
		Handler:                      s.handle,
		HeaderReceived:               s.boundBody,
		ErrorHandler:                 s.refuseParse,
		Logger:                       silent{},
		ReadBufferSize:               headLimit,
		ReadTimeout:                  api.ReadTimeout,
		WriteTimeout:                 api.WriteTimeout,
		IdleTimeout:                  idlePatience,
		MaxIdleWorkerDuration:        poolSweep,
		MaxRequestBodySize:           MaxBody, // boundBody sets a closer bound for each request
		NoDefaultServerHeader:        true,
		NoDefaultContentType:         true,
		SecureErrorLogMessage:        true,
		DisablePreParseMultipartForm: true,
		CloseOnShutdown:              true,
	}
	return s
}

// Serve answers the callers of ln until Shutdown and closes ln; that is no error.
// After Shutdown it closes ln at once. Where the listener fails, the calls are
// cancelled and the connections cut.
func (s *Server) Serve(ln net.Listener) error {
	if !s.open(ln) {
		return ln.Close()
	}
	err := s.http.Serve(s.conns.Wrap(ln))
	if s.isStopped() {
		return s.waitClosed(stopPatience + answerPatience + cutPatience) // whatever the closed listener said
	}
	if err == nil {
		err = errors.New("the listener was closed")
	}
	s.api.Cancel()
	return errors.Join(err, s.conns.Cut(), s.waitClosed(cutPatience))
}

// open remembers the listener; false after Shutdown.
func (s *Server) open(ln net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listener = ln
	return !s.stopped
}

func (s *Server) isStopped() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopped
}

// stop makes every further Serve end at once and returns the listener.
func (s *Server) stop() net.Listener {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	return s.listener
}

// Shutdown takes no new connection and waits for the running calls, at most 5 s and
// until ctx ends. Then they are cancelled, have a moment for their answers, and
// every connection is cut; that is no error.
func (s *Server) Shutdown(ctx context.Context) error {
	ctx, done := context.WithTimeout(ctx, stopPatience)
	defer done()
	ln := s.stop()
	err := s.http.ShutdownWithContext(ctx)
	if ln != nil {
		_ = ln.Close() // open only where the http server had not taken it over yet
	}
	s.api.Cancel()
	if ctx.Err() != nil {
		_ = s.waitClosed(answerPatience) // what does not end is cut
		return errors.Join(s.conns.Cut(), s.waitClosed(cutPatience))
	}
	return err
}

// waitClosed waits for the connections to end.
func (s *Server) waitClosed(most time.Duration) error {
	tick := time.NewTicker(cutPoll)
	defer tick.Stop()
	for deadline := time.Now().Add(most); s.Connections() > 0; <-tick.C {
		if time.Now().After(deadline) {
			return errors.New("a call did not end when it was cancelled")
		}
	}
	return nil
}

// Connections is the number of those that are open.
func (s *Server) Connections() int { return int(s.http.GetOpenConnectionsCount()) }

// silent drops what fasthttp would log: its texts can hold parts of requests.
type silent struct{}

// Printf drops the line.
func (silent) Printf(string, ...any) {}
