// Package prompt turns the text of a request into the token ids that its
// engine will see, by asking an engine's own /tokenize route behind a cache; or, where
// nobody tokenises, into the text that its approximate blocks are made of.
//
// A Tokenizer owns its cache and the calls that are under way. It never fails a
// request: whatever goes wrong is an Outcome, and the request is then routed on
// load alone. It is safe for concurrent use. Calls that outlive their caller
// run on goroutines of the Tokenizer; Close cancels and waits for them.
//
//	t := prompt.New(prompt.DefaultConfig(), workers, post, prometheus.NewRegistry())
//	defer t.Close()
//	ids, outcome := t.Tokenize(ctx, key, prompt.Input{Route: prompt.Chat, Fields: fields})
package prompt

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/maypok86/otter/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/routerd/routerd/fleet"
)

// Config bounds the cost of tokenising.
type Config struct {
	CacheBytes  int64         // keys, ids and bookkeeping of all cached prompts
	Patience    time.Duration // how long one request waits for its tokens
	CallTimeout time.Duration // how long one call to an engine may take
	Parallel    int64         // calls at once for one partition
}

// DefaultConfig is 64 MiB, 100 ms, 5 s and 8 calls.
func DefaultConfig() Config {
	return Config{CacheBytes: 64 << 20, Patience: 100 * time.Millisecond, CallTimeout: 5 * time.Second, Parallel: 8}
}

// Validate names the first field that is not positive.
func (c Config) Validate() error {
	for _, f := range []struct {
		name string
		v    int64
	}{
		{"CacheBytes", c.CacheBytes},
		{"Patience", int64(c.Patience)},
		{"CallTimeout", int64(c.CallTimeout)},
		{"Parallel", c.Parallel},
	} {
		if f.v <= 0 {
			return &fleet.FieldError{Field: f.name, Value: fmt.Sprint(f.v), Allowed: "a number above 0"}
		}
	}
	return nil
}

// Workers finds who tokenises for a partition: its least loaded ready worker.
type Workers interface {
	LeastLoaded(key fleet.PartitionKey) (name, endpoint string, ok bool)
}

// Poster sends a JSON body to a path of a worker and returns the answer's
// status and whole body.
type Poster interface {
	Post(ctx context.Context, endpoint, path string, body []byte) (status int, answer []byte, err error)
}

// Outcome says where the tokens came from, or why there are none.
type Outcome string

// Outcomes.
const (
	Cached      Outcome = "cached"      // tokens from the cache
	Fresh       Outcome = "fresh"       // tokens from an engine
	Slow        Outcome = "slow"        // no answer within Patience; the call goes on for the cache
	Failed      Outcome = "failed"      // the engine could not be asked, or its answer not be read
	NoWorker    Outcome = "no_worker"   // nobody to ask
	Unsupported Outcome = "unsupported" // the engine's /tokenize refuses this kind of prompt
	Cancelled   Outcome = "cancelled"   // the caller gave up
)

// Tokenizer asks engines for token ids.
type Tokenizer struct {
	cfg     Config
	workers Workers
	poster  Poster
	cache   *otter.Cache[digest, []uint32]
	metrics *metrics

	stop    context.CancelFunc
	running context.Context //nolint:containedctx // the lifetime of calls that outlive their caller
	calls   sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	slots    map[fleet.PartitionKey]*slots
	refusing map[string]time.Time // workers by name whose /tokenize refuses messages → when that is asked again
}

// New makes a Tokenizer; cfg must be valid.
func New(cfg Config, workers Workers, poster Poster, reg prometheus.Registerer) (*Tokenizer, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("tokenizer configuration: %w", err)
	}
	cache, err := otter.New(&otter.Options[digest, []uint32]{
		MaximumWeight: uint64(cfg.CacheBytes),
		Weigher:       func(_ digest, ids []uint32) uint32 { return uint32(min(len(ids), 1<<28))*4 + entryBytes },
		Executor:      func(f func()) { f() },
		Logger:        &otter.NoopLogger{},
	})
	if err != nil {
		return nil, fmt.Errorf("make token cache: %w", err)
	}
	running, stop := context.WithCancel(context.Background())
	return &Tokenizer{
		cfg: cfg, workers: workers, poster: poster, cache: cache, metrics: newMetrics(reg), running: running, stop: stop,
		slots: map[fleet.PartitionKey]*slots{}, refusing: map[string]time.Time{},
	}, nil
}

// entryBytes is what a cache entry costs beside its ids.
const entryBytes = 128

// Tokenize returns the token ids of a prompt, or nil and the reason. The caller
// must not change the ids. It returns within Config.Patience. A caller that
// gives up does not take the answer from others who wait for it.
func (t *Tokenizer) Tokenize(ctx context.Context, key fleet.PartitionKey, in Input) ([]uint32, Outcome) {
	ids, outcome := t.tokenize(ctx, key, in)
	t.metrics.outcomes.WithLabelValues(string(outcome)).Inc()
	return ids, outcome
}

func (t *Tokenizer) tokenize(ctx context.Context, key fleet.PartitionKey, in Input) ([]uint32, Outcome) {
	d := in.digest()
	if ids, ok := t.cache.GetIfPresent(d); ok {
		return ids, Cached
	}
	if !t.enter() {
		return nil, Failed
	}
	type answer struct {
		ids []uint32
		err error
	}
	done := make(chan answer, 1)
	go func() {
		defer t.calls.Done()
		ids, err := t.cache.Get(t.running, d, otter.LoaderFunc[digest, []uint32](func(ctx context.Context, _ digest) ([]uint32, error) {
			return t.ask(ctx, key, in)
		}))
		done <- answer{ids, err}
	}()
	patience := time.NewTimer(t.cfg.Patience)
	defer patience.Stop()
	select {
	case a := <-done:
		return a.ids, outcomeOf(a.err)
	case <-patience.C:
		return nil, Slow
	case <-ctx.Done():
		return nil, Cancelled
	}
}

// enter counts a call unless the Tokenizer is closed.
func (t *Tokenizer) enter() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	t.calls.Add(1)
	return true
}

// refusalHolds is how long an engine that refused messages is not asked again:
// it may be another one by then.
const refusalHolds = 10 * time.Minute

// Refusing tells whether the worker called name has lately refused to tokenise
// messages.
func (t *Tokenizer) Refusing(name string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return time.Now().Before(t.refusing[name])
}

// Close cancels the calls that are under way and waits for them. It is
// idempotent; a Tokenizer that is closed answers Failed.
func (t *Tokenizer) Close() {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.stop()
	t.calls.Wait()
}
