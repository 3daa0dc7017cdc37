package app_test

import (
	"log/slog"
	"testing"

	"github.com/routerd/routerd/catalog"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/internal/app"
)

func TestWhoWaitedBeforeTheReconcilerCameIsTold(t *testing.T) {
	told := func(changed <-chan struct{}) bool {
		select {
		case <-changed:
			return true
		default:
			return false
		}
	}
	r := app.NewRoster()
	before := r.Changed()
	if told(before) || len(r.Workers()) != 0 {
		t.Fatal("told of a change that nobody made")
	}
	rec := catalog.New(catalog.Parts{}, slog.New(slog.DiscardHandler))
	r.Is(rec)
	if !told(before) {
		t.Error("who waits is not told that the reconciler is there")
	}
	after := r.Changed()
	if told(after) {
		t.Error("told of a change that nobody made")
	}
	if _, err := rec.Plan("test", []fleet.Record{{ID: 1, Name: "w1", URL: "http://h:1"}}); err != nil {
		t.Fatal(err)
	}
	if !told(after) || len(r.Workers()) != 1 {
		t.Error("who waits is not told of a change")
	}
}
