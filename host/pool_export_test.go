package host

import (
	"context"

	"github.com/routerd/routerd/core/policy"
)

// poolOf is the pool of a scorer.
func poolOf(s policy.Scorer) *pool { return s.(scorerStage).pool }

// Aside makes stages made under ctx serve no request.
func Aside(ctx context.Context) context.Context { return scoped(ctx, "test") }

// Take takes an instance out of a stage's pool, as a call does.
func Take(s policy.Scorer) (giveBack func()) {
	p := poolOf(s)
	in, err := p.get(context.Background())
	if err != nil {
		return func() {}
	}
	return func() { p.put(in) }
}

// Tidying is how many instances of a stage's pool are in rp_idle.
func Tidying(s policy.Scorer) int {
	if poolOf(s).tidying.Load() {
		return 1
	}
	return 0
}
