package clientwatch_test

import (
	"net"
	"testing"
	"time"

	"github.com/routerd/routerd/clientwatch"
)

// Look sees what the watcher has not told yet: here nobody runs it.
func TestLookSeesAClientThatTheWatcherHasNotSeenGo(t *testing.T) {
	for mode, gone := range map[clientwatch.HalfClose]bool{clientwatch.HalfCloseAbort: true, clientwatch.HalfCloseIgnore: false} {
		cfg := clientwatch.DefaultConfig()
		cfg.HalfClose = mode
		w, err := clientwatch.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		inner, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ln := w.Wrap(inner)
		client, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		accepted, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		server := clientwatch.Find(accepted)
		if server.Look() {
			t.Errorf("%s: gone before it went", mode)
		}
		closeWrite(t, client)
		// The end of the stream comes after what was sent, here nothing: a read that
		// ends tells that it has come in.
		if err := server.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if n, err := server.Read(make([]byte, 1)); n != 0 || err == nil {
			t.Fatalf("read %d, %v", n, err)
		}
		if server.Gone() || server.Look() != gone || server.Gone() != gone {
			t.Errorf("%s: half-closed is gone: %v, want %v", mode, server.Gone(), gone)
		}
		for _, c := range []interface{ Close() error }{client, accepted, ln, w} {
			c.Close()
		}
	}
}
