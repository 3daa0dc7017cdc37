package clientwatch_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/routerd/routerd/clientwatch"
)

func reset(c net.Conn) { c.(*net.TCPConn).SetLinger(0); c.Close() }

func closeWrite(t *testing.T, c net.Conn) {
	t.Helper()
	if err := c.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Fatal(err)
	}
}

func TestD1_ClientThatGoesIsNoticedWhileTheServerIsSilent(t *testing.T) {
	for _, tc := range []struct {
		name, network string
		leave         func(net.Conn)
	}{
		{"FIN", "tcp", func(c net.Conn) { c.Close() }},
		{"RST", "tcp", reset},
		{"unix socket", "unix", func(c net.Conn) { c.Close() }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := start(t, clientwatch.DefaultConfig(), tc.network)
			var took []time.Duration
			for range 20 {
				client, server := r.connect(t)
				called, _ := watch(t, server)
				left := time.Now()
				tc.leave(client)
				took = append(took, within(t, tc.name, called).Sub(left))
				if !server.Gone() {
					t.Fatal("Gone is false after the callback")
				}
			}
			slices.Sort(took)
			t.Logf("%s: noticed after %v (median), %v (worst of %d)", tc.name, took[len(took)/2], took[len(took)-1], len(took))
		})
	}
}

func TestD1_ClientThatGoesIsNoticedUnderTLS(t *testing.T) {
	r := start(t, clientwatch.DefaultConfig(), "tcp")
	ln := tls.NewListener(r.ln, &tls.Config{Certificates: []tls.Certificate{certificate(t)}})
	dialed := make(chan *tls.Conn, 1)
	go func() {
		c, err := tls.Dial("tcp", ln.Addr().String(), &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Error(err)
		}
		dialed <- c
	}()
	server, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	if err := server.(*tls.Conn).Handshake(); err != nil {
		t.Fatal(err)
	}
	client := <-dialed
	found := clientwatch.Find(server)
	if found == nil {
		t.Fatal("Find does not see through TLS")
	}
	called, _ := watch(t, found)
	left := time.Now()
	client.NetConn().Close()
	t.Logf("TLS: noticed after %v", within(t, "TLS", called).Sub(left))
}

func TestHalfClosedClientIsGoneOnlyWhenConfigured(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		for _, mode := range []clientwatch.HalfClose{clientwatch.HalfCloseAbort, clientwatch.HalfCloseIgnore} {
			t.Run(network+" "+string(mode), func(t *testing.T) {
				cfg := clientwatch.DefaultConfig()
				cfg.HalfClose = mode
				r := start(t, cfg, network)
				client, server := r.connect(t)
				called, _ := watch(t, server)
				closeWrite(t, client)
				if mode == clientwatch.HalfCloseAbort {
					within(t, "half close", called)
					return
				}
				quiet(t, "half close", called)
				if _, err := server.Write([]byte("answer")); err != nil {
					t.Fatalf("a half-closed client gets no answer: %v", err)
				}
				if network == "tcp" {
					reset(client)
					within(t, "reset after half close", called)
				}
			})
		}
	}
}

func TestEventThatComesBeforeRegistrationIsNotLost(t *testing.T) {
	r := start(t, clientwatch.DefaultConfig(), "tcp")
	client, server := r.connect(t)
	client.Close()
	for deadline := time.Now().Add(patience); !server.Gone(); {
		if time.Now().After(deadline) {
			t.Fatal("not noticed")
		}
		<-time.After(time.Millisecond)
	}
	if _, ok := server.OnGone(func() { t.Error("callback of a refused registration") }); ok {
		t.Error("OnGone accepted a callback for a client that has gone")
	}
}

func certificate(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}
