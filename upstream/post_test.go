package upstream_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/routerd/routerd/upstream"
)

func TestPostReturnsStatusAndWholeBody(t *testing.T) {
	var got string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b := make([]byte, r.ContentLength)
		_, _ = r.Body.Read(b)
		got = r.Method + " " + r.URL.Path + " " + r.Header.Get("Content-Type") + " " + string(b)
		w.WriteHeader(http.StatusTeapot)
		_, _ = w.Write([]byte(strings.Repeat("x", 100_000)))
	}))
	defer srv.Close()
	client := upstream.New(upstream.DefaultConfig())
	defer client.Close()
	status, body, err := client.Post(t.Context(), srv.URL, "/tokenize", []byte(`{"a":1}`))
	if err != nil || status != http.StatusTeapot || len(body) != 100_000 {
		t.Errorf("got %d, %d bytes, %v", status, len(body), err)
	}
	if want := `POST /tokenize application/json {"a":1}`; got != want {
		t.Errorf("the worker got %q, want %q", got, want)
	}
}

func TestPostEndsWithItsContext(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	client := upstream.New(upstream.DefaultConfig())
	defer client.Close()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, _, err := client.Post(ctx, "http://"+ln.Addr().String(), "/tokenize", nil)
		done <- err
	}()
	held, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = held.Close() }()
	cancel()
	var ue *upstream.Error
	if err := <-done; !errors.As(err, &ue) || !ue.Cancelled {
		t.Errorf("got %v, want a cancelled call", err)
	}
}

func TestPostBytesReachesAUnixSocketWithItsToken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	srv := &httptest.Server{Listener: ln, Config: &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		_, _ = fmt.Fprint(w, r.Method, r.URL.Path, r.Header["Content-Type"], r.Header["Authorization"], b)
	})}}
	srv.Start()
	defer srv.Close()
	client := upstream.New(upstream.DefaultConfig())
	defer client.Close()
	ep, err := upstream.UnixEndpoint(path)
	if err != nil || ep.Addr() != "unix:"+path || ep.String() != "unix:"+path {
		t.Fatalf("got %s, %v", ep, err)
	}
	for range 2 { // on one connection
		status, body, err := client.PostBytes(t.Context(), ep, "/x", "secret", []byte{0, 255})
		if want := "POST/x[application/octet-stream] [Bearer secret] [0 255]"; err != nil || status != http.StatusOK || string(body) != want {
			t.Errorf("got %d %s, %v, want %s", status, body, err, want)
		}
	}
	if s := client.Stats(); s.Dialled != 1 {
		t.Errorf("%d connections were made", s.Dialled)
	}
	if _, err := upstream.UnixEndpoint("relative"); err == nil || !strings.Contains(err.Error(), `"relative"`) {
		t.Errorf("got %v", err)
	}
}
