package upstream_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

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
