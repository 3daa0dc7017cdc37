package filewatch

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"
)

const (
	defaultDebounce = 200 * time.Millisecond
	defaultPoll     = 30 * time.Second

	// maxLooks at files that differ from look to look; then they are told of as
	// they are.
	maxLooks = 25
)

// Options sets a Watcher up. The zero value is usable.
type Options struct {
	// Debounce is how far apart two looks are, and how long a change must have
	// stayed as it is; 0 is 200 ms.
	Debounce time.Duration
	// Poll is the interval of the comparisons without a hint; 0 is 30 s.
	Poll time.Duration
	// Known is what the caller has read: other contents are a change, also those
	// of the first look. Contents of a file that is not in it are one too.
	Known Seen
	// Log gets a warning when a file cannot be read, once for each reason; nil
	// for none.
	Log *slog.Logger
}

// Watcher tells of files that have changed. All methods but Run, which runs once,
// are safe for concurrent use.
type Watcher struct {
	debounce, poll time.Duration
	log            *slog.Logger
	again          chan struct{} // capacity 1: the files to watch are others

	mu    sync.Mutex // guards all below
	paths []string
	known map[string]sum
}

// New makes a Watcher of files. It reads nothing yet.
func New(paths []string, o Options) *Watcher {
	w := &Watcher{
		debounce: o.Debounce, poll: o.Poll, log: o.Log,
		again: make(chan struct{}, 1),
		paths: slices.Clone(paths), known: maps.Clone(o.Known.sums),
	}
	if w.debounce <= 0 {
		w.debounce = defaultDebounce
	}
	if w.poll <= 0 {
		w.poll = defaultPoll
	}
	if w.log == nil {
		w.log = slog.New(slog.DiscardHandler)
	}
	if w.known == nil {
		w.known = map[string]sum{}
	}
	return w
}

// Mark notes what the files hold now as known. Who is about to read them calls it
// first: what is written from then on is a change.
func (w *Watcher) Mark() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.known = Look(w.paths...).sums
}

// Follow watches other files from now on. What those that are new hold now is
// known; of the others, that stays as it is.
func (w *Watcher) Follow(paths ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	known := map[string]sum{}
	for _, p := range paths {
		seen := w.known
		if !slices.Contains(w.paths, p) {
			seen = Look(p).sums
		}
		if s, ok := seen[p]; ok {
			known[p] = s
		}
	}
	w.paths, w.known = slices.Clone(paths), known
	select {
	case w.again <- struct{}{}:
	default:
	}
}

// Run calls changed after each change until ctx ends, which is no error. While
// changed runs nothing is looked at; what happens meanwhile is seen afterwards.
func (w *Watcher) Run(ctx context.Context, changed func()) error {
	h := newHints(w.log)
	defer h.close()
	poll := time.NewTicker(w.poll)
	defer poll.Stop()
	next := time.NewTimer(0)
	defer next.Stop()
	due, last := true, time.Now()
	l := looks{w: w, said: map[string]string{}}
	for {
		hint := false
		select {
		case <-ctx.Done():
			return nil
		case e := <-h.events():
			hint = h.concerns(e)
		case err := <-h.lost():
			w.log.Debug("hints of changed files were lost", "err", err)
			hint = true
		case <-poll.C:
			hint = true
		case <-w.again:
			hint = true
		case <-next.C:
			h.watch(w.files())
			due, last = false, time.Now()
			if l.look() {
				changed()
			}
			hint = l.unsettled()
		}
		if hint && !due {
			due = true
			next.Reset(max(0, w.debounce-time.Since(last)))
		}
	}
}

func (w *Watcher) files() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.paths // never changed, only replaced
}

// looks follows a change until it has settled. Owned by Run.
type looks struct {
	w       *Watcher
	pending map[string]sum    // what the last look saw that was not known; nil for nothing
	count   int               // of looks that saw different things
	said    map[string]string // why a file cannot be read, as logged, by path
}

// unsettled tells whether another look is needed.
func (l *looks) unsettled() bool { return l.pending != nil }

// look tells whether a change has settled, which is then known.
func (l *looks) look() bool {
	now, wrong := map[string]sum{}, map[string]error{}
	for _, p := range l.w.files() {
		s, err := sumOf(p)
		if err != nil {
			wrong[p] = err
			continue
		}
		now[p] = s
	}
	l.tell(wrong)

	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	maps.DeleteFunc(now, func(p string, _ sum) bool { return !slices.Contains(l.w.paths, p) })
	if !differs(now, l.w.known) {
		l.pending, l.count = nil, 0
		return false
	}
	if l.count++; !maps.Equal(now, l.pending) && l.count < maxLooks {
		l.pending = now
		return false
	}
	l.pending, l.count = nil, 0
	maps.Copy(l.w.known, now)
	return true
}

func differs(now, known map[string]sum) bool {
	for p, s := range now {
		if was, ok := known[p]; !ok || was != s {
			return true
		}
	}
	return false
}

// tell warns of files that cannot be read, when that is new.
func (l *looks) tell(wrong map[string]error) {
	for p := range l.said {
		if wrong[p] == nil {
			delete(l.said, p)
		}
	}
	for p, err := range wrong {
		if reason := err.Error(); l.said[p] != reason {
			l.said[p] = reason
			l.w.log.Warn("watched file cannot be read: what was read last stays", "path", p, "err", reason)
		}
	}
}
