package api_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/catalog"
	"github.com/routerd/routerd/catalog/api"
	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
)

// nowhere takes every worker.
type nowhere struct{}

func (nowhere) Prepare(context.Context, fleet.PartitionKey, int) error { return nil }
func (nowhere) Commit(core.Change) error                               { return nil }
func (nowhere) Listen(catalog.Listening, func() *fleet.Record) error   { return nil }
func (nowhere) Unlisten(fleet.PartitionKey, ...fleet.Worker)           {}
func (nowhere) Configured(string) int                                  { return 16 }
func (nowhere) Ask(context.Context, fleet.Record) (catalog.Facts, error) {
	return catalog.Facts{}, errors.New("no engine")
}

func open(t *testing.T, file string) (*api.Source, *catalog.Reconciler) {
	t.Helper()
	r := catalog.New(catalog.Parts{Core: nowhere{}, Listeners: nowhere{}, Engines: nowhere{}}, slog.New(slog.DiscardHandler))
	s, err := api.Open(file, r)
	if err != nil {
		t.Fatal(err)
	}
	if skipped, err := s.Restore(t.Context()); err != nil || len(skipped) > 0 {
		t.Fatal(skipped, err)
	}
	return s, r
}

func names(r *catalog.Reconciler) []string {
	out := []string{}
	for _, v := range r.Workers() {
		out = append(out, v.Name)
	}
	return out
}

func TestAnAnsweredChangeIsFoundAfterTheNextStart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "workers.json")
	s, _ := open(t, file)
	for i, want := range []bool{true, false} {
		v, created, err := s.Put(t.Context(), fleet.Record{ID: 1, Name: "w1", URL: "http://127.0.0.1:8000", Model: "m"})
		if err != nil || created != want || v.Source != api.Name || v.Lifecycle != core.Ready {
			t.Errorf("put %d: got %+v, created %t, %v", i, v, created, err)
		}
	}
	if _, _, err := s.Put(t.Context(), fleet.Record{ID: 2, Name: "w2", URL: "http://127.0.0.1:8001", Model: "m"}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Delete(t.Context(), "1"); err != nil {
		t.Fatal(err)
	}
	_, again := open(t, file)
	if diff := cmp.Diff([]string{"w2"}, names(again)); diff != "" {
		t.Error(diff)
	}
}

func TestAStoredWorkerThatTheFileClaimsIsLeftOut(t *testing.T) {
	file := filepath.Join(t.TempDir(), "workers.json")
	s, _ := open(t, file)
	for id := range fleet.WorkerID(3) {
		if _, _, err := s.Put(t.Context(), fleet.Record{ID: id + 1, URL: "http://127.0.0.1:800" + id.String(), Model: "m"}); err != nil {
			t.Fatal(err)
		}
	}
	r := catalog.New(catalog.Parts{Core: nowhere{}, Listeners: nowhere{}, Engines: nowhere{}}, slog.New(slog.DiscardHandler))
	if err := r.Apply(t.Context(), "file", []fleet.Record{must(t, fleet.Record{ID: 2, URL: "http://127.0.0.1:9000", Model: "m"})}); err != nil {
		t.Fatal(err)
	}
	again, err := api.Open(file, r)
	if err != nil {
		t.Fatal(err)
	}
	skipped, err := again.Restore(t.Context())
	if err != nil || len(skipped) != 1 {
		t.Errorf("skipped %v, %v", skipped, err)
	}
	if diff := cmp.Diff([]string{"1", "2", "3"}, names(r)); diff != "" {
		t.Error(diff)
	}
	if err := r.Apply(t.Context(), "file", nil); err != nil { // it lets go of the worker
		t.Fatal(err)
	}
	third, err := api.Open(file, r)
	if err != nil {
		t.Fatal(err)
	}
	if skipped, err := third.Restore(t.Context()); err != nil || len(skipped) > 0 {
		t.Errorf("skipped %v, %v", skipped, err)
	}
	if diff := cmp.Diff([]string{"1", "3"}, names(r)); diff != "" {
		t.Errorf("after the next start (-want +got)\n%s", diff)
	}
	if _, err := third.Delete(t.Context(), "3"); err != nil {
		t.Errorf("a later change failed: %v", err)
	}
}

func TestARefusedPutChangesNothing(t *testing.T) {
	file := filepath.Join(t.TempDir(), "workers.json")
	s, r := open(t, file)
	if err := r.Apply(t.Context(), "file", []fleet.Record{must(t, fleet.Record{ID: 1, URL: "http://127.0.0.1:8000", Model: "m"})}); err != nil {
		t.Fatal(err)
	}
	var conflict *catalog.ConflictError
	if _, _, err := s.Put(t.Context(), fleet.Record{ID: 1, URL: "http://127.0.0.1:9000", Model: "m"}); !errors.As(err, &conflict) {
		t.Errorf("a worker of the file was replaced: %v", err)
	}
	var field *fleet.FieldError
	if _, _, err := s.Put(t.Context(), fleet.Record{ID: 2, URL: "nonsense"}); !errors.As(err, &field) {
		t.Errorf("got %v", err)
	}
	var foreign *catalog.ForeignError
	if _, err := s.Delete(t.Context(), "1"); !errors.As(err, &foreign) {
		t.Errorf("a worker of the file was deleted: %v", err)
	}
	if _, err := s.Delete(t.Context(), "none"); !errors.Is(err, api.ErrNotFound) {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file was written: %v", err)
	}
}

func TestABrokenFileStopsTheStart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "workers.json")
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := api.Open(file, nil); err == nil {
		t.Error("a broken file was taken for an empty one")
	}
}

func must(t *testing.T, r fleet.Record) fleet.Record {
	t.Helper()
	r, err := r.Normalised()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// silentAt is an engine that does not answer until it is told to.
type silentAt struct {
	nowhere
	url          string
	asked, leave chan struct{}
}

func (s silentAt) Configured(string) int { return 0 }

func (s silentAt) Ask(_ context.Context, rec fleet.Record) (catalog.Facts, error) {
	if rec.URL != s.url {
		return catalog.Facts{BlockSize: 16}, nil
	}
	s.asked <- struct{}{}
	<-s.leave
	return catalog.Facts{}, errors.New("timeout")
}

func TestASilentWorkerDelaysNoChangeOfAnother(t *testing.T) {
	engines := silentAt{url: "http://127.0.0.1:8001", asked: make(chan struct{}), leave: make(chan struct{})}
	r := catalog.New(catalog.Parts{Core: nowhere{}, Listeners: nowhere{}, Engines: engines}, slog.New(slog.DiscardHandler))
	file := filepath.Join(t.TempDir(), "workers.json")
	s, err := api.Open(file, r)
	if err != nil {
		t.Fatal(err)
	}
	silent := make(chan catalog.View, 1)
	go func() {
		v, _, err := s.Put(context.Background(), fleet.Record{ID: 1, URL: engines.url, Model: "m"})
		if err != nil {
			t.Error(err)
		}
		silent <- v
	}()
	<-engines.asked
	v, created, err := s.Put(t.Context(), fleet.Record{ID: 2, URL: "http://127.0.0.1:8002", Model: "m"})
	if err != nil || !created || v.Lifecycle != core.Ready {
		t.Errorf("got %+v, created %t, %v", v, created, err)
	}
	if _, err := s.Delete(t.Context(), "2"); err != nil {
		t.Error(err)
	}
	close(engines.leave)
	if v := <-silent; v.Lifecycle != core.Incomplete || len(v.Reasons) != 1 {
		t.Errorf("the silent worker stands as %+v", v)
	}
	_, again := open(t, file)
	if diff := cmp.Diff([]string{"1"}, names(again)); diff != "" {
		t.Error(diff)
	}
}

func TestAChangeKeepsWhatItDoesNotTouch(t *testing.T) {
	file := filepath.Join(t.TempDir(), "workers.json")
	s, r := open(t, file)
	if _, _, err := s.Put(t.Context(), fleet.Record{ID: 1, URL: "http://127.0.0.1:8000", Taints: []string{"a"}, Model: "m", Asked: `{"x":1}`, DPSize: 1}); err != nil {
		t.Fatal(err)
	}
	v, err := s.Update(t.Context(), 1, func(rec *fleet.Record) error {
		rec.TotalKVBlocks, rec.Asked = 7, `{"x":2}`
		return nil
	})
	want := must(t, fleet.Record{ID: 1, URL: "http://127.0.0.1:8000", Taints: []string{"a"}, Model: "m", Asked: `{"x":2}`, DPSize: 1, TotalKVBlocks: 7, Engine: "vllm"})
	if diff := cmp.Diff(want, v.Record); diff != "" || err != nil || v.Lifecycle != core.Ready {
		t.Errorf("%s, %v\n%s", v.Lifecycle, err, diff)
	}
	_, again := open(t, file)
	if got, _ := again.Worker("1"); !got.Equal(want) {
		t.Errorf("after the next start: %+v", got.Record)
	}
	refused := errors.New("no")
	if _, err := s.Update(t.Context(), 1, func(rec *fleet.Record) error { rec.TotalKVBlocks = 8; return refused }); !errors.Is(err, refused) {
		t.Errorf("got %v", err)
	}
	for field, change := range map[string]func(*fleet.Record){"id": func(r *fleet.Record) { r.ID, r.Name = 2, "2" }, "url": func(r *fleet.Record) { r.URL = "x" }} {
		_, err := s.Update(t.Context(), 1, func(rec *fleet.Record) error { change(rec); return nil })
		if fe, ok := errors.AsType[*fleet.FieldError](err); !ok || fe.Field != field {
			t.Errorf("%s: got %v", field, err)
		}
	}
	if got, _ := r.Worker("1"); !got.Equal(want) {
		t.Errorf("after refused changes: %+v", got.Record)
	}
}

func TestOnlyAWorkerOfTheSourceIsChangedByAPI(t *testing.T) {
	s, r := open(t, filepath.Join(t.TempDir(), "workers.json"))
	if err := r.Apply(t.Context(), "file", []fleet.Record{must(t, fleet.Record{ID: 1, URL: "http://127.0.0.1:8000", Model: "m"})}); err != nil {
		t.Fatal(err)
	}
	keep := func(*fleet.Record) error { return nil }
	var foreign *catalog.ForeignError
	if _, err := s.Update(t.Context(), 1, keep); !errors.As(err, &foreign) || foreign.Source != "file" {
		t.Errorf("got %v", err)
	}
	if _, err := s.Update(t.Context(), 2, keep); !errors.Is(err, api.ErrNotFound) {
		t.Errorf("got %v", err)
	}
}

func TestChangesAtOnceLoseNothing(t *testing.T) {
	s, r := open(t, filepath.Join(t.TempDir(), "workers.json"))
	if _, _, err := s.Put(t.Context(), fleet.Record{ID: 1, URL: "http://127.0.0.1:8000", Model: "m"}); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 5 {
				if _, err := s.Update(context.Background(), 1, func(rec *fleet.Record) error { rec.TotalKVBlocks++; return nil }); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if v, _ := r.Worker("1"); v.TotalKVBlocks != 40 {
		t.Errorf("%d of 40 changes were kept", v.TotalKVBlocks)
	}
}

func TestAFileOfBeforeIsRead(t *testing.T) {
	file := filepath.Join(t.TempDir(), "workers.json")
	const before = `[{"id": 5, "name": "w5", "url": "http://127.0.0.1:8000", "model": "m", "group": "default", "engine": "vllm", "dp_size": 1, "kv_events": {"0": "tcp://127.0.0.1:1"}}]`
	if err := os.WriteFile(file, []byte(before), 0o600); err != nil {
		t.Fatal(err)
	}
	_, r := open(t, file)
	want := must(t, fleet.Record{ID: 5, Name: "w5", URL: "http://127.0.0.1:8000", Model: "m", KVEvents: map[int]string{0: "tcp://127.0.0.1:1"}, Engine: "vllm", DPSize: 1})
	if v, _ := r.Worker("5"); !v.Equal(want) || v.Lifecycle != core.Ready {
		t.Errorf("got %+v", v)
	}
}

func TestADeletedWorkerIsAnswered(t *testing.T) {
	s, _ := open(t, filepath.Join(t.TempDir(), "workers.json"))
	put := must(t, fleet.Record{ID: 5, URL: "http://127.0.0.1:8000", Taints: []string{"a"}})
	if _, _, err := s.Put(t.Context(), put); err != nil {
		t.Fatal(err)
	}
	gone, err := s.Delete(t.Context(), "5")
	if diff := cmp.Diff(put, gone); diff != "" || err != nil {
		t.Error(err, diff)
	}
}
