package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
)

// Why is a question cut off? An engine that hangs answers nothing for seconds. What has
// left the lists is nobody's business any more, and a worker that serves is not to serve
// on for that long after its health has found it unfit.
var (
	errUnwanted = errors.New("it is not wanted so any more")
	errNews     = errors.New("there is news of its health")
)

// hasNews tells whether a worker that serves is to be looked at for another reason than
// its engine: that comes first, and the question after it. One that comes back is asked
// first, since it may be another one. mu must be held.
func (e *entry) hasNews() bool { return e.again && e.lifecycle == core.Ready }

// hush cuts off the question under way, if any. mu must be held.
func (e *entry) hush(why error) {
	if e.attempt != nil && e.attempt.cut != nil {
		e.attempt.cut(why)
	}
}

// begin lets the question of an attempt be cut off, and tells why it is not to be asked
// any more. One without which the worker cannot be routed to is cut off by no news.
func (r *Reconciler) begin(a *attempt, needed bool, cut context.CancelCauseFunc) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case a.entry.round != a.round:
		return errUnwanted
	case needed:
		a.cut = func(why error) {
			if !errors.Is(why, errNews) {
				cut(why)
			}
		}
	case a.entry.hasNews():
		return errNews
	default:
		a.cut = cut
	}
	return nil
}

// askEngine asks the engine and merges what it tells. One that is cut off was not asked.
func (r *Reconciler) askEngine(ctx context.Context, a *attempt, needed bool) error {
	ctx, cut := context.WithCancelCause(ctx)
	defer cut(nil)
	if err := r.begin(a, needed, cut); err != nil {
		return fmt.Errorf("the engine was not asked: %w", err)
	}
	slots := r.probes
	if a.failed {
		slots = r.reprobes
	}
	select {
	case slots <- struct{}{}:
		defer func() { <-slots }()
	case <-ctx.Done():
		return fmt.Errorf("the engine was not asked: %w", context.Cause(ctx))
	}
	facts, err := r.parts.Engines.Ask(ctx, a.want)
	if why := context.Cause(ctx); errors.Is(why, errNews) || errors.Is(why, errUnwanted) {
		return fmt.Errorf("the engine has not answered yet: %w", why) // it may have told a part
	}
	a.asked = true
	if err != nil {
		return fmt.Errorf("the engine did not answer: %w", err)
	}
	a.facts = usable(facts)
	if !a.back || len(r.missing(merged(a.want, a.facts))) > 0 { // a sick engine answers in part
		a.facts.complete(a.was)
	}
	var unfit []string
	a.record, unfit = merge(a.want, a.facts)
	for _, field := range unfit {
		a.facts.Untold = append(a.facts.Untold, field+": "+contradicted)
	}
	return nil
}

// missing are the fields without which a worker cannot be routed to and that its engine
// may tell.
func (r *Reconciler) missing(rec fleet.Record) (fields []string) {
	if rec.Model == "" && rec.Asked == "" {
		fields = append(fields, modelUnknown)
	}
	if rec.BlockSize == 0 && r.configured(rec) == 0 {
		fields = append(fields, blockSizeUnknown)
	}
	if rec.RequireEvents && len(rec.KVEvents) == 0 && rec.Asked == "" {
		fields = append(fields, eventsMissing)
	}
	return fields
}

// contradicted is why what an engine tells is not taken.
const contradicted = "what the engine says contradicts the record"

// untold are the reasons of a worker whose engine did not tell what is missing, or told
// what the rest of the record excludes.
func (a *attempt) untold(missing []string, err error) error {
	var unfit []string
	if a.facts != nil {
		_, unfit = merge(a.want, a.facts)
	}
	why, again := "nobody configured it, and the engine does not tell it", ""
	if err != nil {
		why, again = "nobody configured it: "+err.Error(), "nobody configured it either"
	}
	var out incompleteError
	for i, m := range missing {
		if field := strings.TrimSuffix(strings.TrimSuffix(m, "_unknown"), "_missing"); slices.Contains(unfit, field) {
			out = append(out, m+": "+contradicted)
			continue
		}
		if i > 0 && again != "" {
			why = again // the cause is told once
		}
		out = append(out, m+": "+why)
	}
	return out
}
