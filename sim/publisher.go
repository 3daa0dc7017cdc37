package sim

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	zmq "github.com/pebbe/zmq4"
)

const (
	// replayInterval is how often replay requests are looked for; a real engine
	// answers within 100 to 140 ms when it is idle.
	replayInterval = 25 * time.Millisecond
	rebindPatience = 5 * time.Second
	rebindPause    = 5 * time.Millisecond
	termPatience   = 2 * time.Second
	publishHWM     = 100_000
)

// publisher numbers batches and sends them, and answers replay requests. One
// goroutine owns all sockets; others hand it commands through a queue without
// bound, so that a rank never waits for the network.
type publisher struct {
	cfg     Config
	encoder encoder
	faults  *faults
	log     *slog.Logger
	wake    chan struct{} // size 1: a full one already wakes the loop
	done    chan struct{}
	stop    context.CancelFunc

	load func(rank int) loadStat // safe for concurrent use

	mu      sync.Mutex // guards queue, tallies, events, replays, loads
	queue   []command
	tallies []publisherCounts
	events  map[int]string
	replays map[int]string
	loads   map[int]string
}

// publisherCounts is what GET /sim/stats tells about one rank's events; nextSeq
// runs ahead of the socket by what is queued, so it belongs to the cache as it is.
type publisherCounts struct {
	nextSeq, dropped, answered, disturbed uint64
}

// command is a batch of one rank, or a restart when restarted is set.
type command struct {
	rank      int
	events    []event
	at        time.Time
	drop      bool       // takes a number but is not sent
	restarted chan error // size 1
}

func newPublisher(c Config, t *adapterTable, f *faults, load func(int) loadStat, log *slog.Logger) *publisher {
	return &publisher{
		load:    load,
		cfg:     c,
		encoder: encoder{form: c.EventForm, hashForm: c.HashForm, blockSize: c.BlockSize, adapterID: t.id},
		faults:  f,
		log:     log,
		wake:    make(chan struct{}, 1),
		done:    make(chan struct{}),
		tallies: make([]publisherCounts, c.Ranks),
		events:  make(map[int]string),
		replays: make(map[int]string),
		loads:   make(map[int]string),
	}
}

// start binds the sockets and begins to serve them; close must follow a nil error.
func (p *publisher) start() error {
	ctx, cancel := context.WithCancel(context.Background())
	p.stop = cancel
	bound := make(chan error, 1)
	go p.run(ctx, bound)
	err := <-bound
	if err != nil {
		p.close()
	}
	return err
}

// close ends the goroutine, its sockets and its ZMQ context, and waits.
func (p *publisher) close() {
	p.stop()
	<-p.done
}

// add queues one batch. The rank's lock is held, which keeps batches in order.
func (p *publisher) add(rank int, events []event) {
	drop := p.faults.takeRank(faultDropEvents, rank) != nil
	p.count(rank, func(c *publisherCounts) {
		c.nextSeq++
		if drop {
			c.dropped++
		}
	})
	p.push(command{rank: rank, events: events, at: time.Now(), drop: drop})
}

// restart queues the loss of all numbers and buffers; the channel tells when the
// sockets are bound again. The locks of all ranks are held.
func (p *publisher) restart() <-chan error {
	for rank := range p.tallies {
		p.count(rank, func(c *publisherCounts) { c.nextSeq = 0 })
	}
	done := make(chan error, 1)
	p.push(command{restarted: done})
	return done
}

func (p *publisher) push(c command) {
	p.mu.Lock()
	p.queue = append(p.queue, c)
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

func (p *publisher) takeQueue() []command {
	p.mu.Lock()
	defer p.mu.Unlock()
	q := p.queue
	p.queue = nil
	return q
}

// count changes one rank's numbers under the lock.
func (p *publisher) count(rank int, change func(*publisherCounts)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.tallies[rank])
}

// counts fills in the event numbers of one rank.
func (p *publisher) counts(s *rankStats) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.tallies[s.Rank]
	s.NextSeq, s.DroppedBatches, s.ReplaysAnswered, s.ReplaysDisturbed = c.nextSeq, c.dropped, c.answered, c.disturbed
}

// endpoints copies the bound addresses by rank.
func (p *publisher) endpoints(replay bool) map[int]string {
	if replay {
		return p.copied(p.replays)
	}
	return p.copied(p.events)
}

// copied copies one of the maps of addresses, which never change place.
func (p *publisher) copied(from map[int]string) map[int]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make(map[int]string, len(from))
	for r, a := range from {
		out[r] = a
	}
	return out
}

// run is the goroutine that owns the sockets.
func (p *publisher) run(ctx context.Context, bound chan<- error) {
	defer close(p.done)
	zctx, err := zmq.NewContext()
	if err != nil {
		bound <- fmt.Errorf("make zmq context: %w", err)
		return
	}
	outlets := make([]*outlet, p.cfg.Ranks)
	defer func() {
		for _, o := range outlets {
			o.close()
		}
		p.terminate(zctx)
	}()
	for r := range outlets {
		outlets[r] = &outlet{rank: r, p: p}
		if err := outlets[r].open(ctx, zctx); err != nil {
			bound <- err
			return
		}
	}
	bound <- nil
	p.loop(ctx, zctx, outlets)
}

func (p *publisher) loop(ctx context.Context, zctx *zmq.Context, outlets []*outlet) {
	var tick <-chan time.Time
	if p.cfg.ReplayListen != "" || p.cfg.LoadListen != "" {
		ticker := time.NewTicker(replayInterval)
		defer ticker.Stop()
		tick = ticker.C
	}
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick:
			for _, o := range outlets {
				o.answerReplays()
				o.publishLoad(now)
			}
		case <-p.wake:
			for _, c := range p.takeQueue() {
				if c.restarted != nil {
					c.restarted <- p.reopen(ctx, zctx, outlets)
					continue
				}
				outlets[c.rank].publish(c)
			}
		}
	}
}

func (p *publisher) reopen(ctx context.Context, zctx *zmq.Context, outlets []*outlet) error {
	for _, o := range outlets {
		o.close()
		o.forget()
	}
	for _, o := range outlets {
		if err := o.open(ctx, zctx); err != nil {
			return err
		}
	}
	return nil
}

// terminate ends the context; all sockets are closed, so it does not block. If
// libzmq thinks otherwise, leaking it is better than hanging.
func (p *publisher) terminate(zctx *zmq.Context) {
	ended := make(chan error, 1)
	go func() { ended <- zctx.Term() }()
	select {
	case err := <-ended:
		if err != nil {
			p.log.Warn("end zmq context", "err", err)
		}
	case <-time.After(termPatience):
		p.log.Warn("zmq context did not end in time")
	}
}
