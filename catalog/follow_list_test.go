package catalog_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/catalog"
	"github.com/routerd/routerd/catalog/sourcetest"
	"github.com/routerd/routerd/fleet"
)

func TestAListKeepsTheContractOfASource(t *testing.T) {
	sourcetest.Run(t, func(*testing.T) sourcetest.Bench {
		l := catalog.NewList("file", nil)
		return sourcetest.Bench{Source: l, Set: func(list []fleet.Record) { _ = l.Set(list) }}
	})
}

func TestWhoSetsAListLearnsOfItsRefusal(t *testing.T) {
	l := catalog.NewList("file", []fleet.Record{record(t, 1)})
	ctx, cancel := context.WithCancel(t.Context())
	refused := errors.New("refused")
	began, ended := make(chan struct{}, 2), make(chan error)
	go func() {
		ended <- l.Watch(ctx, func(list []fleet.Record) error {
			if len(list) > 1 {
				return refused
			}
			began <- struct{}{}
			return nil
		})
	}()
	<-began
	if err := l.Set([]fleet.Record{record(t, 1), record(t, 2)}); !errors.Is(err, refused) {
		t.Errorf("Set returned %v", err)
	}
	got, err := l.List(t.Context())
	if diff := cmp.Diff([]fleet.Record{record(t, 1)}, got); diff != "" || err != nil {
		t.Errorf("the list before did not stay: %v\n%s", err, diff)
	}
	if err := l.Watch(ctx, func([]fleet.Record) error { return nil }); err == nil {
		t.Error("a list was watched twice at once")
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := l.Set(nil); err != nil {
		t.Errorf("nobody watches, and still: %v", err)
	}
}
