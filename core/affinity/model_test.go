package affinity_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/routerd/routerd/core/affinity"
	"github.com/routerd/routerd/fleet"
)

const (
	modelEntries = 3
	modelIDs     = 5
)

// TestRandomStepsEqualAPlainModel runs random holds, leases, events, drops and
// waits against a model that keeps each session's life in the plainest way. A
// failure prints the steps.
func TestRandomStepsEqualAPlainModel(t *testing.T) {
	for seed := range uint64(1200) {
		m := &model{
			rng: rand.New(rand.NewPCG(seed, 5)), tab: newTable(modelEntries), now: start,
			lives: map[string]*life{},
		}
		for range 60 {
			if err := m.step(); err != nil {
				t.Fatalf("seed %d: %v; the steps:\n%s", seed, err, strings.Join(m.log, "\n"))
			}
		}
		if err := m.finish(); err != nil {
			t.Fatalf("seed %d: %v; the steps:\n%s", seed, err, strings.Join(m.log, "\n"))
		}
	}
}

// life is a session from its first hold to its expiry, drop or failure.
type life struct {
	bound   bool
	target  affinity.Target
	changes int // of the target
	version affinity.Version
	turns   uint64
	holders map[*share]bool // a lease each
	until   time.Time
	expired bool
}

// share is a hold or a lease, as the table and as the model has it.
type share struct {
	id    string
	hold  affinity.Hold
	lease *affinity.Lease
	state affinity.State // of a hold
	of    *life
	seen  int // life.changes
}

type model struct {
	rng    *rand.Rand
	tab    *affinity.Table
	now    time.Time
	lives  map[string]*life
	holds  []*share
	leases []*share
	full   uint64
	log    []string
}

func (m *model) note(format string, args ...any) { m.log = append(m.log, fmt.Sprintf(format, args...)) }

// life is the session's, without one whose idle time has ended.
func (m *model) life(id string) *life {
	l := m.lives[id]
	if l != nil && l.bound && len(l.holders) == 0 && !m.now.Before(l.until) {
		delete(m.lives, id)
		l.expired = true
		return nil
	}
	return l
}

func (m *model) room() bool {
	n := 0
	for i := range modelIDs {
		if m.life(name(i)) != nil {
			n++
		}
	}
	return n < modelEntries
}

func (m *model) begin(id string) *life {
	if !m.room() {
		m.full++
		return nil
	}
	m.lives[id] = &life{holders: map[*share]bool{}}
	return m.lives[id]
}

// alive tells whether a share's life is still its session's.
func (m *model) alive(s *share) bool { return s.of != nil && m.lives[s.id] == s.of }

func (m *model) take(s *share) {
	l := m.life(s.id)
	s.of, s.state = l, affinity.Unpinned
	switch {
	case l == nil:
		if s.of = m.begin(s.id); s.of != nil {
			s.state = affinity.Initialising
		}
	case l.bound:
		s.state, s.seen = affinity.Bound, l.changes
		l.holders[s] = true
	default:
		s.state = affinity.Waiting
	}
}

func (m *model) leave(s *share) {
	if m.alive(s) && s.of.holders[s] {
		delete(s.of.holders, s)
		s.of.until = m.now.Add(ttl)
	}
}

func (m *model) commit(s *share, to affinity.Target) {
	if s.state == affinity.Unpinned {
		s.of = nil
		return
	}
	old := s.of
	l := m.life(s.id)
	if l == nil {
		if l = m.begin(s.id); l == nil {
			s.of = nil
			return
		}
	}
	if !l.bound || l == old && s.state == affinity.Bound && l.changes == s.seen && l.target != to {
		l.bound, l.target = true, to
		l.changes++
	}
	l.turns++
	l.holders[s] = true
	s.of, s.seen = l, l.changes
}

func (m *model) rebind(s *share) {
	if s.state != affinity.Bound {
		return
	}
	switch {
	case !m.alive(s):
		m.take(s)
	case s.of.changes != s.seen:
		s.seen = s.of.changes
	default:
		s.of = &life{holders: map[*share]bool{}, turns: s.of.turns}
		m.lives[s.id] = s.of
		s.state = affinity.Initialising
	}
}

func name(i int) string { return string(rune('a' + i)) }

// step does one thing to both, and compares.
func (m *model) step() error {
	id := name(m.rng.IntN(modelIDs))
	switch n := m.rng.IntN(100); {
	case n < 25:
		s := &share{id: id}
		m.note("take %s", id)
		s.hold = m.tab.Take(id, m.now)
		m.take(s)
		m.holds = append(m.holds, s)
	case n < 65 && len(m.holds) > 0:
		m.stepHold(m.rng.IntN(len(m.holds)))
	case n < 80 && len(m.leases) > 0:
		m.stepLease(m.rng.IntN(len(m.leases)))
	case n < 86:
		if err := m.stepEvent(id); err != nil {
			return err
		}
	case n < 89:
		m.stepDrop(target(fleet.WorkerID(1 + m.rng.IntN(3))))
	case n < 91:
		m.note("reap")
		m.tab.Reap(m.now)
		if got, want := m.tab.Stats().Bound, m.count(true); got != want {
			return fmt.Errorf("%d bound after the reaper; want %d", got, want)
		}
	default:
		d := time.Duration(m.rng.IntN(int(ttl)/4)) * time.Duration(1+m.rng.IntN(5))
		m.note("wait %s", d)
		m.now = m.now.Add(d)
	}
	return m.compare()
}

func (m *model) stepHold(i int) {
	s := m.holds[i]
	to := target(fleet.WorkerID(1 + m.rng.IntN(3)))
	if s.state == affinity.Bound && m.rng.IntN(2) == 0 {
		to = s.hold.Target()
	}
	n := m.rng.IntN(10)
	m.note("hold %d of %s, %s: %d to %v", i, s.id, s.state, n, to)
	if n < 3 {
		s.hold.Rebind(m.now)
		m.rebind(s)
		return
	}
	m.holds = append(m.holds[:i:i], m.holds[i+1:]...)
	if n < 6 {
		s.hold.Abandon(m.now)
		if s.state == affinity.Initialising && m.alive(s) && !s.of.bound {
			delete(m.lives, s.id)
		}
		m.leave(s)
		return
	}
	s.lease = s.hold.Commit(to, m.now)
	m.commit(s, to)
	m.leases = append(m.leases, s)
}

func (m *model) stepLease(i int) {
	s := m.leases[i]
	if m.rng.IntN(4) == 0 {
		to := target(fleet.WorkerID(1 + m.rng.IntN(3)))
		m.note("lease %d of %s moved to %v", i, s.id, to)
		s.lease.Moved(m.now, to)
		if m.alive(s) && s.of.holders[s] && s.of.changes == s.seen && s.of.target != to {
			s.of.target = to
			s.of.changes++
			s.seen = s.of.changes
		}
		return
	}
	m.note("release lease %d of %s", i, s.id)
	s.lease.Release(m.now)
	m.leave(s)
	if m.rng.IntN(2) == 0 { // else it is released again some time
		m.leases = append(m.leases[:i:i], m.leases[i+1:]...)
	}
}

func (m *model) stepEvent(id string) error {
	worker := fleet.WorkerID(1 + m.rng.IntN(3))
	v := affinity.Version{Sequence: uint64(m.now.UnixNano() + m.rng.Int64N(int64(4*ttl)) - int64(2*ttl)), Writer: 9}
	m.note("event: %s on %d, %v", id, worker, v)
	got := m.tab.Apply(event(id, worker, v), 1, m.now)
	var want affinity.Outcome
	l := m.life(id)
	newer := l != nil && v.Compare(l.version) > 0
	switch {
	case l == nil && !m.room():
		want = affinity.RejectedCapacity
	case l == nil:
		if want = affinity.Inserted; got == affinity.ReplacedExpired {
			want = got // who has expired and was not met is as good as absent
		}
		l = m.begin(id)
		l.bound, newer = true, true
	case !l.bound:
		want = affinity.IgnoredInitializing
	case l.target == target(worker):
		want = affinity.Refreshed
	case newer:
		want = affinity.ReplacedNewer
	default:
		want = affinity.IgnoredConflict
	}
	if got != want {
		return fmt.Errorf("event: %s; want %s", got, want)
	}
	switch want {
	case affinity.Inserted, affinity.ReplacedExpired, affinity.ReplacedNewer, affinity.Refreshed:
		if newer {
			l.version = v
		}
		if l.target != target(worker) {
			l.target = target(worker)
			l.changes++
		}
		l.until = m.now.Add(ttl)
	}
	return nil
}

func (m *model) stepDrop(gone affinity.Target) {
	m.note("drop %v", gone)
	m.tab.Drop(func(x affinity.Target) bool { return x == gone })
	for id, l := range m.lives {
		if l.bound && l.target == gone {
			delete(m.lives, id)
		}
	}
}

// count is the number of lives that are bound, or are not.
func (m *model) count(bound bool) (n int) {
	for i := range modelIDs {
		if l := m.life(name(i)); l != nil && l.bound == bound {
			n++
		}
	}
	return n
}

func (m *model) compare() error {
	leases := 0
	for i := range modelIDs {
		l := m.life(name(i))
		got, ok := m.tab.Lookup(name(i), m.now)
		switch {
		case ok != (l != nil && l.bound):
			return fmt.Errorf("session %s: bound %v", name(i), ok)
		case ok && got != l.target:
			return fmt.Errorf("session %s: on %v; want %v", name(i), got, l.target)
		case ok:
			leases += len(l.holders)
		}
	}
	for i, s := range m.holds {
		if s.hold.State() != s.state || s.state == affinity.Initialising && m.alive(s) && !s.of.bound && s.hold.Turn() != s.of.turns {
			return fmt.Errorf("hold %d of %s: %s, turn %d; want %s", i, s.id, s.hold.State(), s.hold.Turn(), s.state)
		}
	}
	for i, s := range m.leases {
		e, ok := s.lease.Event()
		alive := m.alive(s)
		if ok != alive && !(ok && s.of.expired) { // an expired binding tells until it is met
			return fmt.Errorf("lease %d of %s: an event: %v", i, s.id, ok)
		}
		if alive {
			s.of.version = e.Version // what the table made itself
		}
	}
	st := m.tab.Stats()
	if st.Leases != leases || st.Initialising != m.count(false) || st.Full != m.full || st.Bound < m.count(true) || st.Bound+st.Initialising > modelEntries {
		return fmt.Errorf("%+v; want %d leases, %d initialising, %d bound, %d full", st, leases, m.count(false), m.count(true), m.full)
	}
	return nil
}

// finish ends all holds and leases: nothing is left but idle bindings.
func (m *model) finish() error {
	for _, s := range m.holds {
		s.hold.Abandon(m.now)
	}
	for _, s := range m.leases {
		s.lease.Release(m.now)
	}
	if st := m.tab.Stats(); st.Leases != 0 || st.Initialising != 0 {
		return fmt.Errorf("at the end %+v", st)
	}
	m.now = m.now.Add(2 * ttl)
	m.tab.Reap(m.now)
	if st := m.tab.Stats(); st.Bound != 0 {
		return fmt.Errorf("after the reaper %+v", st)
	}
	return nil
}
