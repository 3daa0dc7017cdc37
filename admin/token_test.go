package admin_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/routerd/routerd/admin"
)

func TestP2_NoRouteAnswersWithoutTheToken(t *testing.T) {
	b := newBench(t)
	wrong := []string{
		"", "Bearer", "Bearer ", "Bearer wrong", token, "Basic " + token, "Bearer " + token + "x", "Bearer " + token[:len(token)-1],
		"Bearer " + strings.ToUpper(token), "Bearer x " + token,
	}
	walked := map[string]bool{}
	for _, r := range admin.Routes(false) {
		path := strings.NewReplacer("{name}", "name", "{ref}", "1").Replace(r.Pattern)
		walked[r.Method+" "+r.Pattern] = r.Public
		for _, method := range []string{"GET", "HEAD", "PUT", "POST", "DELETE", "PATCH", "OPTIONS"} {
			open := r.Public && (method == "GET" || method == "HEAD")
			for _, authorization := range wrong {
				a := b.callWith(t, method, path, nil, authorization)
				if open != (a.status == http.StatusOK) || !open && a.status != http.StatusUnauthorized {
					t.Errorf("%s %s with %q: got %d %s", method, path, authorization, a.status, a.body)
				}
				if !open && a.header.Get("WWW-Authenticate") == "" {
					t.Errorf("%s %s: no WWW-Authenticate", method, path)
				}
			}
		}
	}
	for _, open := range []string{"GET /healthz", "GET /readyz"} {
		if !walked[open] {
			t.Errorf("%s is not public", open)
		}
		delete(walked, open)
	}
	for r, public := range walked {
		if public {
			t.Errorf("%s is public", r)
		}
	}
	for _, path := range []string{"/", "/v1/none", "/v1/modules/..%2fx", "/healthz/x"} {
		b.callWith(t, "GET", path, nil, "").refused(t, http.StatusUnauthorized, "unauthorized", "bearer token")
	}
	if strings.Contains(b.log.String(), "admin change") {
		t.Error("a refused caller reached a route")
	}
}

func TestTwoTokensAreNoToken(t *testing.T) {
	b := newBench(t)
	for _, first := range []string{"wrong", token} {
		a := b.raw(t, "GET /v1/modules HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer "+first+"\r\nAuthorization: Bearer "+token+"\r\n\r\n")
		a.refused(t, http.StatusUnauthorized, "unauthorized", "")
	}
	b.callWith(t, "GET", "/v1/modules", nil, "bearer "+token).into(t, http.StatusOK, nil)
}

func TestMetricsArePublicWhenTheConfigurationSaysSo(t *testing.T) {
	for _, open := range []bool{false, true} {
		b := newBench(t, func(c *admin.Config, _ *admin.Parts) { c.MetricsPublic = open })
		want := map[bool]int{false: http.StatusUnauthorized, true: http.StatusOK}[open]
		if a := b.callWith(t, "GET", "/metrics", nil, ""); a.status != want {
			t.Errorf("metrics_public %t: got %d", open, a.status)
		}
	}
}

func TestATokenIsMadeOnceAndKept(t *testing.T) {
	file := filepath.Join(t.TempDir(), "admin.token")
	first, err := admin.LoadOrMakeToken(file)
	if err != nil || len(first) != 64 {
		t.Fatalf("got %d characters, %v", len(first), err)
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if again, err := admin.LoadOrMakeToken(file); err != nil || again != first {
		t.Errorf("the second start has another token (%v)", err)
	}
	other, err := admin.LoadOrMakeToken(filepath.Join(t.TempDir(), "admin.token"))
	if err != nil || other == first {
		t.Errorf("two files have one token (%v)", err)
	}
}

func TestAnUnusableTokenStopsTheStart(t *testing.T) {
	for _, content := range []string{"", "\n", "short", "with a space in the middle", "0123456789abcdef\x00", "0123456789abcdefé"} {
		file := filepath.Join(t.TempDir(), "admin.token")
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := admin.LoadOrMakeToken(file)
		if err == nil {
			t.Errorf("%q was accepted", content)
		} else if len(content) > 3 && strings.Contains(err.Error(), content) {
			t.Errorf("the error holds the token: %v", err)
		}
	}
	if _, err := admin.LoadOrMakeToken(filepath.Join(t.TempDir(), "none", "admin.token")); err == nil {
		t.Error("a token was made in a folder that is not there")
	}
	if _, err := admin.New(admin.DefaultConfig(), admin.Parts{}, nil); err == nil {
		t.Error("a server without token and parts was made")
	}
}
