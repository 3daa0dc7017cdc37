package remote

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/internal/backoff"
)

// The paths of a primary.
const (
	PathFind   = "/index/v1/find"
	PathRecord = "/index/v1/record"
)

const (
	minDeadline = time.Millisecond
	maxDeadline = time.Second

	firstPause = 50 * time.Millisecond
	lastPause  = 2 * time.Second
	// patience bounds what nobody waits for: records, and the first question to a primary
	// that was away, for which a connection has to be made and its name looked up.
	patience = time.Second
)

// Config of a Client.
type Config struct {
	// Deadline bounds each find, connecting included: 1 ms to 1 s. What it allows is added
	// to the time to the first token while the primary is slow.
	Deadline time.Duration
}

// DefaultConfig has a deadline of 20 ms: a hundred times what a primary on the same machine
// takes for a long prompt, and less than the prefill of a few blocks.
func DefaultConfig() Config { return Config{Deadline: 20 * time.Millisecond} }

// Validate names the first field that is not allowed, in a *fleet.FieldError.
func (c Config) Validate() error {
	if c.Deadline < minDeadline || c.Deadline > maxDeadline {
		return &fleet.FieldError{Field: "deadline", Value: c.Deadline.String(), Allowed: "1ms to 1s"}
	}
	return nil
}

// Transport reaches the primary.
type Transport interface {
	// Post sends a body to one of its paths, and returns the answer's status of HTTP and
	// its whole body, which the caller owns. It ends when ctx does, and keeps nothing of
	// the body.
	Post(ctx context.Context, path string, body []byte) (status int, answer []byte, err error)
}

// Client reads the index of one primary. It is safe for concurrent use.
type Client struct {
	cfg       Config
	transport Transport
	log       *slog.Logger
	observe   func(seconds float64)

	absence  *backoff.Absence
	batches  batcher
	records  records
	finds    counts
	requests atomic.Uint64
}

// New makes a Client; nothing is sent before the first find or record. observe hears how
// long each find took that was answered; it may be nil.
func New(cfg Config, transport Transport, log *slog.Logger, observe func(seconds float64)) (*Client, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("remote index: %w", err)
	}
	if observe == nil {
		observe = func(float64) {}
	}
	return &Client{
		cfg: cfg, transport: transport, log: log, observe: observe,
		absence: backoff.NewAbsence(firstPause, lastPause),
		records: newRecords(),
		finds:   newCounts(Answered, NoPartition, BlockSize, Away, Deadline, Unreachable, Status, BadAnswer),
	}, nil
}

// Open returns a partition's index: its name has at most 1,024 bytes in each part, and
// blockSize is in tokens, above 0. Each call makes one anew. Nothing is asked.
func (c *Client) Open(key fleet.PartitionKey, blockSize int) (*Partition, error) {
	for field, name := range map[string]string{"model": key.Model, "group": key.Group} {
		if len(name) > maxName {
			return nil, &fleet.FieldError{Field: field, Value: name, Allowed: fmt.Sprintf("at most %d bytes", maxName)}
		}
	}
	if blockSize < 1 || int64(blockSize) > 1<<32-1 {
		return nil, &fleet.FieldError{Field: "block_size", Value: fmt.Sprint(blockSize), Allowed: "1 to 4294967295"}
	}
	return &Partition{client: c, key: key, blockSize: blockSize, head: appendPartition(nil, key, blockSize)}, nil
}

// Run sends what is recorded and looks whether a primary that went away is back, until ctx
// ends, and then returns nil. It is to be called once.
func (c *Client) Run(ctx context.Context) error {
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		c.sendRecords(ctx)
	}()
	err := c.absence.Run(ctx, c.answers)
	<-sent
	return err
}

// answers asks twice: once to have a connection, then as a find would. What is back but
// too slow stays away, and costs no find a deadline.
func (c *Client) answers(ctx context.Context) bool {
	for _, limit := range []time.Duration{patience, c.cfg.Deadline} {
		ctx, cancel := context.WithTimeoutCause(ctx, limit, errDeadline)
		_, err := c.found(ctx, appendHead(nil, kindFind, 0), 0)
		cancel()
		if err != nil {
			return false
		}
	}
	return true
}

// Stats are the counts so far.
func (c *Client) Stats() Stats {
	waiting, records := c.records.stats()
	return Stats{Finds: c.finds.load(), Records: records, Requests: c.requests.Load(), Waiting: waiting, Away: c.absence.Away()}
}

// Away tells that the primary is not asked now.
func (c *Client) Away() bool { return c.absence.Away() }

// send sends the finds of a batch.
func (c *Client) send(ctx context.Context, batch []*find) ([][]byte, error) {
	c.requests.Add(1)
	return c.found(ctx, joined(batch), len(batch))
}

// found sends a message of so many finds and returns their answers.
func (c *Client) found(ctx context.Context, message []byte, finds int) ([][]byte, error) {
	answer, err := c.post(ctx, PathFind, message)
	if err != nil {
		return nil, err
	}
	parts, err := splitFound(answer, finds)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errAnswer, err)
	}
	return parts, nil
}

func (c *Client) post(ctx context.Context, path string, message []byte) ([]byte, error) {
	status, answer, err := c.transport.Post(ctx, path, message)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, err
	case status != 200:
		return nil, statusError(status)
	}
	return answer, nil
}
