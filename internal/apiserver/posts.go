package apiserver

import (
	"errors"
	"log/slog"
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/routerd/routerd/internal/httpapi"
)

// Post is a route that takes bytes and gives bytes.
type Post struct {
	Path string
	// Handle answers a body, of which it keeps nothing. An error is the body's fault,
	// unless it is a *httpapi.Failure.
	Handle func(body []byte) ([]byte, error)
}

// PostsConfig is what NewPosts serves.
type PostsConfig struct {
	Posts   []Post
	MaxBody int64 // bytes
	// Token is the bearer token that every route asks for, empty for none; it stands at
	// TokenKey of the configuration.
	Token, TokenKey string
	Realm           string
}

// posts is an API of such routes alone.
type posts struct {
	cfg    PostsConfig
	log    *slog.Logger
	server *Server
}

// NewPosts makes a server of Posts. Nothing runs before Serve.
func NewPosts(cfg PostsConfig, log *slog.Logger) *Server {
	p := &posts{cfg: cfg, log: log}
	p.server = New(API{
		Handle: p.handle, BodyLimit: p.bodyLimit, Cancel: func() {}, // no call waits for anything
		Realm: cfg.Realm, ReadTimeout: ReadPatience, WriteTimeout: ReadPatience,
	})
	return p.server
}

func (p *posts) bodyLimit(h *fasthttp.RequestHeader) int64 {
	if _, err := p.find(h); err != nil {
		return 0
	}
	return p.cfg.MaxBody
}

// find checks everything about a request but its body.
func (p *posts) find(h *fasthttp.RequestHeader) (*Post, error) {
	if p.cfg.Token != "" && !httpapi.BearerIs(h.PeekAll(fasthttp.HeaderAuthorization), p.cfg.Token) {
		return nil, Unauthorised(p.cfg.TokenKey)
	}
	path, _, _ := strings.Cut(string(h.RequestURI()), "?")
	for i := range p.cfg.Posts {
		if p.cfg.Posts[i].Path != path {
			continue
		}
		if !h.IsPost() {
			return nil, &httpapi.Failure{
				Code: httpapi.CodeUnsupported, Message: "method not allowed", Status: fasthttp.StatusMethodNotAllowed,
				Details: httpapi.Details{Step: "route", Allowed: fasthttp.MethodPost},
			}
		}
		return &p.cfg.Posts[i], nil
	}
	return nil, &httpapi.Failure{Code: httpapi.CodeNotFound, Message: "route not found", Details: httpapi.Details{Step: "route"}}
}

func (p *posts) handle(rc *fasthttp.RequestCtx) {
	answer, err := p.call(rc)
	if err == nil {
		rc.SetContentType("application/octet-stream")
		rc.Response.SetBodyRaw(answer)
		return
	}
	f, ok := errors.AsType[*httpapi.Failure](err)
	if !ok {
		f = &httpapi.Failure{Code: httpapi.CodeInvalid, Message: err.Error(), Details: httpapi.Details{Step: "read"}}
	}
	p.server.Refuse(rc, f)
}

func (p *posts) call(rc *fasthttp.RequestCtx) (answer []byte, err error) {
	defer Recover(p.log, &err)
	post, err := p.find(&rc.Request.Header)
	if err != nil {
		return nil, err
	}
	if err := p.server.Body(&rc.Request.Header); err != nil {
		return nil, err
	}
	return post.Handle(rc.Request.Body())
}
