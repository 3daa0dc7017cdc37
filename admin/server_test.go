package admin_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/routerd/routerd/admin"
	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/host"
)

func TestAConfigurationOutOfRangeNamesTheField(t *testing.T) {
	for _, c := range []struct {
		field  string
		change func(*admin.Config)
	}{
		{"max_body", func(c *admin.Config) { c.MaxBody = 1023 }},
		{"max_body", func(c *admin.Config) { c.MaxBody = 1<<30 + 1 }},
		{"timeout", func(c *admin.Config) { c.ReadTimeout = -1 }},
		{"token", func(c *admin.Config) { c.Token = "short" }},
	} {
		cfg := admin.DefaultConfig()
		cfg.Token = token
		if err := cfg.Validate(); err != nil {
			t.Fatal(err)
		}
		c.change(&cfg)
		if err := cfg.Validate(); err == nil {
			t.Errorf("%s: %+v was accepted", c.field, cfg)
		}
	}
}

// held makes a policy change wait until its context ends.
type held struct {
	admin.Policies
	running chan struct{}
}

func (h held) Put(ctx context.Context, _ string, _ policy.Spec, _ string, _ ...host.Because) (host.RevisionInfo, bool, error) {
	close(h.running)
	<-ctx.Done()
	return host.RevisionInfo{}, false, context.Cause(ctx)
}

func TestShutdownCutsWhatDoesNotEnd(t *testing.T) {
	h := held{running: make(chan struct{})}
	b := &bench{dir: t.TempDir()}
	parts := b.parts(t)
	h.Policies, parts.Policies = parts.Policies, h
	cfg := admin.DefaultConfig()
	cfg.Token = token
	srv, err := admin.New(cfg, parts, nopLog())
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := srv.Serve(ln); err != nil {
			t.Error(err)
		}
	})
	dial := func(text string) net.Conn {
		c, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(c, text)
		return c
	}
	idle := dial("")                                                                          // says nothing
	slow := dial(head("PUT", "/v1/modules/slow", "Content-Length: 100"))                      // never sends its body
	call := dial(head("PUT", "/v1/policies/held", "Content-Length: 42") + leastLoad + "    ") // waits in the handler
	<-h.running
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	start := time.Now()
	if err := srv.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	if took := time.Since(start); took > 4*time.Second {
		t.Errorf("took %v", took)
	}
	serving.Wait()
	for _, c := range []net.Conn{idle, slow, call} {
		if err := c.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(c); err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error("a connection is still open")
			}
		}
		c.Close()
	}
	if _, err := net.DialTimeout("tcp", ln.Addr().String(), time.Second); err == nil {
		t.Error("the listener is still open")
	}
	if err := srv.Shutdown(t.Context()); err != nil {
		t.Errorf("a second shutdown: %v", err)
	}
}

func TestRunEndsByItselfWhenTheListenerFails(t *testing.T) {
	b := newBench(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	cfg := admin.DefaultConfig()
	cfg.Token = token
	other := &bench{dir: t.TempDir()}
	srv, err := admin.New(cfg, other.parts(t), nopLog())
	if err != nil {
		t.Fatal(err)
	}
	if err := srv.Run(t.Context(), ln); err == nil {
		t.Error("Run returned nothing for a closed listener")
	}
	b.call(t, "GET", "/healthz", nil).into(t, http.StatusOK, nil)
}

func TestChangesAtOnceAreEachWholeOrRefused(t *testing.T) {
	b := newBench(t)
	var all sync.WaitGroup
	for i := range 6 {
		all.Go(func() {
			for _, spec := range []string{leastLoad, `{"scorers":[{"use":"builtin:round-robin"}]}`} {
				var made revisionAnswer
				a := b.call(t, "PUT", "/v1/policies/shared", spec)
				if a.status != http.StatusOK && a.status != http.StatusCreated {
					t.Errorf("put: %+v", a)
					return
				}
				a.into(t, a.status, &made)
				b.call(t, "POST", "/v1/policies/shared/activate", map[string]int{"revision": made.Revision}).into(t, http.StatusOK, nil)
			}
			b.call(t, "GET", "/v1/policies", nil).into(t, http.StatusOK, nil)
			if i%2 == 0 {
				if a := b.call(t, "POST", "/v1/policies/shared/rollback", nil); a.status != http.StatusOK && a.status != http.StatusConflict {
					t.Errorf("rollback: %+v", a)
				}
			}
		})
	}
	all.Wait()
	if p := b.policy(t, "shared"); len(p.Revisions) != 2 || p.Active == 0 {
		t.Errorf("got %+v", p)
	}
}

func TestATargetInAbsoluteFormIsRoutedByItsPath(t *testing.T) {
	b := newBench(t)
	b.raw(t, head("GET", "http://elsewhere.test/v1/modules", "Connection: close")).into(t, http.StatusOK, nil)
	b.raw(t, head("GET", "HTTPS://u:p@elsewhere.test:1/v1/partitions?blocks=true", "Connection: close")).into(t, http.StatusOK, nil)
	b.raw(t, head("GET", "http://elsewhere.test/v1/modules?x=1", "Connection: close")).
		refused(t, http.StatusBadRequest, "invalid", "query parameter x")
	for _, uri := range []string{"http://elsewhere.test", "http://elsewhere.test?/v1/modules", "http://elsewhere.test/x/../v1/modules"} {
		b.raw(t, head("GET", uri, "Connection: close")).refused(t, http.StatusNotFound, "not_found", "no such path")
	}
	for _, uri := range []string{"elsewhere.test/v1/modules", "*"} {
		b.raw(t, head("GET", uri, "Connection: close")).refused(t, http.StatusBadRequest, "invalid", "HTTP/1.1")
	}
	b.raw(t, "GET http://elsewhere.test/v1/modules HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").
		refused(t, http.StatusUnauthorized, "unauthorized", "bearer token")
}

// A server that is stopped before or while it begins to serve does not serve.
func TestShutdownWinsOverAServeThatBegins(t *testing.T) {
	parts := (&bench{dir: t.TempDir()}).parts(t)
	cfg := admin.DefaultConfig()
	cfg.Token = token
	for range 200 {
		srv, err := admin.New(cfg, parts, nopLog())
		if err != nil {
			t.Fatal(err)
		}
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		served := make(chan error, 1)
		go func() { served <- srv.Serve(ln) }()
		if err := srv.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-served:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("it serves after Shutdown")
		}
	}
}
