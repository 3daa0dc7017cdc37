package sourcetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/routerd/routerd/fleet"
)

// errNil stands for a result of nil in an error.
var errNil = errors.New("it returned nil")

// watcher watches a source and keeps what it was given.
type watcher struct {
	patience time.Duration
	refuse   func([]fleet.Record) error // nil takes every list
	slow     time.Duration              // how long it takes over a list

	cancel context.CancelFunc
	ended  chan error // Watch's result
	news   chan struct{}

	mu      sync.Mutex // guards the fields below
	offered [][]fleet.Record
	taken   []fleet.Record
	running int
	crossed bool // two lists were given at one time
}

func (b Bench) watch(w *watcher) *watcher {
	ctx, cancel := context.WithCancel(context.Background())
	w.patience, w.cancel = b.patience(), cancel
	w.ended, w.news = make(chan error, 1), make(chan struct{}, 1)
	go func() { w.ended <- b.Source.Watch(ctx, w.give) }()
	return w
}

func (w *watcher) give(list []fleet.Record) error {
	list, err := normalised(list)
	w.mu.Lock()
	w.running++
	w.crossed = w.crossed || w.running > 1
	w.mu.Unlock()
	if w.slow > 0 {
		<-time.After(w.slow)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running--
	w.offered = append(w.offered, list)
	if err == nil && w.refuse != nil {
		err = w.refuse(list)
	}
	if err == nil {
		w.taken = list
	}
	select {
	case w.news <- struct{}{}:
	default: // whoever waits looks at everything
	}
	return err
}

// await waits until a list is offered, from the offer with the number since on,
// that is as wanted.
func (w *watcher) await(since int, what string, wanted func([]fleet.Record) bool) error {
	late := time.NewTimer(w.patience)
	defer late.Stop()
	for {
		if slices.ContainsFunc(w.offers()[since:], wanted) {
			return nil
		}
		select {
		case <-w.news:
		case err := <-w.ended:
			w.ended <- err
			return fmt.Errorf("the end of Watch before it gave %s; it gave %s: %w", what, texts(w.offers()), cmp.Or(err, errNil))
		case <-late.C:
			return fmt.Errorf("no %s from Watch; it gave %s", what, texts(w.offers()))
		}
	}
}

// gives waits for exactly these records.
func (w *watcher) gives(since int, want []fleet.Record) error {
	return w.await(since, text(want), func(got []fleet.Record) bool { return equal(got, want) })
}

func (w *watcher) offers() [][]fleet.Record {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.offered)
}

// state is the list that was taken last, and whether two were given at one time.
func (w *watcher) state() (taken []fleet.Record, crossed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.taken, w.crossed
}

// end ends the watch, which must return nil.
func (w *watcher) end() error {
	w.cancel()
	select {
	case err := <-w.ended:
		if err != nil {
			return fmt.Errorf("an error from Watch, though ctx has ended: %w", err)
		}
		return nil
	case <-time.After(w.patience):
		return errors.New("no end of Watch, though ctx has ended")
	}
}

// lost waits for Watch to return the error of a lost place.
func (w *watcher) lost() error {
	defer w.cancel()
	select {
	case err := <-w.ended:
		if err == nil {
			return errors.New("nil from Watch, though the place is lost")
		}
		return nil
	case <-time.After(w.patience):
		return errors.New("no end of Watch, though the place is lost")
	}
}

// normalised is the list in one form, by id.
func normalised(list []fleet.Record) ([]fleet.Record, error) {
	out := make([]fleet.Record, len(list))
	for i, rec := range list {
		rec, err := rec.Normalised()
		if err != nil {
			return list, err
		}
		out[i] = rec
	}
	slices.SortStableFunc(out, func(a, b fleet.Record) int { return cmp.Compare(a.ID, b.ID) })
	return out, nil
}

func equal(a, b []fleet.Record) bool { return slices.EqualFunc(a, b, fleet.Record.Equal) }

func texts(lists [][]fleet.Record) string {
	var out []string
	for _, l := range lists {
		out = append(out, text(l))
	}
	return strings.Join(out, " then ")
}

// text shows a list by names and labels.
func text(list []fleet.Record) string {
	out := make([]string, len(list))
	for i, rec := range list {
		out[i] = rec.Name
		if len(rec.Labels) > 0 {
			out[i] += fmt.Sprint(rec.Labels)
		}
	}
	return "[" + strings.Join(out, " ") + "]"
}
