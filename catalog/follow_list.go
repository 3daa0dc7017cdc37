package catalog

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/routerd/routerd/fleet"
)

// List is a Source whose list is set from inside: workers of the configuration,
// or the base of a source with an API of its own. Set hands the list over before it
// returns, so that its caller learns of a refusal. One Watch at a time.
type List struct {
	name string

	changing sync.Mutex // held while a list is handed over; guards the fields below
	records  []fleet.Record
	give     func([]fleet.Record) error // nil while nobody watches
}

var _ Source = (*List)(nil)

// NewList makes a List. records is not changed and must not be changed any more.
func NewList(name string, records []fleet.Record) *List {
	return &List{name: name, records: records}
}

// Name implements Source.
func (l *List) Name() string { return l.name }

// Set makes records the list; they must not be changed any more. While somebody
// watches, the list is handed over first: an error is its refusal, and the list
// before stays. Lists are handed over in the order of the calls.
func (l *List) Set(records []fleet.Record) error {
	l.changing.Lock()
	defer l.changing.Unlock()
	if l.give != nil {
		if err := l.give(slices.Clone(records)); err != nil {
			return err
		}
	}
	l.records = records
	return nil
}

// Watch implements Source. It is an error to watch a List that is watched. give
// must not call Set or List.
func (l *List) Watch(ctx context.Context, give func([]fleet.Record) error) error {
	if err := l.begin(give); err != nil {
		return err
	}
	<-ctx.Done()
	l.changing.Lock()
	defer l.changing.Unlock()
	l.give = nil
	return nil
}

func (l *List) begin(give func([]fleet.Record) error) error {
	l.changing.Lock()
	defer l.changing.Unlock()
	if l.give != nil {
		return fmt.Errorf("watch workers of source %s: they are watched already", l.name)
	}
	l.give = give
	_ = give(slices.Clone(l.records)) // whoever watches shows a refusal; the next list may be taken
	return nil
}

// List implements Source. It waits for a list that is being handed over.
func (l *List) List(context.Context) ([]fleet.Record, error) {
	l.changing.Lock()
	defer l.changing.Unlock()
	return slices.Clone(l.records), nil
}
