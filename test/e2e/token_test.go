//go:build e2e

package e2e_test

import (
	"encoding/json"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// as makes an admin call with an Authorization header of its own.
func (r *router) as(authorization, method, path string) (int, string) {
	r.t.Helper()
	var body []byte
	if method != http.MethodGet && method != http.MethodHead {
		body = []byte("{}")
	}
	header := http.Header{}
	if authorization != "" {
		header.Set("Authorization", authorization)
	}
	a := exchange(r.t, method, r.admin+path, header, body)
	return a.status, string(a.body)
}

// Every route that the API's own description lists, with every method, wants
// the token, but for the two of health.
func TestP2_EveryRouteWantsTheToken(t *testing.T) {
	r := startRouter(t, three(t))
	var api struct {
		Paths map[string]map[string]json.RawMessage `json:"paths"`
	}
	r.must("GET", "/openapi.json", nil, &api)
	if len(api.Paths) < 10 {
		t.Fatalf("the description lists %d paths, want at least 10", len(api.Paths))
	}
	open := []string{"/healthz", "/readyz"}
	methods := []string{"GET", "HEAD", "PUT", "POST", "DELETE", "PATCH", "OPTIONS"}
	calls := 0
	for path := range api.Paths {
		at := strings.NewReplacer("{name}", "default", "{ref}", "1").Replace(path)
		if slices.Contains(open, path) {
			if status, answer := r.as("", "GET", at); status != http.StatusOK {
				t.Errorf("GET %s: status %d, want 200 without a token: %s", at, status, answer)
			}
			continue
		}
		for _, method := range methods {
			for _, authorization := range []string{"", "Bearer", "Bearer wrong", "Bearer " + r.token[:len(r.token)-1], "Basic " + r.token, r.token} {
				calls++
				status, answer := r.as(authorization, method, at)
				if status != http.StatusUnauthorized || method != "HEAD" && !strings.Contains(answer, `"unauthorized"`) {
					t.Errorf("%s %s: status %d, want 401: %s", method, at, status, answer)
				}
				if strings.Contains(answer, r.token) {
					t.Errorf("%s %s: the answer holds the token", method, at)
				}
			}
		}
	}
	t.Logf("%d calls", calls)
	if status, _ := r.as("", "GET", "/v1/nothing"); status != http.StatusUnauthorized {
		t.Errorf("an unknown path: status %d, want 401", status)
	}
	for _, addr := range []string{r.admin, r.frontend} {
		host, _, err := net.SplitHostPort(strings.TrimPrefix(addr, "http://"))
		if ip := net.ParseIP(host); err != nil || !ip.IsLoopback() {
			t.Errorf("a listener is at %s, want loopback", addr)
		}
	}
	_, out, _ := run(t, nil, "config", "print")
	if strings.Count(out, "listen: 127.0.0.1:") != 2 {
		t.Errorf("the default listeners are not on loopback:\n%s", out)
	}
	if strings.Contains(r.log.String(), r.token) {
		t.Error("the log holds the token")
	}
}
