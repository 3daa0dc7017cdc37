package core_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/core/reserve"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/kvcache"
)

// quiet tells whether nobody decides: all that are under way wait for something
// that is not there.
func (m *wholeModel) quiet() bool {
	_, inside := m.gate.stopped()
	return inside == 0
}

// note begins a step: what holds now may have decided what is answered in it.
func (m *wholeModel) note() {
	if m.quiet() {
		m.full = map[string]int{}
		for _, f := range m.flying {
			f.could = map[string]bool{}
			m.full[f.part+m.kind.className(f.ask.class)]++
		}
		for _, sessions := range m.parts {
			for _, e := range sessions {
				e.lost = false
			}
		}
	}
	m.remember()
}

// remember notes who may serve those that are under way, and which bindings they
// cannot use.
func (m *wholeModel) remember() {
	for _, f := range m.flying {
		rows, _ := m.eligible(f)
		for _, rank := range rows {
			f.could[rank] = true
		}
		if e := m.binding(f); e != nil && f.takes() {
			shut, _ := m.gate.stopped()
			e.lost, e.loose = e.lost || !m.usable(e, f), e.loose || shut
			f.strays = f.strays || m.usable(e, f) && !m.serves(e, f)
		}
	}
}

func (m *wholeModel) binding(f *flight) *modelBinding { return m.parts[f.part][f.ask.session] }

// selects sends one or several equal requests.
func (m *wholeModel) selects(s modelStep) error {
	a := s.ask
	id := ""
	switch {
	case a.id < 4 && m.ids > 0:
		id = fmt.Sprintf("r%d", a.id%m.ids+1)
	case a.id == 4:
	default:
		m.ids++
		id = fmt.Sprintf("r%d", m.ids)
	}
	for i := range a.times {
		if i > 0 && a.id > 6 { // else they have one id
			m.ids++
			id = fmt.Sprintf("r%d", m.ids)
		}
		if a.kind != core.Book && slices.ContainsFunc(m.flying, func(f *flight) bool { return f.id == id && f.ask.kind != core.Book }) {
			continue // which of them is kept is chance
		}
		m.asked++
		f := &flight{number: m.asked, ask: a, part: s.part, id: id, started: time.Now(), could: map[string]bool{}}
		if a.times == 1 && m.quiet() {
			if shut, _ := m.gate.stopped(); !shut {
				f.want = m.expect(f)
			}
		}
		if e := m.binding(f); e != nil && !m.kind.soft {
			f.bound = e.rank
			f.unsteered = f.takes() && m.usable(e, f) && !m.serves(e, f)
		}
		m.full[f.part+m.kind.className(a.class)]++
		m.flying = append(m.flying, f)
		m.send(f)
	}
	m.remember()
	return nil
}

func (m *wholeModel) send(f *flight) {
	a := &f.ask
	req := &core.Request{
		Kind: a.kind, SelectionID: f.id, Partition: model(f.part), Class: a.class, Adapter: a.adapter, Session: a.session,
		Arrival:  m.began.Add(time.Duration(f.number)), // on the bubble's time many would come at once
		Priority: a.priority, Leased: a.leased, Prompt: core.Prompt{Tokens: promptOf(a.letters, a.tail)}, Seed: new(uint64(2*f.number) + flagOf(a.keen)),
	}
	if a.pin != "" {
		req.Pin = &core.Pin{Name: a.pin}
		if a.rank >= 0 {
			req.Pin.Rank = new(uint32(a.rank))
		}
	}
	if a.allow != "" {
		req.Allow = []string{a.allow}
	}
	if a.again {
		req.Attempt = 1
	}
	if a.exclude != "" {
		req.Exclude = []fleet.Worker{{ID: fleet.IDFromName(a.exclude)}}
	}
	var ctx context.Context
	ctx, f.cancel = context.WithCancel(m.ctx)
	go func() {
		f.sel, f.err = m.Select(ctx, req)
		f.at = time.Now()
		m.mu.Lock()
		defer m.mu.Unlock()
		m.answers = append(m.answers, f)
	}()
}

func flagOf(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// expect is what a request must come to that is alone in its step: ok, wait or a
// code; empty where that depends on more than the model knows.
func (m *wholeModel) expect(f *flight) string {
	a := &f.ask
	sessions, known := m.parts[f.part]
	switch {
	case !known:
		return string(core.CodeModelNotFound)
	case a.kind == core.Book && f.id != "" && m.inUse(f.id):
		return string(core.CodeConflict)
	case a.session != "" && !m.kind.exact():
		return ""
	}
	var e *modelBinding
	if a.session != "" {
		e = sessions[a.session]
		if f.takes() && e == nil && m.initialised(f.part, a.session) {
			if slices.ContainsFunc(m.flying, func(g *flight) bool { return g.ask.session == a.session && g.ask.adapter != "" }) {
				return "" // that one may go its own way
			}
			return m.waitOr(f)
		}
	}
	rows, code := m.eligible(f)
	if code != "" {
		return string(code)
	}
	queues := a.kind != core.Advisory && !a.again
	if e != nil && a.pin == "" && slices.Contains(rows, e.rank) && (a.kind != core.Book || m.usable(e, f)) {
		switch {
		case !queues:
		case m.workers[workerOf(e.rank)].unreachable(time.Now()), m.workers[workerOf(e.rank)].refuses(time.Now()):
			return ""
		case m.busy(e.rank, a.class):
			return m.waitOr(f)
		case slices.ContainsFunc(m.flying, func(g *flight) bool { return g.part == f.part && g.ask.session == a.session && g != f }):
			return ""
		}
		return "ok"
	}
	if e != nil && a.kind == core.Book {
		w := m.workers[workerOf(e.rank)]
		switch {
		case a.pin != "" && !slices.Contains(rows, e.rank) && w.state == core.Ready && !w.unreachable(time.Now()) && w.name != a.exclude && m.serves(e, f):
			if queues && m.allBusy(f, rows) {
				return m.waitOr(f) // it is refused in its turn: until then the session may move
			}
			return string(core.CodeSessionBound)
		case a.pin == "" && m.usable(e, f) && a.allow != "" && a.allow != w.name:
			return string(core.CodeSessionBound)
		}
	}
	switch {
	case !queues:
		return "ok"
	case m.allBusy(f, rows):
		return m.waitOr(f)
	case m.kind.queued && a.class != "free" && slices.ContainsFunc(m.flying, func(g *flight) bool { return g.part == f.part && g.ask.class == a.class }):
		return "" // it may be behind others
	}
	return "ok"
}

func (m *wholeModel) inUse(id string) bool {
	return m.held[id] != nil || slices.ContainsFunc(m.flying, func(g *flight) bool { return g.id == id && g.ask.kind == core.Book })
}

// initialised tells whether somebody decides for a session.
func (m *wholeModel) initialised(part, session string) bool {
	return slices.ContainsFunc(m.flying, func(g *flight) bool { return g.part == part && g.ask.session == session && g.takes() })
}

// waitOr is wait, or that the class is full.
func (m *wholeModel) waitOr(f *flight) string {
	if limit := m.limit(f); limit > 0 && m.full[f.part+m.kind.className(f.ask.class)] >= limit {
		return string(core.CodeQueueFull)
	}
	return "wait"
}

// limit is how many requests of the class may wait; 0 is no limit.
func (m *wholeModel) limit(f *flight) int {
	ready := 0
	for _, w := range m.in(f.part) {
		if w.state == core.Ready {
			ready++
		}
	}
	_, each := m.kind.classOf(f.ask.class)
	return each * max(ready, 1)
}

// reserves books a selection, or a worker of the caller's choice.
func (m *wholeModel) reserves(s modelStep) error {
	a := &s.ask
	b := &core.Booking{SelectionID: fmt.Sprintf("r%d", a.id%(m.ids+1)+1), Partition: model(s.part), Leased: a.leased}
	m.ids = max(m.ids, a.id%(m.ids+1)+1)
	now, want := time.Now(), core.Code("")
	var c *modelChoice
	if a.explicit {
		w := m.workers[s.worker]
		b.Worker, b.Adapter, b.Session, b.Prompt = new(fleet.IDFromName(s.worker)), a.adapter, a.session, core.Prompt{Tokens: promptOf(a.letters, a.tail)}
		c = &modelChoice{part: s.part, worker: s.worker, session: a.session, adapter: a.adapter, demand: demanded(a, 0)}
		rank := uint32(max(a.rank, 0))
		if a.rank >= 0 {
			b.Rank = &rank
		}
		c.rank = rankName(s.worker, rank)
		if a.keen {
			b.Uncached = new(a.tokens() / 2)
			c.demand.prefill = int64(a.tokens() / 2)
		}
		switch {
		case m.parts[s.part] == nil:
			want = core.CodeModelNotFound
		case len(m.in(s.part)) == 0:
			want = core.CodeNoWorkers
		case w == nil || w.part != s.part:
			want = core.CodePinUnknown
		case a.rank >= w.ranks:
			want = core.CodePinUnknown
		default:
			c.generation = w.generation
		}
	} else {
		keys := slices.SortedFunc(maps.Keys(m.pending), func(a, b reserve.PendingKey) int {
			return strings.Compare(a.Partition.Model+a.ID, b.Partition.Model+b.ID)
		})
		if len(keys) > 0 && a.id > 3 {
			key := keys[a.id%len(keys)]
			b.SelectionID, b.Partition = key.ID, key.Partition
		}
		if c = m.pending[reserve.PendingKey{Partition: b.Partition, ID: b.SelectionID}]; c == nil || !now.Before(c.expires) {
			want = core.CodeNotFound
		}
	}
	if want == "" {
		want = m.mayReserve(b, c)
	}
	sel, err := m.Reserve(m.ctx, b)
	if want == "any" {
		want = codeOf(err)
	}
	if e, ok := errors.AsType[*core.Error](err); ok && e.Field == "session_id" {
		m.met["session of a reservation has moved"]++
		if !a.explicit {
			delete(m.pending, reserve.PendingKey{Partition: b.Partition, ID: b.SelectionID})
		}
	}
	m.met[string(want)]++
	if want != "" {
		return wantCode(err, want)
	}
	if err != nil {
		return err
	}
	delete(m.pending, reserve.PendingKey{Partition: b.Partition, ID: b.SelectionID})
	m.met["booked in two steps"]++
	booking := &heldBooking{id: sel.ID, part: c.part, worker: c.worker, rank: c.rank, adapter: c.adapter, withSession: c.session != "", reservation: sel.Reservation}
	if !a.leased {
		booking.expires = now.Add(modelExpiry)
	}
	if c.session != "" {
		sessions := m.parts[c.part]
		if e := sessions[c.session]; e == nil && m.bound(c.part, c.session) != "" {
			sessions[c.session] = &modelBinding{rank: c.rank, generation: c.generation, loose: m.initialised(c.part, c.session)}
			m.passes(c.part, c.session)
		}
		e := sessions[c.session]
		if how := m.elsewhere(e, c); m.kind.exact() && how == moves {
			m.met["moved by a reservation"]++
			e.rank, e.generation, e.loose = c.rank, c.generation, e.loose || m.flies(c)
		}
		if !m.kind.exact() || m.elsewhere(e, c) != stays {
			booking.lease = e
		} else {
			m.met["reserved beside its session"]++
		}
	}
	m.book(booking, c.demand)
	return nil
}

// mayReserve is why a choice cannot be booked; empty where it can.
func (m *wholeModel) mayReserve(b *core.Booking, c *modelChoice) core.Code {
	if m.inUse(b.SelectionID) {
		return core.CodeConflict
	}
	if c.session != "" && !m.kind.exact() {
		return "any"
	}
	if len(m.in(c.part)) == 0 {
		return core.CodeNoWorkers
	}
	w := m.workers[c.worker]
	var rank int
	if _, err := fmt.Sscanf(c.rank[len(c.worker):], "/%d", &rank); err != nil {
		panic(err)
	}
	if w == nil || w.part != c.part || w.generation != c.generation || rank >= w.ranks || w.state != core.Ready || c.adapter != "" && !w.adapter {
		return core.CodeConflict
	}
	if e := m.parts[c.part][c.session]; e != nil && c.session != "" {
		e.touched = time.Now()
		if m.elsewhere(e, c) == refuses {
			return core.CodeConflict
		}
	}
	return ""
}

// collect takes in what was answered.
func (m *wholeModel) collect() error {
	m.remember()
	m.mu.Lock()
	answers := m.answers
	m.answers = nil
	m.mu.Unlock()
	slices.SortStableFunc(answers, func(a, b *flight) int { return cmp.Or(a.at.Compare(b.at), slices.Compare(m.late(a), m.late(b))) })
	var waiting []*flight // of those that were answered with a worker
	for _, f := range answers {
		m.flying = slices.DeleteFunc(m.flying, func(g *flight) bool { return g == f })
		if err := m.answered(f); err != nil {
			return fmt.Errorf("request %d%s, %s, got %+v, %w", f.number, f.ask, f.part, f.sel, err)
		}
		if f.waited && f.err == nil {
			waiting = append(waiting, f)
		}
	}
	if shut, _ := m.gate.stopped(); len(waiting) == 1 && !shut && !m.opened {
		if err := m.inOrder(waiting[0]); err != nil {
			return err
		}
	}
	return m.reconcile(answers)
}

// inOrder looks whether one that went on while others wait was first.
func (m *wholeModel) inOrder(f *flight) error {
	if f.ask.class != "default" || f.ask.session != "" || !m.kind.queued {
		return nil
	}
	for _, g := range m.flying {
		a, b := g.ask, f.ask
		if g.waited && g.part == f.part && a.class == b.class && a.session == "" && a.pin == b.pin && a.allow == b.allow && a.adapter == b.adapter && (a.pin == "" || a.rank == b.rank) &&
			(a.priority > b.priority || a.priority == b.priority && g.number < f.number) {
			return fmt.Errorf("request %d went before %d", f.number, g.number)
		}
	}
	return nil
}

// answered looks at one answer and takes it in.
func (m *wholeModel) answered(f *flight) error {
	a := &f.ask
	if e := m.binding(f); e != nil && f.takes() && !f.unsteered && codeOf(f.err) != core.CodeConflict {
		e.touched = f.at
	}
	if f.err != nil {
		return m.refused(f)
	}
	if f.cancelled {
		return errors.New("though it was cancelled")
	}
	if f.want != "" && f.want != "ok" && !f.waited {
		return fmt.Errorf("want %s", f.want)
	}
	m.met["ok"]++
	if f.waited {
		m.met["waited"]++
	}
	rank := rankName(f.sel.Name, f.sel.Worker.Rank)
	w := m.workers[f.sel.Name]
	if a.kind == core.Book && f.sel.Reservation.Released() {
		if f.could[rank] && (w == nil || f.sel.Reservation.Key().Generation != w.generation || int(f.sel.Worker.Rank) >= w.ranks) {
			return nil
		}
		return errors.New("released already")
	}
	if !f.could[rank] {
		return fmt.Errorf("which may not serve; could: %v", f.could)
	}
	if f.want == "ok" && f.sel.By != policy.BySession && a.pin == "" && w.out(time.Now()) {
		rows, _ := m.eligible(f)
		if !slices.Contains(m.reachable(f, rows), rank) {
			return errors.New("though it is inhibited or refuses")
		}
	}
	cached := m.cached(rank, a)
	if got := f.sel.Overlap; w != nil && (got != kvcache.Overlap{Device: got.Device} || int(got.Device) > cached || !f.stale && int(got.Device) < cached) {
		return fmt.Errorf("want overlap %d", cached)
	}
	cached = int(f.sel.Overlap.Device)
	switch {
	case a.kind != core.Book && f.id != "" && w != nil:
		c := &modelChoice{part: f.part, worker: w.name, rank: rank, adapter: a.adapter, excluded: a.exclude, generation: w.generation, demand: demanded(a, cached), expires: f.at.Add(modelPending)}
		if a.pin == "" {
			c.session = a.session
		}
		m.pending[reserve.PendingKey{Partition: model(f.part), ID: f.id}] = c
	case a.kind == core.Book:
		b := &heldBooking{id: f.sel.ID, part: f.part, worker: w.name, rank: rank, adapter: a.adapter, withSession: f.takes(), reservation: f.sel.Reservation}
		if m.held[b.id] != nil {
			return errors.New("with an id that is in use")
		}
		if !a.leased {
			b.expires = f.at.Add(modelExpiry)
		}
		var err error
		if f.takes() {
			b.lease, err = m.leased(f, rank, w)
		}
		m.book(b, demanded(a, cached))
		return err
	}
	return nil
}

// refused looks at an error.
func (m *wholeModel) refused(f *flight) error {
	if f.cancelled {
		if errors.Is(f.err, context.Canceled) || codeOf(f.err) == core.CodeQueueTimeout {
			m.met["cancelled"]++
			return nil
		}
	}
	code := codeOf(f.err)
	m.met[string(code)]++
	if f.want != "" && !f.waited && f.want != string(code) {
		return fmt.Errorf("%w; want %s", f.err, f.want)
	}
	timeout, _ := m.kind.classOf(f.ask.class)
	switch code {
	case core.CodeQueueTimeout:
		if f.at.Sub(f.started) < timeout {
			return fmt.Errorf("%w, too early", f.err)
		}
	case core.CodeQueueFull:
		limit := m.limit(f)
		if limit == 0 || m.quiet() && m.full[f.part+m.kind.className(f.ask.class)]-1 < limit {
			return fmt.Errorf("%w; %d wait, %d may", f.err, m.full[f.part+m.kind.className(f.ask.class)]-1, limit)
		}
	case core.CodeModelNotFound, core.CodeConflict, core.CodeNoWorkers, core.CodeWorkersEjected, core.CodeNoCandidates, core.CodePinUnknown, core.CodePinNotAllowed, core.CodeSessionBound:
	default:
		return fmt.Errorf("%w", f.err)
	}
	return nil
}

// look compares all.
func (m *wholeModel) look() error {
	if err := m.collect(); err != nil {
		return err
	}
	if want, got := m.wantLoads(), m.loads(); !maps.Equal(want, got) {
		return fmt.Errorf("loads (-model +core):\n%s", gocmp.Diff(want, got))
	}
	st := m.Stats()
	if st.Reservations != len(m.held) || st.Pending != len(m.pending) {
		return fmt.Errorf("%d reservations and %d choices are kept; want %d and %d", st.Reservations, st.Pending, len(m.held), len(m.pending))
	}
	for _, b := range m.held {
		if b.reservation.Released() {
			return fmt.Errorf("reservation %s has ended", b.id)
		}
	}
	for _, w := range m.workers {
		want := 0
		for _, b := range m.held {
			if b.worker == w.name && b.adapter == "ad" {
				want++
			}
		}
		if got := m.AdapterUses(fleet.IDFromName(w.name), "ad"); got != want {
			return fmt.Errorf("%s uses the adapter %d times; want %d", w.name, got, want)
		}
	}
	if !m.quiet() {
		return nil
	}
	for part, sessions := range m.parts {
		if err := m.lookAtQueue(part); err != nil {
			return fmt.Errorf("%s: %w", part, err)
		}
		if err := m.lookAtSessions(part, sessions); err != nil {
			return fmt.Errorf("%s: %w", part, err)
		}
	}
	return nil
}

// lookAtQueue compares who waits with who may.
func (m *wholeModel) lookAtQueue(part string) error {
	requests, tokens := map[string]int{}, map[string]int64{}
	for _, f := range m.flying {
		if f.part != part {
			continue
		}
		if f.cancelled {
			return fmt.Errorf("request %d is cancelled and waits", f.number)
		}
		class := m.kind.className(f.ask.class)
		requests[class]++
		tokens[class] += int64(f.ask.tokens())
		f.waited = true
		timeout, _ := m.kind.classOf(f.ask.class)
		if time.Since(f.started) >= timeout && f.want == "wait" {
			return fmt.Errorf("request %d waits beyond its time", f.number)
		}
		if e := m.binding(f); e != nil && f.takes() && m.usable(e, f) && !m.serves(e, f) && !f.unsteered {
			f.unsteered, e.touched = true, time.Now()
		}
		if !m.mayWait(f) {
			return fmt.Errorf("request %d%s waits; it could go: loads %v, binding %+v", f.number, f.ask, m.wantLoads(), m.binding(f))
		}
	}
	if n := m.Granted(model(part)); n != 0 {
		return fmt.Errorf("%d have a grant and do not go", n)
	}
	for _, c := range m.stats(part).Queue {
		if c.Requests != requests[c.Class] || c.Tokens != tokens[c.Class] {
			return fmt.Errorf("in class %s wait %d requests of %d tokens; want %d of %d", c.Class, c.Requests, c.Tokens, requests[c.Class], tokens[c.Class])
		}
	}
	return nil
}

func (m *wholeModel) stats(part string) core.PartitionStats {
	for _, p := range m.Stats().Partitions {
		if p.Key == model(part) {
			return p
		}
	}
	return core.PartitionStats{}
}

func (m *wholeModel) inPart(part string) (out []*flight) {
	for _, f := range m.flying {
		if f.part == part {
			out = append(out, f)
		}
	}
	return out
}

// mayWait tells whether a request has something to wait for.
func (m *wholeModel) mayWait(f *flight) bool {
	a, e := &f.ask, m.binding(f)
	rows, code := m.eligible(f)
	queues := a.kind != core.Advisory && !a.again
	all := queues && code == "" && m.allBusy(f, rows)
	switch {
	case f.takes() && e == nil && !f.unsteered && m.kind.exact(): // it is the initialiser, or waits for it
		return slices.ContainsFunc(m.flying, func(g *flight) bool {
			rows, code := m.eligible(g)
			return g.part == f.part && g.ask.session == a.session && g.takes() && !g.unsteered && !g.ask.again && code == "" && m.allBusy(g, rows)
		})
	case f.takes() && e == nil && !m.kind.exact():
		return true
	case all:
		return true
	case f.takes() && !f.unsteered && !m.kind.soft, a.kind == core.Query && a.session != "" && a.pin == "" && !m.kind.soft:
		if f.bound != "" && a.kind == core.Query && slices.Contains(rows, f.bound) && m.busyOrRefuses(f.bound, f, rows) {
			return true
		}
		if m.behind(f) {
			return true
		}
		return queues && e != nil && slices.Contains(rows, e.rank) && m.usable(e, f) && m.busyOrRefuses(e.rank, f, rows)
	}
	return false
}

// behind tells whether a request, whose session has moved, may stand behind others
// in the lane of the worker where it was: only the head of a lane is looked at.
func (m *wholeModel) behind(f *flight) bool {
	return slices.ContainsFunc(m.flying, func(g *flight) bool {
		return g != f && g.part == f.part && g.ask.class == f.ask.class && g.ask.session != "" && g.ask.session != f.ask.session && g.waited
	})
}

func (m *wholeModel) busyOrRefuses(rank string, f *flight, rows []string) bool {
	w := m.workers[workerOf(rank)]
	return m.busy(rank, f.ask.class) || w.refuses(time.Now()) && len(rows) > 1
}
