package sim

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/valyala/fasthttp"
)

const (
	chatPath    = "/v1/chat/completions"
	textPath    = "/v1/completions"
	modelPrefix = "/v1/models/"

	mostBody     = 64 << 20
	mostHead     = 32 << 10
	readPatience = 30 * time.Second
	closePoll    = 2 * time.Millisecond
	// poolSweep is the period of a goroutine of fasthttp's that looks only that
	// often whether its server was shut down; by default it lingers for 10 s.
	poolSweep = 100 * time.Millisecond
	// version is the vLLM release whose face the engine wears.
	version = "0.33.0"
)

type handler func(*exchange)

// routeTable lists everything the engine answers: path → method → handler.
func (e *Engine) routeTable() map[string]map[string]handler {
	get := func(h handler) map[string]handler { return map[string]handler{"GET": h} }
	post := func(h handler) map[string]handler { return map[string]handler{"POST": h} }
	routes := map[string]map[string]handler{
		chatPath:              post(e.chat),
		textPath:              post(e.text),
		"/v1/models":          get(e.models),
		modelPrefix:           get(e.model),
		"/tokenize":           post(e.tokenize),
		"/detokenize":         post(e.detokenize),
		"/health":             get(func(*exchange) {}),
		"/version":            get(e.version),
		"/metrics":            get(e.scrape),
		"/kv_event_sources":   get(e.eventSources),
		"/reset_prefix_cache": post(e.resetCache),
		"/sim/blocks":         get(e.blocks),
		"/sim/stats":          get(e.stats),
		"/sim/restart":        post(e.restart),
		"/sim/faults":         {"GET": e.listFaults, "POST": e.orderFault, "DELETE": e.clearFaults},
	}
	e.dress(routes)
	if e.cfg.AdapterUpdates {
		routes["/v1/load_lora_adapter"] = post(e.loadAdapter)
		routes["/v1/unload_lora_adapter"] = post(e.unloadAdapter)
		routes["/load_lora_adapter"] = post(e.loadAdapterSGLang)
		routes["/unload_lora_adapter"] = post(e.unloadAdapterSGLang)
	}
	return routes
}

func (e *Engine) newServer() *fasthttp.Server {
	return &fasthttp.Server{
		Handler:                      e.handle,
		ErrorHandler:                 writeParseError,
		ConnState:                    e.trackConn,
		Logger:                       quietLogger{e.log},
		ReadBufferSize:               mostHead,
		ReadTimeout:                  readPatience,
		IdleTimeout:                  e.idleTimeout(),
		MaxIdleWorkerDuration:        poolSweep,
		MaxRequestBodySize:           mostBody,
		NoDefaultServerHeader:        true,
		DisablePreParseMultipartForm: true,
		CloseOnShutdown:              true,
	}
}

// idleTimeout is never 0, because fasthttp would take ReadTimeout for it.
func (e *Engine) idleTimeout() time.Duration {
	if e.cfg.IdleTimeout > 0 {
		return e.cfg.IdleTimeout
	}
	return 24 * time.Hour
}

// handle finds the route, lets an ordered fault act, and serves the request.
func (e *Engine) handle(ctx *fasthttp.RequestCtx) {
	ctx.Response.Header.Set("X-Sim-Engine", e.cfg.Name)
	x := &exchange{RequestCtx: ctx, engine: e}
	defer func() {
		if p := recover(); p != nil {
			x.finish()
			e.log.Error("handler panicked", "panic", fmt.Sprint(p))
			x.fail(errClosed)
		}
	}()
	path := string(ctx.Path())
	if path == chatPath || path == textPath {
		e.received.Add(1)
	}
	if f := e.faults.takeHTTP(path); f != nil {
		if f.AfterChunks > 0 {
			x.fault = f
		} else if !e.applyBeforeAnswer(x, f) {
			x.finish()
			return
		}
	}
	h, err := e.route(path, string(ctx.Method()))
	if err != nil {
		x.fail(err)
	} else {
		h(x)
	}
	if !ctx.Response.IsBodyStream() {
		x.finish()
	}
}

func (e *Engine) route(path, method string) (handler, error) {
	key := path
	if strings.HasPrefix(path, modelPrefix) {
		key = modelPrefix
	}
	methods, ok := e.routes[key]
	if !ok {
		return nil, notFound("", "Not Found")
	}
	h, ok := methods[method]
	if !ok {
		return nil, &apiError{fasthttp.StatusMethodNotAllowed, "MethodNotAllowedError", "", "Method Not Allowed"}
	}
	return h, nil
}

func (e *Engine) version(x *exchange) {
	x.reply(fasthttp.StatusOK, map[string]string{"version": e.cfg.Face.version()})
}

// eventSources serves GET /kv_event_sources: per rank where events are published.
func (e *Engine) eventSources(x *exchange) {
	type source struct {
		Enabled   bool    `json:"enable_kv_cache_events"`
		Publisher string  `json:"publisher"`
		Endpoint  string  `json:"endpoint"`
		Replay    *string `json:"replay_endpoint"`
		Steps     int     `json:"buffer_steps"`
		HWM       int     `json:"hwm"`
		MaxQueue  int     `json:"max_queue_size"`
		Topic     string  `json:"topic"`
	}
	replays := e.ReplayEndpoints()
	sources := make(map[int]source)
	for rank, endpoint := range e.EventEndpoints() {
		s := source{
			Enabled: true, Publisher: "zmq", Endpoint: endpoint, Steps: e.cfg.BufferSteps,
			HWM: publishHWM, MaxQueue: publishHWM, Topic: e.cfg.Topic,
		}
		if replay, ok := replays[rank]; ok {
			s.Replay = &replay
		}
		sources[rank] = s
	}
	x.reply(fasthttp.StatusOK, sources)
}

// trackConn keeps the set of open connections, so that Close can end those that
// fasthttp does not count as idle.
func (e *Engine) trackConn(c net.Conn, state fasthttp.ConnState) {
	e.connMu.Lock()
	defer e.connMu.Unlock()
	switch state {
	case fasthttp.StateNew:
		e.conns[c] = struct{}{}
	case fasthttp.StateClosed, fasthttp.StateHijacked:
		delete(e.conns, c)
	}
}

// closeConns closes every open connection and waits until their goroutines have
// ended, at most until ctx ends.
func (e *Engine) closeConns(ctx context.Context) {
	ticker := time.NewTicker(closePoll)
	defer ticker.Stop()
	for e.closeEach() > 0 {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// closeEach closes what is open and returns how many there were.
func (e *Engine) closeEach() int {
	e.connMu.Lock()
	defer e.connMu.Unlock()
	for c := range e.conns {
		if err := c.Close(); err != nil {
			e.log.Debug("close connection", "err", err)
		}
	}
	return len(e.conns)
}

// quietLogger takes fasthttp's lines, which are about single connections.
type quietLogger struct{ log *slog.Logger }

// Printf logs the constant part only: the arguments may quote a request.
func (q quietLogger) Printf(format string, _ ...any) {
	q.log.Debug("http connection", "format", format)
}
