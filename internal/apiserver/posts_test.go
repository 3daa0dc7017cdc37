package apiserver_test

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/routerd/routerd/internal/apiserver"
)

func TestPostsTakeBytesAndGiveBytesToWhoHasTheToken(t *testing.T) {
	const token = "0123456789abcdef"
	s := apiserver.NewPosts(apiserver.PostsConfig{
		MaxBody: 10, Token: token, TokenKey: "here", Realm: "test",
		Posts: []apiserver.Post{{Path: "/a", Handle: func(body []byte) ([]byte, error) {
			switch string(body) {
			case "bad":
				return nil, errors.New("this is wrong")
			case "panic":
				panic("CANARY")
			}
			return append([]byte{0, 255}, body...), nil
		}}},
	}, slog.New(slog.DiscardHandler))
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(ln) }()
	defer func() {
		if err := errors.Join(s.Shutdown(t.Context()), <-served); err != nil {
			t.Error(err)
		}
	}()
	for _, c := range []struct {
		name, method, path, token, body string
		status                          int
		want                            string
	}{
		{"right", http.MethodPost, "/a", token, "x", 200, "\x00\xffx"},
		{"bad", http.MethodPost, "/a", token, "bad", 400, "this is wrong"},
		{"panics", http.MethodPost, "/a", token, "panic", 500, `"internal"`},
		{"too large", http.MethodPost, "/a", token, "12345678901", 413, "10 bytes"},
		{"no token", http.MethodPost, "/a", "", "x", 401, "as in here"},
		{"other token", http.MethodPost, "/a", token + "x", "x", 401, "as in here"},
		{"no token and no route", http.MethodPost, "/b", "", "x", 401, "as in here"},
		{"no route", http.MethodPost, "/b", token, "", 404, "route not found"},
		{"other method", http.MethodGet, "/a", token, "", 405, "method not allowed"},
	} {
		req, resp := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
		req.SetRequestURI("http://" + ln.Addr().String() + c.path)
		req.Header.SetMethod(c.method)
		req.SetBodyString(c.body)
		if c.token != "" {
			req.Header.Set("Authorization", "Bearer "+c.token)
		}
		if err := fasthttp.DoTimeout(req, resp, 10*time.Second); err != nil {
			t.Fatal(err)
		}
		if got := string(resp.Body()); resp.StatusCode() != c.status || !strings.Contains(got, c.want) || strings.Contains(got, "CANARY") {
			t.Errorf("%s: got %d %q, want %d %q", c.name, resp.StatusCode(), got, c.status, c.want)
		}
		if c.status == 401 && !bytes.Contains(resp.Header.Peek("WWW-Authenticate"), []byte("test")) {
			t.Errorf("%s: the realm is %q", c.name, resp.Header.Peek("WWW-Authenticate"))
		}
	}
}
