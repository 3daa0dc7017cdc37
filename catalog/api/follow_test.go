package api_test

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/routerd/routerd/catalog"
	"github.com/routerd/routerd/catalog/api"
	"github.com/routerd/routerd/catalog/sourcetest"
	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestItKeepsTheContractOfASource(t *testing.T) {
	sourcetest.Run(t, func(t *testing.T) sourcetest.Bench {
		s, r := open(t, filepath.Join(t.TempDir(), "workers.json"))
		return sourcetest.Bench{Source: s, Unique: true, Set: func(list []fleet.Record) {
			for _, v := range r.Workers() {
				if !slices.ContainsFunc(list, func(rec fleet.Record) bool { return rec.Name == v.Name }) {
					if _, err := s.Delete(t.Context(), v.Name); err != nil {
						t.Error(err)
					}
				}
			}
			for _, rec := range list {
				if _, _, err := s.Put(t.Context(), rec); err != nil && rec.Name != "w2.fleet.test:8000" {
					t.Error(err) // the rules refuse only that one
				}
			}
		}}
	})
}

// follow follows the source until the test ends and returns when it is watched.
func follow(t *testing.T, r *catalog.Reconciler, s catalog.Source) *catalog.Sources {
	t.Helper()
	sources := catalog.NewSources(r, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.Background())
	ended, watched := make(chan error, 1), make(chan struct{})
	go func() { ended <- sources.Follow(ctx, told{s, watched}, catalog.DefaultFollowConfig()) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	<-watched
	return sources
}

// told tells when the first list was taken.
type told struct {
	catalog.Source
	watched chan struct{}
}

func (s told) Watch(ctx context.Context, give func([]fleet.Record) error) error {
	return s.Source.Watch(ctx, func(list []fleet.Record) error {
		defer func() {
			select {
			case <-s.watched:
			default:
				close(s.watched)
			}
		}()
		return give(list)
	})
}

func TestChangesOfAFollowedSourceAreAnsweredAsTheyStand(t *testing.T) {
	file := filepath.Join(t.TempDir(), "workers.json")
	s, r := open(t, file)
	if err := r.Apply(t.Context(), "file", []fleet.Record{must(t, fleet.Record{ID: 9, URL: "http://127.0.0.1:9000", Model: "m"})}); err != nil {
		t.Fatal(err)
	}
	sources := follow(t, r, s)
	for id := range fleet.WorkerID(3) {
		v, created, err := s.Put(t.Context(), fleet.Record{ID: id + 1, URL: "http://127.0.0.1:800" + id.String(), Model: "m"})
		if err != nil || !created || v.Lifecycle != core.Ready {
			t.Errorf("worker %d: %s, created %t, %v", id+1, v.Lifecycle, created, err)
		}
	}
	var conflict *catalog.ConflictError
	if _, _, err := s.Put(t.Context(), fleet.Record{ID: 9, URL: "http://127.0.0.1:9001", Model: "m"}); !errors.As(err, &conflict) {
		t.Errorf("a worker of the file was replaced: %v", err)
	}
	if _, err := s.Delete(t.Context(), "2"); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"1", "3", "9"}, names(r)); diff != "" {
		t.Error(diff)
	}
	if st := sources.Status(); len(st) != 1 || st[0].Name != api.Name || st[0].Workers != 2 || !st[0].Up || st[0].Refused != "" {
		t.Errorf("the source stands as %+v", st)
	}
	_, again := open(t, file)
	if diff := cmp.Diff([]string{"1", "3"}, names(again)); diff != "" {
		t.Error(diff)
	}
}
