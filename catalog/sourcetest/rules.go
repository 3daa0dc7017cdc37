package sourcetest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/goleak"

	"github.com/routerd/routerd/fleet"
)

// rule is one rule with the check that tells how a source breaks it.
type rule struct {
	name  string
	check func(Bench) error
}

func rules() []rule {
	return []rule{
		{"the list comes at once", atOnce},
		{"each change comes as a whole list", whole},
		{"an empty list is a list", emptied},
		{"a worker that stands twice comes twice, and the list before stays", twice},
		{"a refusal is not the end", refusal},
		{"a change of a label comes", metadata},
		{"a lost place is an error and no list", loss},
		{"the end of ctx is nil and leaves nothing", ended},
		{"List is what Watch gave last", listed},
		{"lists come one at a time", serial},
	}
}

func atOnce(b Bench) error {
	name := b.Source.Name()
	want := b.set(1, 2)
	w := b.watch(&watcher{})
	defer w.cancel()
	if err := w.gives(0, want); err != nil {
		return err
	}
	if again := b.Source.Name(); name == "" || again != name {
		return fmt.Errorf("its name is %q, then %q", name, again)
	}
	return w.end()
}

func whole(b Bench) error {
	want := b.set(1)
	w := b.watch(&watcher{})
	defer w.cancel()
	if err := w.gives(0, want); err != nil {
		return err
	}
	for _, next := range [][]int{{1, 2, 3}, {2, 3}, {3, 4}} {
		since := len(w.offers())
		if err := w.gives(since, b.set(next...)); err != nil {
			return err
		}
	}
	return w.end()
}

func emptied(b Bench) error {
	want := b.set(1, 2)
	w := b.watch(&watcher{})
	defer w.cancel()
	if err := w.gives(0, want); err != nil {
		return err
	}
	since := len(w.offers())
	if err := w.gives(since, b.set()); err != nil {
		return err
	}
	since = len(w.offers())
	if err := w.gives(since, b.set(3)); err != nil {
		return err
	}
	return w.end()
}

func twice(b Bench) error {
	if b.Unique {
		return nil
	}
	before := b.set(1, 2)
	w := b.watch(&watcher{refuse: refuseTwice})
	defer w.cancel()
	if err := w.gives(0, before); err != nil {
		return err
	}
	since := len(w.offers())
	one, other := b.worker(3), b.worker(3)
	other.URL = b.worker(5).URL
	b.Set([]fleet.Record{one, b.worker(4), other})
	err := w.await(since, "the list with a worker that stands twice", func(got []fleet.Record) bool {
		return len(got) == 3 && refuseTwice(got) != nil
	})
	if err != nil {
		return err
	}
	if taken, _ := w.state(); !equal(taken, before) {
		return fmt.Errorf("a part of the list was given: %s", texts(w.offers()))
	}
	since = len(w.offers())
	if err := w.gives(since, b.set(2, 3)); err != nil {
		return err
	}
	return w.end()
}

// refuseTwice refuses as the reconciler does.
func refuseTwice(list []fleet.Record) error {
	seen := map[fleet.WorkerID]bool{}
	for _, rec := range list {
		if seen[rec.ID] {
			return fmt.Errorf("id %s stands twice", rec.ID)
		}
		seen[rec.ID] = true
	}
	return nil
}

func refusal(b Bench) error {
	unwanted := b.records(2)[0]
	want := b.set(1)
	w := b.watch(&watcher{refuse: func(list []fleet.Record) error {
		for _, rec := range list {
			if rec.ID == unwanted.ID {
				return errors.New("refused")
			}
		}
		return nil
	}})
	defer w.cancel()
	if err := w.gives(0, want); err != nil {
		return err
	}
	since := len(w.offers())
	if err := w.gives(since, b.set(1, 2)); err != nil {
		return err
	}
	since = len(w.offers())
	if err := w.gives(since, b.set(1, 3)); err != nil {
		return fmt.Errorf("after a refusal: %w", err)
	}
	return w.end()
}

func metadata(b Bench) error {
	if b.Bare {
		return nil
	}
	want := b.set(1, 2)
	w := b.watch(&watcher{})
	defer w.cancel()
	if err := w.gives(0, want); err != nil {
		return err
	}
	since := len(w.offers())
	changed := b.worker(2)
	changed.Labels = map[string]string{"zone": "b"}
	list := []fleet.Record{b.worker(1), changed}
	b.Set(list)
	want, err := normalised(list)
	if err != nil {
		return err
	}
	if err := w.gives(since, want); err != nil {
		return err
	}
	return w.end()
}

func loss(b Bench) error {
	if b.Break == nil {
		return nil
	}
	before := b.set(1, 2)
	w := b.watch(&watcher{})
	defer w.cancel()
	if err := w.gives(0, before); err != nil {
		return err
	}
	b.Break()
	if err := w.lost(); err != nil {
		return err
	}
	for _, got := range w.offers() {
		if !equal(got, before) {
			return fmt.Errorf("the loss gave a list: %s", texts(w.offers()))
		}
	}
	if list, err := b.list(); err == nil {
		return fmt.Errorf("got %s from List, though the place is lost", text(list))
	}
	want := b.set(2, 3)
	b.Mend()
	w = b.watch(&watcher{})
	defer w.cancel()
	if err := w.gives(0, want); err != nil {
		return fmt.Errorf("after the loss: %w", err)
	}
	return w.end()
}

func ended(b Bench) error {
	want := b.set(1)
	was := goleak.IgnoreCurrent()
	w := b.watch(&watcher{})
	defer w.cancel()
	if err := w.gives(0, want); err != nil {
		return err
	}
	if err := w.end(); err != nil {
		return err
	}
	gone := b.watch(&watcher{})
	if err := gone.end(); err != nil { // which may come before the first list
		return fmt.Errorf("a watch that ends as it begins: %w", err)
	}
	if err := goleak.Find(was); err != nil {
		return fmt.Errorf("left by Watch: %w", err)
	}
	return nil
}

func listed(b Bench) error {
	want := b.set(1, 2)
	w := b.watch(&watcher{})
	defer w.cancel()
	for _, next := range [][]int{{2, 3}, {4}} {
		if err := w.gives(0, want); err != nil {
			return err
		}
		got, err := b.list()
		if err != nil {
			return fmt.Errorf("an error from List, though the place is there: %w", err)
		}
		if !equal(got, want) {
			return fmt.Errorf("got %s from List, and %s from Watch", text(got), text(want))
		}
		want = b.set(next...)
	}
	return w.end()
}

func serial(b Bench) error {
	b.set(1)
	w := b.watch(&watcher{slow: 20 * time.Millisecond})
	defer w.cancel()
	var want []fleet.Record
	for n := 2; n <= 9; n++ {
		want = b.set(1, n)
		<-time.After(5 * time.Millisecond) // less than a list takes
	}
	if err := w.gives(0, want); err != nil {
		return err
	}
	if _, crossed := w.state(); crossed {
		return errors.New("two lists were given at one time")
	}
	return w.end()
}

// set makes these workers all that the place holds.
func (b Bench) set(ns ...int) []fleet.Record {
	b.Set(b.workers(ns))
	return b.records(ns...)
}

func (b Bench) workers(ns []int) []fleet.Record {
	list := make([]fleet.Record, len(ns))
	for i, n := range ns {
		list[i] = b.worker(n)
	}
	return list
}

// records are the workers in the form in which lists are compared.
func (b Bench) records(ns ...int) []fleet.Record {
	list, _ := normalised(b.workers(ns)) // Run has looked at each
	return list
}

func (b Bench) worker(n int) fleet.Record {
	if b.Worker != nil {
		return b.Worker(n)
	}
	at := fmt.Sprintf("w%d.fleet.test:8000", n)
	return fleet.Record{Name: at, URL: "http://" + at}
}

func (b Bench) list() ([]fleet.Record, error) {
	ctx, cancel := context.WithTimeout(context.Background(), b.patience())
	defer cancel()
	list, err := b.Source.List(ctx)
	if err != nil {
		return nil, err
	}
	return normalised(list)
}

func (b Bench) patience() time.Duration {
	if b.Patience > 0 {
		return b.Patience
	}
	return 5 * time.Second
}
