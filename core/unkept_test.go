package core_test

import (
	"testing"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/core/policy"
)

// stickySpec is the policy that follows bindings by itself.
func stickySpec() policy.Spec {
	return policy.Spec{Policy: &policy.WholeSpec{StageSpec: policy.StageSpec{Use: "builtin:sticky"}}}
}

// TestStickyGoesByTheSessionsNameWhereNobodyKeepsBindings: with bindings off, of a
// session that binds nothing and of one for which the table had no place, the policy
// does not know of a binding, and does not take that for none.
func TestStickyGoesByTheSessionsNameWhereNobodyKeepsBindings(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(*core.Config)
		context core.SessionContext
		before  string // a session that is bound before
	}{
		"off":    {func(c *core.Config) { c.Affinity.TTL = 0 }, core.SessionContext{ID: "s"}, ""},
		"advice": {func(*core.Config) {}, core.SessionContext{ID: "s", Advice: true}, ""},
		"full":   {func(c *core.Config) { c.Affinity.Entries = 1 }, core.SessionContext{ID: "s"}, "other"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, stickySpec(), nil, c.change)
			w.join(t, workers("m1", 8)...)
			if c.before != "" {
				req := bookRequest("", nil)
				req.Session = c.before
				if _, err := w.Select(t.Context(), req); err != nil {
					t.Fatal(err)
				}
			}
			chosen := map[string]int{}
			for range 20 {
				req := bookRequest("", nil)
				req.SessionContext = &c.context
				sel, err := w.Select(t.Context(), req)
				if err != nil {
					t.Fatal(err)
				}
				chosen[sel.Name]++
			}
			if len(chosen) != 1 {
				t.Errorf("the session went to %v, want one worker", chosen)
			}
			if bound := w.Stats().Partitions[0].Sessions.Bound; bound > 1 || name != "full" && bound != 0 {
				t.Errorf("%d sessions are bound", bound)
			}
		})
	}
}
