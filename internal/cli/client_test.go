package cli_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/routerd/routerd/internal/cli"
)

func TestAnAnswerThatIsNoneOfTheAPIIsAnError(t *testing.T) {
	for _, c := range []struct {
		name    string
		status  int
		body    string
		message string
	}{
		{"another server's error", 502, "<html>", "unknown: status 502"},
		{"a redirect", 302, "", "unknown: status 302"},
		{"an answer that is no JSON", 200, "hello", "read the answer"},
		{"lists whose parts were said", 409, `{"error":{"code":"conflict","message":"a: not 1, or x; b: not 2, or x","details":{"item":"a, b","allowed":"1, or x; 2, or x"}}}`, "conflict: a: not 1, or x; b: not 2, or x"},
		{"an error over lines", 400, `{"error":{"code":"invalid","message":"a\nb","details":{"step":"s","allowed":"c\nd"}}}`, "invalid: a b; step: s; allowed: c d"},
	} {
		t.Run(c.name, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Authorization") != "Bearer secret-token" {
					t.Error("the token is missing")
				}
				w.Header().Set("Location", "/elsewhere")
				w.WriteHeader(c.status)
				w.Write([]byte(c.body))
			}))
			defer srv.Close()
			var out map[string]any
			err := cli.NewClient(srv.URL, "secret-token").Do(t.Context(), "GET", "/v1/modules", nil, &out)
			if err == nil || !strings.Contains(err.Error(), c.message) || strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "item: a") {
				t.Errorf("got %v, want %q", err, c.message)
			}
			if refused := (*cli.APIError)(nil); c.status >= 300 && (!errors.As(err, &refused) || refused.Status != c.status) {
				t.Errorf("got %T", err)
			}
		})
	}
}
