package core_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/core/queue"
	"github.com/routerd/routerd/core/reserve"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/plugins/abi"
)

// TestR8_TheWholeCoreEqualsTheModel runs random sequences of all that may be done
// to a core, on the time of a bubble, and compares it with a model after each
// step. A gate stops the policy, so that decisions are made void by what happens
// meanwhile.
func TestR8_TheWholeCoreEqualsTheModel(t *testing.T) {
	for name, value := range map[string]int{"rapid.checks": modelSequences, "rapid.seed": modelSeed} {
		if f := flag.Lookup(name); f.Value.String() == f.DefValue {
			setFlag(t, name, strconv.Itoa(value))
		}
	}
	setFlag(t, "rapid.nofailfile", "true")
	met := map[string]int{}
	rapid.Check(t, func(rt *rapid.T) {
		kind := modelKind{
			queued: rapid.IntRange(0, 3).Draw(rt, "queued") > 0, soft: rapid.IntRange(0, 5).Draw(rt, "soft") == 0,
			small: rapid.IntRange(0, 7).Draw(rt, "small") == 0,
		}
		script := drawnScript(rt)
		var failed error
		rapid.SyncTest(rt, func(*rapid.T) {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			m := newWholeModel(ctx, t, kind, met)
			failed = m.run(script)
		})
		if failed != nil {
			text := ""
			for _, s := range script {
				text += s.GoString()
			}
			rt.Fatalf("%+v: %v; the sequence:%s", kind, failed, text)
		}
	})
	for _, what := range []string{
		"conflict met at a commit", "turn", "fallback", "by session", "by pin", "waited", "withdrawn", "expired", "booked in two steps", "moved by a reservation", "reserved beside its session", "moved session", "session of a reservation has moved",
		"queue_full", "queue_timeout", "cancelled", "conflict", "session_bound", "no_workers", "workers_ejected", "no_candidates", "pin_unknown", "pin_not_allowed", "model_not_found", "not_found",
	} {
		if met[what] == 0 {
			t.Errorf("no sequence has met %q: %v", what, met)
		}
	}
	t.Logf("met: %v", met)
}

func setFlag(t *testing.T, name, value string) {
	t.Helper()
	old := flag.Lookup(name).Value.String()
	if err := flag.Set(name, value); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := flag.Set(name, old); err != nil {
			t.Error(err)
		}
	})
}

const (
	modelExpiry  = 8 * time.Second
	modelIdle    = 4 * time.Second // of sessions
	modelPending = 3 * time.Second
)

// modelKind says what a sequence's core is like: requests wait, sessions are
// advice, the table of sessions is full soon.
type modelKind struct{ queued, soft, small bool }

// exact tells whether the model knows each session's binding.
func (k modelKind) exact() bool { return !k.soft && !k.small }

func (k modelKind) config(c *core.Config) {
	c.DecisionEntries, c.Expiry, c.Pending.TTL = 4, modelExpiry, modelPending
	c.Affinity.TTL, c.Affinity.Soft = modelIdle, k.soft
	if k.small {
		c.Affinity.Entries = 2
	}
	if k.queued {
		c.Queue.RefreshAfter = 1 // always
		c.Queue.Classes = []queue.Class{
			{Name: "default", Weight: 1, Order: queue.FCFS, Busy: queue.Busy{ActiveRequests: 2}, Limits: queue.Limits{Requests: 2, Tokens: -1, CachedTokens: -1}, Timeout: 3 * time.Second},
			{Name: "batch", Weight: 3, Order: queue.WSPT, Busy: queue.Busy{PrefillTokens: 40}, Limits: queue.Limits{Requests: -1, Tokens: -1, CachedTokens: -1}, Timeout: 7 * time.Second},
			{Name: "free", Weight: 1, Order: queue.FCFS, Limits: queue.Limits{Requests: 1, Tokens: -1, CachedTokens: -1}, Timeout: time.Second},
		}
	}
}

// classOf is the class's time limit and how many may wait for each worker; 0 is
// no limit.
func (k modelKind) classOf(name string) (timeout time.Duration, requests int) {
	if !k.queued {
		return time.Minute, 256
	}
	switch name {
	case "batch":
		return 7 * time.Second, 0
	case "free":
		return time.Second, 1
	}
	return 3 * time.Second, 2
}

func (k modelKind) className(name string) string {
	if !k.queued {
		return "default"
	}
	return name
}

// modelGate stops policy calls while it is shut.
type modelGate struct {
	mu     sync.Mutex
	shut   chan struct{} // nil while it is open
	inside int
}

func (g *modelGate) pass(ctx context.Context) error {
	g.mu.Lock()
	shut := g.shut
	if shut == nil {
		g.mu.Unlock()
		return nil
	}
	g.inside++
	g.mu.Unlock()
	var err error
	select {
	case <-shut:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	g.mu.Lock()
	g.inside--
	g.mu.Unlock()
	return err
}

// turn shuts the gate, or opens it.
func (g *modelGate) turn() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut != nil {
		close(g.shut)
		g.shut = nil
		return
	}
	g.shut = make(chan struct{})
}

func (g *modelGate) stopped() (shut bool, inside int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.shut != nil, g.inside
}

// flight is a request that has not been answered, or not yet looked at.
type flight struct {
	number    int
	ask       modelAsk
	part, id  string
	cancel    context.CancelFunc
	cancelled bool
	started   time.Time
	want      string          // what it must come to; empty when that is open
	could     map[string]bool // ranks that might have served it lately
	bound     string          // the rank that its session was bound to when it began
	waited    bool            // it was waiting at the last quiet point
	unsteered bool            // it goes its own way, whatever its session
	stale     bool            // more was cached since it began
	strays    bool            // as unsteered, if it has looked at its session while the worker there lacked what it needs
	passed    bool            // a reservation may have bound its session while it decided for that

	sel *core.Selection
	err error
	at  time.Time
}

// takes tells whether the request takes its session's binding.
func (f *flight) takes() bool {
	return f.ask.session != "" && f.ask.kind == core.Book && f.ask.pin == ""
}

func (f *flight) follows() bool { return f.sel != nil && f.sel.By == policy.BySession }

type wholeModel struct {
	*world
	//nolint:containedctx // the sequence's own, which all steps share
	ctx     context.Context
	kind    modelKind
	met     map[string]int
	gate    *modelGate
	workers map[string]*modelWorker
	parts   map[string]map[string]*modelBinding // by partition and session
	held    map[string]*heldBooking             // by id
	blocks  map[string]map[string]*modelBlock   // by rank and prefix
	pending map[reserve.PendingKey]*modelChoice
	stored  map[string]bool // rank and prefix

	began       time.Time
	opened      bool // the gate was, or shut, in this step
	generations uint64
	ids, asked  int
	steps       int
	flying      []*flight
	full        map[string]int // by partition and class: the most that waited, or tried to, since the last quiet point

	mu      sync.Mutex // guards answers
	answers []*flight
}

func newWholeModel(ctx context.Context, t *testing.T, kind modelKind, met map[string]int) *wholeModel {
	m := &wholeModel{
		ctx: ctx, kind: kind, met: met, gate: &modelGate{}, workers: map[string]*modelWorker{}, parts: map[string]map[string]*modelBinding{},
		held: map[string]*heldBooking{}, blocks: map[string]map[string]*modelBlock{}, pending: map[reserve.PendingKey]*modelChoice{}, stored: map[string]bool{},
		full: map[string]int{}, began: time.Now(),
	}
	s := &stage{score: func(ctx context.Context, tb *policy.Table, scores []float64) error {
		if err := m.gate.pass(ctx); err != nil {
			return err
		}
		if tb.Seed&1 == 1 { // keen on the first row
			scores[0] = 1
			return nil
		}
		for i, active := range tb.Column(abi.ColLoadActiveRequests) {
			scores[i] = -active
		}
		return nil
	}}
	s.columns.AddStd(abi.ColLoadActiveRequests)
	m.world = newWorld(t, use("module:m"), stages{s}, kind.config)
	return m
}

// run makes all steps and, whatever comes of them, leaves nobody waiting.
func (m *wholeModel) run(script []modelStep) (err error) {
	for i, s := range script {
		if err = m.step(s); err != nil {
			err = fmt.Errorf("step %d, %s: %w", i+1, s, err)
			break
		}
	}
	if shut, _ := m.gate.stopped(); shut {
		m.gate.turn()
		m.opened = true
	}
	if err == nil {
		synctest.Wait()
		if err = m.look(); err != nil {
			err = fmt.Errorf("gate opened at the end: %w", err)
		}
	}
	for err == nil && len(m.flying) > 0 { // one by one: what one gives up may let another go
		f := m.flying[0]
		f.cancelled = true
		f.cancel()
		synctest.Wait()
		if err = m.look(); err != nil {
			err = fmt.Errorf("cancelled at the end: %w", err)
		}
	}
	for _, f := range m.flying {
		f.cancel()
	}
	synctest.Wait()
	if err == nil {
		err = m.finish()
	}
	m.count()
	return err
}

// finish ends all that is held: nothing may be left.
func (m *wholeModel) finish() error {
	if err := m.look(); err != nil {
		return fmt.Errorf("all cancelled: %w", err)
	}
	for _, id := range slices.Sorted(maps.Keys(m.held)) {
		if err := m.free(id, reserve.Completed); err != nil {
			return err
		}
	}
	<-time.After(modelIdle + modelExpiry)
	m.Tick(time.Now())
	st := m.Stats()
	if st.Reservations != 0 || st.Pending != 0 || st.PendingBytes != 0 || m.active() != 0 {
		return fmt.Errorf("left at the end: %+v, %d bookings", st, m.active())
	}
	for name, l := range m.loads() {
		if l != (core.LoadView{}) {
			return fmt.Errorf("left at the end on %s: %+v", name, l)
		}
	}
	for _, p := range st.Partitions {
		s, waiting := p.Sessions, 0
		for _, c := range p.Queue {
			waiting += c.Requests
		}
		if waiting != 0 || m.Granted(p.Key) != 0 || s.Bound != 0 || s.Initialising != 0 || s.Leases != 0 {
			return fmt.Errorf("left at the end: %+v", p)
		}
	}
	return nil
}

// count notes what the sequence has met.
func (m *wholeModel) count() {
	for _, e := range m.heard.decided {
		m.met["conflict met at a commit"] += e.Conflicts
		if e.Turn {
			m.met["turn"]++
		}
		if e.By != "" {
			m.met["by "+string(e.By)]++
		}
		if e.By == policy.ByFallback {
			m.met["fallback"]++
		}
	}
}

// step makes one step and compares.
func (m *wholeModel) step(s modelStep) error {
	m.opened = false
	m.steps++
	m.note()
	now := time.Now()
	w, id := m.workers[s.worker], fleet.IDFromName(s.worker)
	var err error
	switch s.op {
	case "put":
		err = m.put(s.worker, s.part, s.number%2+1, func(w *modelWorker) { w.adapter = s.number%3 == 0 })
	case "delete":
		err = m.remove(s.worker)
	case "update":
		if w != nil {
			err = m.put(s.worker, w.part, w.ranks, func(w *modelWorker) { w.label, w.adapter = s.number, s.number%2 == 0 })
		}
	case "lifecycle":
		if w != nil {
			w.state = s.state
			err = m.SetLifecycle(id, s.state, nil)
		}
	case "inhibit":
		if w != nil {
			w.inhibit(now)
		}
		m.Inhibit(id)
		m.tick()
	case "refuse":
		if w != nil {
			w.refusedUntil = now.Add(s.wait)
		}
		m.Refused(id, s.wait)
		m.tick()
	case "reached":
		if w != nil && w.inhibition > 0 {
			w.inhibited, w.inhibition = time.Time{}, 0
		}
		m.Reached(id)
		m.tick()
	case "store":
		for _, f := range m.flying {
			f.stale = true
		}
		for r := range 2 {
			m.cache.store(fleet.Worker{ID: id, Rank: uint32(r)}, promptOf(s.ask.letters, 0), 16)
			for i := range s.ask.letters {
				m.stored[rankName(s.worker, uint32(r))+" "+s.ask.letters[:i+1]] = true
			}
		}
	case "gate", "round":
		m.opened = true
		if shut, _ := m.gate.stopped(); shut && s.op == "round" {
			m.gate.turn() // for those who are there
		}
		m.gate.turn()
	case "select":
		err = m.selects(s)
	case "reserve":
		err = m.reserves(s)
	case "cancel":
		if n := len(m.flying); n > 0 {
			f := m.flying[s.number%n]
			f.cancelled = true
			f.cancel()
		}
	case "advance":
		<-time.After(s.wait)
		synctest.Wait()
		if err = m.collect(); err == nil {
			m.tick()
		}
	case "free", "prefill", "output":
		err = m.event(s)
	}
	if err != nil {
		return err
	}
	synctest.Wait()
	return m.look()
}

// tick lets the core see that time has passed.
func (m *wholeModel) tick() {
	now := time.Now()
	n := 0
	for _, b := range m.held {
		if !b.expires.IsZero() && !b.expires.After(now) {
			m.drop(b, now)
			n++
		}
	}
	maps.DeleteFunc(m.pending, func(_ reserve.PendingKey, c *modelChoice) bool { return !now.Before(c.expires) })
	m.met["expired"] += n
	if got := m.Tick(now); got != n {
		m.met["expired"] = -1 << 30 // and look finds it in the loads
	}
}

// event is something that happens to a reservation, by its id.
func (m *wholeModel) event(s modelStep) error {
	id := "nobody's"
	if ids := slices.Sorted(maps.Keys(m.held)); len(ids) > 0 && s.number != 0 {
		id = ids[s.number%len(ids)]
	}
	b := m.held[id]
	var err error
	switch s.op {
	case "free":
		return m.free(id, endings(s.number))
	case "prefill":
		if err = m.PrefillComplete(id); b != nil {
			b.prefill = 0
		}
	case "output":
		n, fraction := s.number%4, []*float64{nil, new(0.0), new(0.25), new(1.0), new(1.5), new(-1.0)}[s.number%6]
		err = m.OutputBlock(id, n, fraction)
		if b != nil && fraction != nil && (*fraction > 1 || *fraction < 0) {
			return wantCode(err, core.CodeInvalid)
		}
		if b != nil {
			b.own += int64(n)
			b.weight += int64(n) * wholeBlock
			if fraction != nil {
				m.decay(b, *fraction)
			}
		}
	}
	if b == nil {
		m.met["not_found"]++
		return wantCode(err, core.CodeNotFound)
	}
	return err
}

func (m *wholeModel) free(id string, kind reserve.Kind) error {
	err := m.Free(id, reserve.Outcome{Kind: kind})
	b := m.held[id]
	if b == nil {
		return wantCode(err, core.CodeNotFound)
	}
	m.drop(b, time.Now())
	return err
}

func wantCode(err error, code core.Code) error {
	if e, ok := errors.AsType[*core.Error](err); ok && e.Code == code {
		return nil
	}
	return fmt.Errorf("got %w; want %s", cmpErr(err), code)
}

func cmpErr(err error) error {
	if err == nil {
		return errors.New("no error")
	}
	return err
}
