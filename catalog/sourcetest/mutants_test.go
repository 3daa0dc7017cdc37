package sourcetest_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/routerd/routerd/catalog"
	"github.com/routerd/routerd/catalog/sourcetest"
	"github.com/routerd/routerd/fleet"
)

// board is a source that keeps the contract, but for its fault.
type board struct {
	fault string
	never chan struct{} // for goroutines that stay; closed at the end

	mu      sync.Mutex // guards the fields below
	list    []fleet.Record
	first   []fleet.Record
	broken  bool
	changed chan struct{} // closed with each change
}

var errLost = errors.New("the board is gone")

func (b *board) Name() string {
	if b.fault == "its name changes" {
		b.mu.Lock()
		defer b.mu.Unlock()
		return "board" + string(rune('a'+len(b.list)))
	}
	return "board"
}

func (b *board) change(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f()
	close(b.changed)
	b.changed = make(chan struct{})
}

func (b *board) set(list []fleet.Record) {
	b.change(func() {
		b.list = slices.Clone(list)
		if b.first == nil {
			b.first = b.list
		}
	})
}

func (b *board) look() (list []fleet.Record, broken bool, changed <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.list), b.broken, b.changed
}

func (b *board) List(context.Context) ([]fleet.Record, error) {
	list, broken, _ := b.look()
	switch {
	case broken && b.fault == "List tells of a lost place":
		return list, nil
	case broken:
		return nil, errLost
	case b.fault == "List is stale":
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.first, nil
	}
	return list, nil
}

func (b *board) Watch(ctx context.Context, give func([]fleet.Record) error) error {
	if b.fault == "it begins late" {
		_, _, changed := b.look()
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
	if b.fault == "a goroutine stays" {
		go func() { <-b.never }()
	}
	var last []fleet.Record
	for {
		list, broken, changed := b.look()
		if broken {
			switch b.fault {
			case "a loss is nil":
				return nil
			case "a loss is silent":
				<-ctx.Done()
				return nil
			case "a loss is an empty list":
				_ = give(nil)
			}
			return errLost
		}
		if err := b.hand(give, last, list); err != nil && b.fault == "a refusal ends it" {
			return err
		}
		last = list
		select {
		case <-ctx.Done():
			if b.fault == "the end of ctx is an error" {
				return ctx.Err()
			}
			if b.fault == "it does not end" {
				<-b.never
			}
			return nil
		case <-changed:
		}
	}
}

// hand gives the list, or what the fault makes of it.
func (b *board) hand(give func([]fleet.Record) error, last, list []fleet.Record) error {
	has := func(in []fleet.Record, rec fleet.Record) bool {
		return slices.ContainsFunc(in, func(o fleet.Record) bool { return o.Name == rec.Name })
	}
	switch b.fault {
	case "only what is new comes":
		list = slices.DeleteFunc(list, func(rec fleet.Record) bool { return has(last, rec) })
	case "nothing ever goes":
		for _, rec := range last {
			if !has(list, rec) {
				list = append(list, rec)
			}
		}
	case "an empty list is held back":
		if len(list) == 0 {
			return nil
		}
	case "of two that are one, the first comes":
		var once []fleet.Record
		for _, rec := range list {
			if !has(once, rec) {
				once = append(once, rec)
			}
		}
		list = once
	case "names are compared only":
		if last != nil && len(last) == len(list) && !slices.ContainsFunc(list, func(rec fleet.Record) bool { return !has(last, rec) }) {
			return nil
		}
	case "lists cross":
		go func() { _ = give(list) }()
		return nil
	}
	return give(list)
}

func bench(t *testing.T, fault string) func() sourcetest.Bench {
	never := make(chan struct{})
	t.Cleanup(func() { close(never) })
	return func() sourcetest.Bench {
		b := &board{fault: fault, never: never, changed: make(chan struct{})}
		patience := 150 * time.Millisecond
		if fault == "" {
			patience = 0
		}
		return sourcetest.Bench{
			Source: b, Set: b.set, Patience: patience,
			Break: func() { b.change(func() { b.broken = true }) },
			Mend:  func() { b.change(func() { b.broken = false }) },
		}
	}
}

var _ catalog.Source = (*board)(nil)

func TestASourceThatKeepsTheContractBreaksNoRule(t *testing.T) {
	sourcetest.Run(t, func(t *testing.T) sourcetest.Bench { return bench(t, "")() })
}

func TestASourceOfAPlaceThatHoldsLittleBreaksNoRule(t *testing.T) {
	sourcetest.Run(t, func(t *testing.T) sourcetest.Bench {
		b := bench(t, "")()
		b.Break, b.Mend, b.Unique, b.Bare = nil, nil, true, true
		return b
	})
}

// Each fault breaks the rule that is there for it, and each rule has a fault.
func TestEveryRuleBites(t *testing.T) {
	bitten := map[string]bool{}
	for _, c := range []struct{ fault, rule string }{
		{"it begins late", "the list comes at once"},
		{"its name changes", "the list comes at once"},
		{"only what is new comes", "each change comes as a whole list"},
		{"nothing ever goes", "each change comes as a whole list"},
		{"an empty list is held back", "an empty list is a list"},
		{"of two that are one, the first comes", "a worker that stands twice comes twice, and the list before stays"},
		{"a refusal ends it", "a refusal is not the end"},
		{"names are compared only", "a change of a label comes"},
		{"a loss is nil", "a lost place is an error and no list"},
		{"a loss is silent", "a lost place is an error and no list"},
		{"a loss is an empty list", "a lost place is an error and no list"},
		{"List tells of a lost place", "a lost place is an error and no list"},
		{"the end of ctx is an error", "the end of ctx is nil and leaves nothing"},
		{"it does not end", "the end of ctx is nil and leaves nothing"},
		{"a goroutine stays", "the end of ctx is nil and leaves nothing"},
		{"List is stale", "List is what Watch gave last"},
		{"lists cross", "lists come one at a time"},
	} {
		bitten[c.rule] = true
		t.Run(c.fault, func(t *testing.T) {
			if err := sourcetest.Broken(bench(t, c.fault), c.rule); err == nil {
				t.Errorf("the rule %q does not see it", c.rule)
			}
		})
	}
	for _, rule := range sourcetest.Rules() {
		if !bitten[rule] {
			t.Errorf("no fault for the rule %q", rule)
		}
	}
}
