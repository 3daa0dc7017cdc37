package host

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// shared holds values that are made once per key, counted and closed with their
// last user. Safe for concurrent use; making one value delays no other key.
type shared[K comparable, V any] struct {
	mu      sync.Mutex // guards entries and their refs
	entries map[K]*sharedEntry[V]
	close   func(V) error
}

type sharedEntry[V any] struct {
	refs  int
	ready chan struct{} // closed when value and err are set
	value V
	err   error
	gone  bool // the maker's request ended before the value was made
}

func newShared[K comparable, V any](closeValue func(V) error) *shared[K, V] {
	return &shared[K, V]{entries: map[K]*sharedEntry[V]{}, close: closeValue}
}

// get returns the value of key with a reference, making it if there is none.
// Waiters share the maker's error, unless it was only the maker's request that
// ended.
func (s *shared[K, V]) get(ctx context.Context, key K, build func(context.Context) (V, error)) (V, error) {
	for {
		s.mu.Lock()
		e, ok := s.entries[key]
		if !ok {
			e = &sharedEntry[V]{ready: make(chan struct{})}
			s.entries[key] = e
		}
		e.refs++
		s.mu.Unlock()
		if !ok {
			return s.build(ctx, key, e, build)
		}
		select {
		case <-e.ready:
		case <-ctx.Done():
			var none V
			return none, errors.Join(fmt.Errorf("wait for a module that is being loaded: %w", context.Cause(ctx)), s.leave(key, e))
		}
		if !e.gone || ctx.Err() != nil {
			return e.value, e.err
		}
	}
}

func (s *shared[K, V]) build(ctx context.Context, key K, e *sharedEntry[V], build func(context.Context) (V, error)) (V, error) {
	v, err := contained("make", func() (V, error) { return build(ctx) })
	s.mu.Lock()
	e.value, e.err, e.gone = v, err, err != nil && ctx.Err() != nil
	if err != nil {
		delete(s.entries, key)
	}
	s.mu.Unlock()
	close(e.ready)
	return v, err
}

// retain takes one more reference to a value that the caller has one of.
func (s *shared[K, V]) retain(key K) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e, ok := s.entries[key]; ok {
		e.refs++
	}
}

// release gives a reference of get up; the last one closes the value.
func (s *shared[K, V]) release(key K) error {
	s.mu.Lock()
	e, ok := s.entries[key]
	s.mu.Unlock()
	if !ok {
		return nil
	}
	return s.leave(key, e)
}

// leave gives a reference to e up. While the value is in the making its maker
// holds one, so the last to leave finds it made.
func (s *shared[K, V]) leave(key K, e *sharedEntry[V]) error {
	s.mu.Lock()
	e.refs--
	last := e.refs == 0 && s.entries[key] == e
	if last {
		delete(s.entries, key)
	}
	s.mu.Unlock()
	if !last {
		return nil
	}
	return s.close(e.value)
}

// made lists the values that are there now. They may be closed meanwhile.
func (s *shared[K, V]) made() []V {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []V
	for _, e := range s.entries {
		select {
		case <-e.ready:
			if e.err == nil && !e.gone {
				out = append(out, e.value)
			}
		default:
		}
	}
	return out
}

func (s *shared[K, V]) len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.entries)
}

// contained calls f and makes an error of a panic in it: what is foreign goes
// through libraries that may have faults of their own, and no module may end the
// daemon with one.
func contained[V any](what string, f func() (V, error)) (v V, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%s: internal fault: %s", what, clip(fmt.Sprint(p), maxEngineText))
		}
	}()
	return f()
}
