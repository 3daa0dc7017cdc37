package core

import (
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/routerd/routerd/core/affinity"
	"github.com/routerd/routerd/core/load"
	"github.com/routerd/routerd/core/queue"
	"github.com/routerd/routerd/core/reserve"
	"github.com/routerd/routerd/fleet"
)

// Config sets a SelectionCore up.
type Config struct {
	// Seed fixes the draws of requests that bring no seed of their own; nil
	// draws at random.
	Seed *uint64
	// TurnLimit bounds how long one request may hold the turn before its
	// fallback decides: the time a policy call may wait for an instance and run.
	TurnLimit time.Duration
	// DecisionEntries and DecisionBytes bound the decision records that are
	// kept.
	DecisionEntries int
	DecisionBytes   int
	// DecisionRate is how many decisions a second are recorded at most, over a
	// long time; five seconds' worth at once. Of more than that a sample is.
	DecisionRate int

	// Queue says when requests wait and in what order.
	Queue queue.Config
	// Affinity says for how long a session stays with its worker.
	Affinity affinity.Config
	// Estimator is how the time that a prefill takes is projected.
	Estimator load.Estimator
	// Overload is the busy limit of a rank; beyond it nothing new is sent there.
	Overload load.Overload
	// Expiry is how long a reservation lives whose owner does not see to its end;
	// 1 s to a year.
	Expiry time.Duration
	// Pending bounds the selections that wait for their booking.
	Pending reserve.PendingConfig
}

// DefaultConfig is a random seed, 30 ms a turn, 1,024 records in 64 MiB and
// 2,000 of them a second: more than that nobody could read before they are
// evicted.
func DefaultConfig() Config {
	return Config{
		TurnLimit: 30 * time.Millisecond, DecisionEntries: 1024, DecisionBytes: 64 << 20, DecisionRate: 2000,
		Queue: queue.DefaultConfig(), Affinity: affinityDefault(), Expiry: 5 * time.Minute, Pending: reserve.DefaultPendingConfig(),
	}
}

// affinityDefault binds a session for half an hour after its last request: the
// engines have mostly evicted its blocks by then.
func affinityDefault() affinity.Config {
	cfg := affinity.DefaultConfig()
	cfg.TTL = 30 * time.Minute
	return cfg
}

// Validate refuses what is out of range, naming the field.
func (c Config) Validate() error {
	switch {
	case c.TurnLimit <= 0 || c.TurnLimit > time.Minute:
		return &fleet.FieldError{Field: "turn_limit", Value: c.TurnLimit.String(), Allowed: "above 0, at most 1m"}
	case c.DecisionEntries < 1 || c.DecisionEntries > 1<<20:
		return &fleet.FieldError{Field: "decision_entries", Value: fmt.Sprint(c.DecisionEntries), Allowed: "1 to 1048576"}
	case c.DecisionBytes < 1<<16 || c.DecisionBytes > 1<<32:
		return &fleet.FieldError{Field: "decision_bytes", Value: fmt.Sprint(c.DecisionBytes), Allowed: "65536 to 4294967296"}
	case c.DecisionRate < 1 || c.DecisionRate > 1_000_000:
		return &fleet.FieldError{Field: "decision_rate", Value: fmt.Sprint(c.DecisionRate), Allowed: "1 to 1000000"}
	case c.Expiry < time.Second || c.Expiry > maxExpiry:
		return &fleet.FieldError{Field: "expiry", Value: c.Expiry.String(), Allowed: "1s to 31536000s"}
	}
	return errors.Join(c.Queue.Validate(), c.Affinity.Validate(), c.Estimator.Validate(), c.Overload.Validate(), c.Pending.Validate())
}

// maxExpiry bounds the life of a reservation and of a session: a year.
const maxExpiry = 31_536_000 * time.Second

// SelectionCore makes selections over all partitions. Safe for concurrent use.
type SelectionCore struct {
	cfg      Config
	host     SelectionHost
	policies SelectionPolicySource
	index    KvIndexSource
	log      *slog.Logger

	forgetters []Forgetter

	seed      atomic.Pointer[uint64] // nil draws at random
	turnLimit atomic.Int64           // ns
	overload  atomic.Pointer[load.Overload]
	queueing  atomic.Pointer[queue.Config]
	soft      atomic.Bool // sessions are advice

	reservations reserve.Book
	pending      *reserve.Pending[*chosen]
	decisions    *DecisionLog
	failures     sampler       // of those that are logged as warnings
	numbers      atomic.Uint64 // of decisions
	generations  atomic.Uint64 // of worker records
	closed       atomic.Bool
	ended        chan struct{} // closed with it

	resolving sync.Mutex // held by ResolvePolicies alone, while it asks the source
	members   sync.Mutex // guards changes of directory and inhibited; preparing, prepared, rules
	directory atomic.Pointer[directory]
	inhibited atomic.Pointer[inhibitions] // nil when nobody is
	refusals  atomic.Pointer[refusals]    // nil when nobody refuses
	preparing map[fleet.PartitionKey]chan struct{}
	prepared  map[fleet.PartitionKey]*Partition
	rules     uint64 // counts the changes of rules and of queueing
}

// New makes a core without workers. cfg must be valid; a nil log discards.
func New(cfg Config, host SelectionHost, policies SelectionPolicySource, index KvIndexSource, log *slog.Logger) *SelectionCore {
	if host.Telemetry == nil {
		host.Telemetry = noTelemetry{}
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	c := &SelectionCore{
		cfg: cfg, host: host, policies: policies, index: index, log: log,
		pending: reserve.NewPending[*chosen](cfg.Pending), decisions: newDecisionLog(&cfg), failures: newSampler(1),
		ended: make(chan struct{}), forgetters: forgettersOf(index, policies, host.Telemetry),
		preparing: map[fleet.PartitionKey]chan struct{}{},
		prepared:  map[fleet.PartitionKey]*Partition{},
	}
	c.directory.Store(&directory{})
	c.seed.Store(cfg.Seed)
	c.turnLimit.Store(int64(cfg.TurnLimit))
	c.overload.Store(&cfg.Overload)
	c.queueing.Store(&cfg.Queue)
	c.soft.Store(cfg.Affinity.Soft)
	return c
}

// Configure takes over of cfg what may change while the core runs: the seed and
// the turn limit for the requests that begin from now on, Queue, Overload and
// Affinity.Soft for all, those that wait included; who may go by the new bounds
// goes at once. The rest of it is fixed from New on.
func (c *SelectionCore) Configure(cfg Config) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	c.seed.Store(cfg.Seed)
	c.turnLimit.Store(int64(cfg.TurnLimit))
	c.soft.Store(cfg.Affinity.Soft)
	c.members.Lock()
	defer c.members.Unlock()
	c.overload.Store(&cfg.Overload)
	same := reflect.DeepEqual(*c.queueing.Load(), cfg.Queue)
	if !same {
		c.rules++ // whoever prepares a partition right now makes it again
		c.queueing.Store(&cfg.Queue)
	}
	for _, p := range c.allPartitions() {
		p.reconfigure(cfg.Queue, same)
	}
	return nil
}

// reconfigure lets go on who may by the new bounds. A queue that is the same
// stays as it is.
func (p *Partition) reconfigure(cfg queue.Config, same bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !same {
		p.queue.Configure(cfg)
	}
	p.pump()
}

// Decisions are the records of the last decisions.
func (c *SelectionCore) Decisions() *DecisionLog { return c.decisions }

// Reservations is the number of live reservations over all partitions.
func (c *SelectionCore) Reservations() int { return c.reservations.Len() }

// Close makes every further selection fail as not ready, and those that wait in a
// queue or for their session. Reservations that are held stay until they are
// released. It is idempotent and waits for nothing.
func (c *SelectionCore) Close() {
	if !c.closed.Swap(true) {
		close(c.ended)
	}
}
