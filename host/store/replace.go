package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/routerd/routerd/internal/durable"
)

// pendingFile holds a set that is being applied.
const pendingFile = "pending.json"

// pending is what pendingFile says: all names of a source.
type pending struct {
	Source string   `json:"source"`
	Set    []Module `json:"set"`
}

// Entry is a name of a set.
type Entry struct {
	Name  string
	Bytes *Staged // nil: the name stays as it is
}

// Change is what Replace did; each list is in order.
type Change struct {
	Set     []string // names that are new or have other bytes
	Removed []string // names that are gone
	Kept    []string // names that are not in the set and stay: a policy revision needs them
}

// Replace makes the names of the module directory those of a set, all or none,
// also when the process ends in between. A name of another source is ErrOwned.
// A name that the set does not have stays while its bytes are pinned, and until
// Sweep after Hold.
func (s *Store) Replace(set []Entry) (Change, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next, change, err := s.plan(set)
	if err != nil {
		return Change{}, fmt.Errorf("apply module set: %w", err)
	}
	if len(change.Set)+len(change.Removed) == 0 {
		return change, nil
	}
	p := pending{Source: SourceDir, Set: slices.SortedFunc(maps.Values(next), byName)}
	if err := s.begin(set, p); err != nil {
		for _, e := range set {
			if e.Bytes != nil {
				s.collect(e.Bytes.Digest)
			}
		}
		return Change{}, fmt.Errorf("apply module set: %w", err)
	}
	old := maps.Clone(s.names)
	if err := s.finish(p); err != nil {
		return change, fmt.Errorf("apply module set: it is in force, its names are written at the next start: %w", err)
	}
	for _, name := range slices.Concat(change.Set, change.Removed) {
		if m, ok := old[name]; ok {
			s.collect(m.Digest)
		}
	}
	return change, nil
}

// begin moves the bytes in and writes down what is meant: from then on p is what
// counts. s.mu is held.
func (s *Store) begin(set []Entry, p pending) error {
	for _, e := range set {
		if e.Bytes == nil {
			continue
		}
		if err := s.moveIn(e.Bytes); err != nil {
			return err
		}
	}
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return durable.WriteFile(s.path(pendingFile), text, 0o600)
}

// plan works out the directory's names after a set. s.mu is held.
func (s *Store) plan(set []Entry) (next map[string]Module, c Change, err error) {
	next = map[string]Module{}
	for _, e := range set {
		m, had := s.names[e.Name]
		switch {
		case CheckName(e.Name) != nil:
			return nil, c, CheckName(e.Name)
		case had && m.Source != SourceDir:
			return nil, c, owned(m)
		case e.Bytes == nil && !had:
			return nil, c, fmt.Errorf("module %q: %w", e.Name, ErrNotFound)
		case e.Bytes != nil && (!had || m.Digest != e.Bytes.Digest):
			m = Module{Name: e.Name, Digest: e.Bytes.Digest, Size: e.Bytes.Size, At: time.Now().UTC(), Source: SourceDir}
			c.Set = append(c.Set, e.Name)
		}
		next[e.Name] = m
	}
	for _, name := range slices.Sorted(maps.Keys(s.names)) {
		m := s.names[name]
		if _, stays := next[name]; stays || m.Source != SourceDir {
			continue
		}
		if s.held || len(s.pins[m.Digest]) > 0 {
			next[name] = m
			c.Kept = append(c.Kept, name)
			continue
		}
		c.Removed = append(c.Removed, name)
	}
	slices.Sort(c.Set)
	return next, c, nil
}

// finish makes names and their files what p says, then forgets p. s.mu is held,
// or s is not yet shared.
func (s *Store) finish(p pending) error {
	var errs []error
	wanted := map[string]bool{}
	for _, m := range p.Set {
		if have, ok := s.names[m.Name]; ok && have.Source != p.Source {
			continue // somebody else's since
		}
		wanted[m.Name] = true
		if s.names[m.Name] != m {
			errs = append(errs, s.writeName(m))
		}
		s.names[m.Name] = m
	}
	for name, m := range s.names {
		if m.Source == p.Source && !wanted[name] {
			delete(s.names, name)
			errs = append(errs, durable.Remove(s.path("names", name)))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return durable.Remove(s.path(pendingFile))
}

// resume finishes what the end of the process cut off.
func (s *Store) resume() error {
	text, err := os.ReadFile(s.path(pendingFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var p pending
	if err := json.Unmarshal(text, &p); err != nil {
		return fmt.Errorf("read %s: %w", pendingFile, err)
	}
	for _, m := range p.Set {
		if CheckName(m.Name) != nil || !s.Has(m.Digest) {
			return fmt.Errorf("read %s: module %q: %w", pendingFile, m.Name, ErrNotFound)
		}
	}
	return s.finish(p)
}

// Adopt makes the names of the module directory names that were put: there is
// no directory any more.
func (s *Store) Adopt() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, m := range s.names {
		if m.Source != SourceDir {
			continue
		}
		m.Source = SourceAPI
		if err := s.writeName(m); err != nil {
			return fmt.Errorf("adopt module %q: %w", name, err)
		}
		s.names[name] = m
	}
	return nil
}

func byName(a, b Module) int { return strings.Compare(a.Name, b.Name) }
