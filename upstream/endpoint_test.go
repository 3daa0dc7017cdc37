package upstream_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/upstream"
)

func TestM1_SpellingsOfOneAddressAreOneEndpoint(t *testing.T) {
	for _, tc := range []struct{ raw, want, addr string }{
		{"http://127.0.0.1:18000", "http://127.0.0.1:18000", "127.0.0.1:18000"},
		{"HTTP://127.0.0.1:18000/", "http://127.0.0.1:18000", "127.0.0.1:18000"},
		{"http://Worker-1.Example.com", "http://worker-1.example.com:80", "worker-1.example.com:80"},
		{"http://h:08000//", "http://h:8000", "h:8000"},
		{"http://[::1]:8001", "http://[::1]:8001", "[::1]:8001"},
		{"http://[0:0:0:0:0:0:0:1]:8001/", "http://[::1]:8001", "[::1]:8001"},
		{"http://[fe80::1%25lo]:8001", "http://[fe80::1%25lo]:8001", "[fe80::1%lo]:8001"},
		{"http://h:1/engines/llama-7b/", "http://h:1/engines/llama-7b", "h:1"},
	} {
		got, err := upstream.ParseEndpoint(tc.raw)
		if err != nil {
			t.Errorf("%s: %v", tc.raw, err)
			continue
		}
		if got.String() != tc.want || got.Addr() != tc.addr {
			t.Errorf("%s: %s at %s, want %s at %s", tc.raw, got, got.Addr(), tc.want, tc.addr)
		}
		if again, err := upstream.ParseEndpoint(got.String()); err != nil || again != got {
			t.Errorf("%s does not parse to itself: %v, %v", got, again, err)
		}
	}
}

func TestM2_BadWorkerURLsAreRefusedWithTheReason(t *testing.T) {
	const (
		form, scheme = "http://HOST:PORT, an IPv6 host in brackets", "scheme http"
		plain, port  = "no user name, query or fragment", "a port from 1 to 65535"
		path         = "a path without empty or dot segments"
	)
	for raw, want := range map[string]string{
		"":                            form,
		"127.0.0.1:8000":              form,
		"https://h":                   scheme,
		"http://::1:8001":             form,
		"http://[127.0.0.1]:80":       form,
		"http://":                     form,
		"http://:80":                  "a host of 1 to 253 bytes",
		"http://h:":                   port,
		"http://h:0":                  port,
		"http://h:65536":              port,
		"http://h:x":                  form,
		"http://h?x=1":                plain,
		"http://h/a#b":                plain,
		"http://h//x":                 path,
		"http://h/a/../b":             path,
		"http://h h/":                 form,
		"http://h/\r\nX: y":           form,
		"http://ü:80":                 "a host of letters, digits, '-', '_' and '.'; an IPv6 host in brackets, as in http://[::1]:8001",
		"http://user:CANARY2@h:80":    plain,
		"https://user:CANARY2@h:80/a": scheme,
		"http://user:CAN/ARY2@h:80":   form,
	} {
		_, err := upstream.ParseEndpoint(raw)
		var field *fleet.FieldError
		if !errors.As(err, &field) {
			t.Errorf("%q: got %v, want a refusal of the field", raw, err)
			continue
		}
		if field.Field != "url" || field.Allowed != want {
			t.Errorf("%q: allowed is %q, want %q", raw, field.Allowed, want)
		}
		if strings.Contains(err.Error(), "CAN") || strings.Contains(err.Error(), "ARY2") {
			t.Errorf("password shown: %v", err)
		}
	}
	if _, err := upstream.ParseEndpoint("http://" + strings.Repeat("x", 5000)); err == nil || len(err.Error()) > 250 {
		t.Errorf("long url: %v", err)
	}
}

func TestM2_IPv6WorkerServes(t *testing.T) {
	w := serveOn(t, "[::1]:0", func(p *peer) {
		p.request()
		p.say(ok2)
	})
	if !strings.HasPrefix(w.ep.String(), "http://[::1]:") {
		t.Fatalf("endpoint %s", w.ep)
	}
	mustFetch(t, newClient(t, nil), w.ep, "ok")
}

func TestConfigErrorNamesFieldValueAndRange(t *testing.T) {
	for want, edit := range map[string]func(*upstream.Config){
		"connect_timeout 0s: must be":       func(c *upstream.Config) { c.ConnectTimeout = 0 },
		"write_timeout -1ns: must be":       func(c *upstream.Config) { c.WriteTimeout = -1 },
		"first_byte_timeout 48h0m0s: must":  func(c *upstream.Config) { c.FirstByteTimeout = 48 * 3600e9 },
		"idle_read_timeout 1ns: must be":    func(c *upstream.Config) { c.IdleReadTimeout = 1 },
		"idle_conn_timeout 0s: must be":     func(c *upstream.Config) { c.IdleConnTimeout = 0 },
		"max_idle_per_host -1: must be 0":   func(c *upstream.Config) { c.MaxIdlePerHost = -1 },
		"read_buffer 5: must be 1024 to":    func(c *upstream.Config) { c.ReadBuffer = 5 },
		"read_buffer 1048576: must be 1024": func(c *upstream.Config) { c.ReadBuffer = 1 << 20 },
	} {
		cfg := upstream.DefaultConfig()
		edit(&cfg)
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q in it", err, want)
		}
	}
	off := upstream.DefaultConfig()
	off.WriteTimeout, off.FirstByteTimeout, off.IdleReadTimeout, off.MaxIdlePerHost = 0, 0, 0, 0
	if err := off.Validate(); err != nil {
		t.Error(err)
	}
}

func TestTimeoutsThatAreOffDoNotStrike(t *testing.T) {
	w := answer(t, sse+"Transfer-Encoding: chunked\r\n\r\n"+chunk("x")+"0\r\n\r\n")
	c := newClient(t, func(c *upstream.Config) { c.WriteTimeout, c.FirstByteTimeout, c.IdleReadTimeout = 0, 0, 0 })
	for range 3 {
		mustFetch(t, c, w.ep, "x")
	}
	if n := w.accepted.Load(); n != 1 {
		t.Errorf("%d connections", n)
	}
}
