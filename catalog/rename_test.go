package catalog_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/routerd/routerd/catalog"
	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
)

// strict is a core that, as the real one, refuses two workers of one name.
type strict struct {
	*stage
	mu      sync.Mutex
	has     map[fleet.WorkerID]string
	refused []string
	removed []fleet.WorkerID
}

func (s *strict) Commit(ch core.Change) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next, by := map[fleet.WorkerID]string{}, map[string]fleet.WorkerID{}
	for id, name := range s.has {
		if !slices.Contains(ch.Removals, id) {
			next[id] = name
		}
	}
	for _, m := range ch.Upserts {
		next[m.Record.ID] = m.Record.Name
	}
	for id, name := range next {
		if _, taken := by[name]; taken {
			s.refused = append(s.refused, name)
			return fmt.Errorf("the name %q is taken", name)
		}
		by[name] = id
	}
	s.has, s.removed = next, append(s.removed, ch.Removals...)
	return s.stage.Commit(ch)
}

func TestWorkersThatSwapNamesLoseNothing(t *testing.T) {
	named := func(name string) func(*fleet.Record) { return func(r *fleet.Record) { r.Name = name } }
	silent := func(r *fleet.Record) { r.BlockSize = 0 }
	for name, list := range map[string][2][]fleet.Record{
		"in one partition": {
			{record(t, 1, named("a")), record(t, 2, named("b"))},
			{record(t, 1, named("b")), record(t, 2, named("a"))},
		},
		"in two": {
			{record(t, 1, named("a")), record(t, 2, named("b"), func(r *fleet.Record) { r.Group = "g" })},
			{record(t, 1, named("b")), record(t, 2, named("a"), func(r *fleet.Record) { r.Group = "g" })},
		},
		"while an engine is silent": {
			{record(t, 1, named("a")), record(t, 2, named("b"), silent)},
			{record(t, 1, named("b")), record(t, 2, named("a"), silent)},
		},
		"on, to one that is new": {
			{record(t, 1, named("a")), record(t, 2, named("b"), silent)},
			{record(t, 1, named("b")), record(t, 2, named("c"), silent), record(t, 3, named("a"))},
		},
		"from one that leaves": {
			{record(t, 1, named("a")), record(t, 2, named("b"))},
			{record(t, 1, named("b"))},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &strict{stage: newStage(), has: map[fleet.WorkerID]string{}}
				s.engines["http://127.0.0.1:8002"] = told{facts: catalog.Facts{BlockSize: 16}}
				r := catalog.New(catalog.Parts{Core: s, Listeners: s, Engines: s}, slog.New(slog.DiscardHandler))
				apply(t, r, list[0]...)
				s.stage.mu.Lock()
				s.engines["http://127.0.0.1:8002"] = told{after: time.Minute}
				s.stage.mu.Unlock()
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				if err := r.Apply(ctx, "file", list[1]); err != nil {
					t.Fatal(err)
				}
				gone := len(list[0]) - len(list[1])
				if len(s.refused) > 0 || len(s.removed) > max(gone, 0) {
					t.Errorf("refused names %q, removed workers %v", s.refused, s.removed)
				}
				for _, rec := range list[1] {
					if s.has[rec.ID] != rec.Name {
						t.Errorf("worker %s is called %q, want %q", rec.ID, s.has[rec.ID], rec.Name)
					}
				}
			})
		})
	}
}
