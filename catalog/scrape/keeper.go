package scrape

import (
	"container/heap"
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/routerd/routerd/catalog"
	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
)

const (
	maxAsked = 64 // engines that are asked at once
	// keptPrompt of them are kept for prompt engines, as far as there are so many.
	keptPrompt = maxAsked / 2
	// patience is the part of the time limit in which a prompt engine answers. Only
	// a slow one gets more.
	patience = 4
	// lastPause is how long a failing engine is left alone at most.
	lastPause = 5 * time.Second
	// settleFor collects changes of the list.
	settleFor = 200 * time.Millisecond
	// firstSpread is the part of the interval over which first questions are spread.
	firstSpread = 5
)

// member is a worker as Run knows it; only its goroutine reads and writes what is
// not of target, except that line belongs to the visit under way.
type member struct {
	scraper *keeper
	target  *target
	line    line
	name    string
	page    int64 // tokens of a block by its record

	due      time.Time
	at       int  // where it stands in its lane; -1 when in none
	slow     bool // which lane is its
	failures int
	cancel   context.CancelFunc // ends the visit under way; nil when there is none
	last     result             // what was logged
	gone     bool
}

// keeper is what Run owns: only its goroutine reads and writes the fields.
type keeper struct {
	*Scraper
	buffers  buffers
	children sync.WaitGroup
	answers  chan answer
	cfg      Config
	members  map[fleet.WorkerID]*member
	heard    map[fleet.Worker]string // load sockets that are listened to
	prompt   lane
	slow     lane
}

// lane is the members that wait for their turn, and how many have it.
type lane struct {
	queue
	running int
}

// Run asks the engines until ctx ends; then it cuts off the questions under way,
// waits for them and returns nil. It is to be called once.
func (s *Scraper) Run(ctx context.Context) error {
	k := &keeper{
		Scraper: s, answers: make(chan answer), cfg: *s.cfg.Load(),
		members: map[fleet.WorkerID]*member{}, heard: map[fleet.Worker]string{},
	}
	defer k.end()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	look, turn := time.NewTimer(0), time.NewTimer(0)
	defer look.Stop()
	defer turn.Stop()
	changes := s.workers.Changed()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-changes:
			changes = nil // until the list has been read
			look.Reset(settleFor)
		case <-look.C:
			changes = s.workers.Changed()
			k.follow(s.workers.Workers())
		case <-s.changed:
			k.configure(*s.cfg.Load())
			look.Reset(0)
		case a := <-k.answers:
			k.ended(a)
		case <-turn.C:
		}
		if next := k.begin(ctx); next >= 0 {
			turn.Reset(next)
		}
	}
}

// end gives up everything.
func (k *keeper) end() {
	k.follow(nil)
	k.children.Wait()
}

// follow makes the members those workers that can be asked.
func (k *keeper) follow(views []catalog.View) {
	next, changed := map[fleet.WorkerID]*member{}, false
	heard := map[fleet.Worker]string{}
	for _, v := range views {
		if k.cfg.Interval == 0 || !asks(v) {
			continue
		}
		m := k.members[v.ID]
		if m == nil || m.target.place != placeOf(v.Record) {
			if m = k.join(v.Record); m == nil {
				continue
			}
			changed = true
		}
		m.name, m.page = v.Name, int64(v.BlockSize)
		next[v.ID] = m
		k.listen(v, heard)
	}
	for id, m := range k.members {
		if next[id] != m {
			k.leave(m)
			changed = true
		}
	}
	k.members = next
	if changed {
		t := make(table, len(next))
		for id, m := range next {
			t[id] = m.target
		}
		k.table.Store(&t)
	}
	k.unlisten(heard)
}

// asks tells whether the worker is to be asked: one that has never been ready has
// nobody who would want to know.
func asks(v catalog.View) bool {
	return v.URL != "" && v.DPSize > 0 && !v.NoHealthCheck && v.Lifecycle != core.Incomplete
}

func (k *keeper) join(r fleet.Record) *member {
	to, err := routeTo(r.URL)
	if err != nil {
		k.log.Warn("engine is not asked for its load", "worker", r.Name, "err", err)
		return nil
	}
	m := &member{scraper: k, target: newTarget(r), line: line{route: to, dial: k.dial}, at: -1}
	m.target.page.Store(int64(r.BlockSize))
	m.due = time.Now().Add(time.Duration(rand.Float64() * float64(k.cfg.Interval) / firstSpread))
	heap.Push(&k.prompt, m)
	return m
}

// leave gives up a member.
func (k *keeper) leave(m *member) {
	m.gone = true
	switch {
	case m.cancel != nil:
		m.cancel()
	case m.at >= 0:
		heap.Remove(k.laneOf(m), m.at)
		m.line.close()
	}
}

// listen listens to the load sockets of a worker.
func (k *keeper) listen(v catalog.View, heard map[fleet.Worker]string) {
	for rank, endpoint := range k.endpoints(v) {
		w := fleet.Worker{ID: v.ID, Rank: uint32(rank)}
		if rank < v.DPStart || rank >= v.DPStart+v.DPSize {
			continue
		}
		heard[w] = endpoint
		was, ok := k.heard[w]
		if was == endpoint {
			continue
		}
		if ok {
			k.sockets.Unlisten(w)
		}
		if err := k.sockets.Listen(w, v.Name, endpoint); err != nil {
			k.log.Warn("load socket is not listened to", "worker", v.Name, "rank", rank, "err", err)
		}
	}
}

// unlisten ends what is heard no more.
func (k *keeper) unlisten(heard map[fleet.Worker]string) {
	for w := range k.heard {
		if _, ok := heard[w]; !ok {
			k.sockets.Unlisten(w)
		}
	}
	k.heard = heard
}
