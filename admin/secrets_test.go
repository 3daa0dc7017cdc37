package admin_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/routerd/routerd/admin"
	"github.com/routerd/routerd/host/library"
	"github.com/routerd/routerd/host/store"
)

// panics stands in for a store with a bug.
type panics struct{ *library.Library }

func (panics) List() []store.Module { panic("Bearer sk-CANARY-1") }

func TestT3_NoSecretLeavesTheAPI(t *testing.T) {
	b := newBench(t, func(_ *admin.Config, p *admin.Parts) {
		p.Modules = panics{p.Modules.(*library.Library)}
	})
	var said []string
	keep := func(a answer) answer {
		said = append(said, a.body, fmt.Sprint(a.header))
		return a
	}
	const canary = "Authorization: Bearer sk-CANARY-1\r\n"
	keep(b.callWith(t, "GET", "/v1/workers", nil, "Bearer sk-CANARY-1"))
	keep(b.raw(t, "GET /v1/workers HTTP/1.1\r\nHost: a\r\n"+canary+"\r\n"))
	keep(b.raw(t, "PUT /v1/workers/1 HTTP/1.1\r\nHost: a\r\n"+canary+"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab"))
	keep(b.raw(t, "GET /v1/workers HTTP/1.1\r\n"+canary+"broken header\r\n\r\n"))
	keep(b.raw(t, head("GET", "/v1/workers", "X-Secret: sk-CANARY-1")))
	if a := keep(b.call(t, "GET", "/v1/modules", nil)); a.status != http.StatusInternalServerError {
		t.Errorf("a panic answered %+v", a)
	}
	for _, url := range []string{
		"http://user:CANARY2@127.0.0.1:9", "http://user:CANARY2@[::1", "http://user:CANARY2@127.0.0.1:0", "https://user:CANARY2@127.0.0.1", "http://user:CANARY2%zz@h:1",
	} {
		a := keep(b.call(t, "PUT", "/v1/workers/1", map[string]any{"url": url}))
		a.refused(t, http.StatusBadRequest, "invalid", "url")
	}
	for _, path := range []string{
		"/v1/workers", "/v1/policies", "/v1/policies/default", "/v1/partitions?blocks=1", "/v1/decisions", "/metrics", "/healthz", "/readyz", "/openapi.json",
	} {
		keep(b.call(t, "GET", path, nil))
	}
	log := b.log.String()
	if !strings.Contains(log, "panicked") {
		t.Error("the panic is not in the log")
	}
	for _, text := range append(said, log) {
		if i := strings.Index(text, "CANARY"); i >= 0 {
			t.Errorf("a secret came out: …%.200s", text[max(i-100, 0):])
		}
	}
}
