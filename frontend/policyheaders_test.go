package frontend_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/frontend"
)

func TestPoliciesSeeTheListedHeadersAlone(t *testing.T) {
	w, o, _ := overhear(t, func(s *setup) {
		s.frontend.PolicyHeaders, s.frontend.TrustHeaders = []string{"x-team", "x-tier"}, false
	})
	for _, c := range []struct {
		name    string
		headers []string
		want    map[string]string
	}{
		{"none", nil, nil},
		{"others", []string{"Authorization", "Bearer secret", "X-Teams", "a"}, nil},
		{"any case", []string{"X-TEAM", " blue ", "X-Other", "y"}, map[string]string{"x-team": "blue"}},
		{"twice", []string{"X-Team", "blue", "X-Team", "red"}, map[string]string{"x-team": "blue, red"}},
		{"empty", []string{"X-Team", "", "X-Tier", "gold"}, map[string]string{"x-tier": "gold"}},
		{"longest", []string{"X-Team", strings.Repeat("a", 256)}, map[string]string{"x-team": strings.Repeat("a", 256)}},
		{"too long", []string{"X-Team", strings.Repeat("a", 257)}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := w.do(t, "POST", textPath, textBody, c.headers...)
			if got.status != http.StatusOK {
				t.Fatalf("got %d %s", got.status, got.body)
			}
			if diff := cmp.Diff(c.want, o.request().Headers); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestHeadersThatPoliciesMustNotSeeAreRefusedByName(t *testing.T) {
	many := make([]string, 17)
	for i := range many {
		many[i] = "x-" + string(rune('a'+i))
	}
	for _, c := range []struct {
		names   []string
		allowed string
	}{
		{[]string{"x-team", "authorization"}, "no credential"},
		{many, "at most 16"},
	} {
		cfg := frontend.DefaultConfig()
		cfg.PolicyHeaders = c.names
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), "policy_headers") || !strings.Contains(err.Error(), c.allowed) {
			t.Errorf("%q: got %v; want it refused, %s", c.names, err, c.allowed)
		}
	}
	cfg := frontend.DefaultConfig()
	cfg.PolicyHeaders = many[:16]
	if err := cfg.Validate(); err != nil {
		t.Error(err)
	}
}
