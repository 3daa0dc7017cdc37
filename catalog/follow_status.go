package catalog

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// SourceStatus is how a followed source stands.
type SourceStatus struct {
	Name string `json:"name"`
	// Workers is the length of the last list that was taken.
	Workers int `json:"workers"`
	// Up is whether the source is watched; while it is not, its last list stays.
	Up bool `json:"up"`
	// Since is when Up became what it is.
	Since time.Time `json:"since"`
	// Err is why the source is lost, or why its last comparison could not be made;
	// empty when neither is so. It may name addresses of name servers and files.
	Err string `json:"err,omitempty"`
	// Refused is why the list that the source wants now is not taken; empty when it
	// is. It may name workers and their endpoints.
	Refused string `json:"refused,omitempty"`
}

// Sources follows sources for one Reconciler and tells how each stands. Safe for
// concurrent use. Locks: List.changing → follower.planning → Reconciler.planning;
// Sources.mu is taken last and held for no call.
type Sources struct {
	reconciler *Reconciler
	log        *slog.Logger

	mu        sync.Mutex // guards followers and the standing of each
	followers []*follower
}

// NewSources makes Sources that follow nothing yet.
func NewSources(r *Reconciler, log *slog.Logger) *Sources {
	return &Sources{reconciler: r, log: log}
}

// Status lists the followed sources by name.
func (s *Sources) Status() []SourceStatus {
	all := s.standings()
	out := make([]SourceStatus, len(all))
	for i, st := range all {
		out[i] = st.status
	}
	return out
}

func (s *Sources) standings() []standing {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]standing, len(s.followers))
	for i, f := range s.followers {
		out[i] = f.standing
	}
	return out
}

func (s *Sources) add(f *follower) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, found := slices.BinarySearchFunc(s.followers, f.src.Name(), func(o *follower, name string) int { return cmp.Compare(o.src.Name(), name) })
	if found {
		return fmt.Errorf("follow source %q: it is followed already", f.src.Name())
	}
	f.status = SourceStatus{Name: f.src.Name(), Since: time.Now()}
	s.followers = slices.Insert(s.followers, at, f)
	return nil
}

func (s *Sources) remove(f *follower) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.followers = slices.DeleteFunc(s.followers, func(o *follower) bool { return o == f })
}

// standing is what is shown and counted of a follower.
type standing struct {
	status           SourceStatus
	refusals, losses uint64
}

// stands notes that Watch gave a list.
func (f *follower) stands() {
	f.sources.mu.Lock()
	back := !f.status.Up && f.losses > 0
	if !f.status.Up {
		f.status.Up, f.status.Since = true, time.Now()
	}
	f.status.Err = ""
	f.sources.mu.Unlock()
	if back {
		f.log.Info("source is back")
	}
}

// lost notes that Watch ended. It is told when the source stood before, or for
// another reason than before.
func (f *follower) lost(err error) {
	f.sources.mu.Lock()
	was := f.status
	if f.status.Up || f.losses == 0 {
		f.losses++
		f.status.Up, f.status.Since = false, time.Now()
	}
	f.status.Err = err.Error()
	f.sources.mu.Unlock()
	if was.Up || was.Err != err.Error() {
		f.log.Warn("source lost; its last workers stay", "workers", was.Workers, "err", err)
	}
}

// compared notes how reading the whole list ended.
func (f *follower) compared(err error) {
	f.sources.mu.Lock()
	was := f.status
	switch {
	case err != nil:
		f.status.Err = err.Error()
	case f.status.Up:
		f.status.Err = ""
	}
	f.sources.mu.Unlock()
	if err != nil && was.Up && was.Err != err.Error() {
		f.log.Warn("source not compared; its last workers stay", "err", err)
	}
}

// took notes that a list of so many workers stands. Where it is another list than
// before, sources whose list was refused look again: what it held may have stood in
// their way.
func (f *follower) took(workers int, other bool) {
	var refused []*follower
	f.sources.mu.Lock()
	f.status.Workers, f.status.Refused = workers, ""
	for _, o := range f.sources.followers {
		if other && o.status.Refused != "" {
			refused = append(refused, o)
		}
	}
	f.sources.mu.Unlock()
	for _, o := range refused {
		select {
		case o.again <- struct{}{}:
		default: // it is told already
		}
	}
}

// refusedFor notes why a list is not taken. again tells that it is the list that
// was refused before.
func (f *follower) refusedFor(err error, again bool) {
	f.sources.mu.Lock()
	told := again && f.status.Refused == err.Error()
	if !told {
		f.refusals++
	}
	f.status.Refused = err.Error()
	f.sources.mu.Unlock()
	if !told {
		f.log.Error("list of workers refused; the one before stays", "err", err)
	}
}
