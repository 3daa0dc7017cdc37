package cli_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestTheRouterSaysWhenTheTimeToDrainIsOver(t *testing.T) {
	look := func(left int, reasons ...string) map[string]any {
		return map[string]any{"reasons": reasons, "ranks": []any{map[string]any{"load": map[string]any{"active_requests": left}}}}
	}
	const over = "drain_over: its time is over; what it still had counts no more"
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		looks []map[string]any
		want  string // the error, or what is printed
		fails bool
	}{
		{"nothing left in time", []map[string]any{look(2), look(1), look(0)}, "worker w1 has nothing left\n", false},
		{"given up", []map[string]any{look(2), look(0, over)}, "worker w1: its time is over with 2 requests left", true},
		{"over before it is given up", []map[string]any{look(2), look(3, over)}, "worker w1: its time is over with 3 requests left", true},
		{"nothing to be given up", []map[string]any{look(0, over)}, "worker w1 has nothing left\n", false},
	} {
		for clock, skew := range map[string]time.Duration{"ahead": time.Hour, "behind": -time.Hour} {
			t.Run(c.name+", the router's clock is "+clock, func(t *testing.T) {
				looks := c.looks
				srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					v := looks[0]
					if r.Method == http.MethodGet && len(looks) > 1 {
						looks = looks[1:]
					}
					v["name"], v["lifecycle"], v["drain_until"] = "w1", "draining", time.Now().Add(skew)
					w.Header().Set("Content-Type", "application/json")
					_ = json.NewEncoder(w).Encode(v)
				}))
				defer srv.Close()
				out, err := command(t, "", "worker drain w1 --wait --token-file "+token+" --admin-url "+srv.URL)
				if err != nil {
					out += err.Error()
				}
				if (err != nil) != c.fails || !strings.Contains(out, c.want) {
					t.Errorf("got %q, fails %v", out, err != nil)
				}
			})
		}
	}
}
