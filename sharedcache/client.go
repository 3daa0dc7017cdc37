// Package sharedcache asks an external KV cache, which every worker can read
// from, what it holds of a prompt.
//
// A question is POST /hits below the configured URL:
//
//	{"hashes":[9142906382341548870,…]}
//
// with the sequence hashes of the prompt's blocks in order, at most 32,768 of
// them, as unsigned decimal 64-bit numbers. The server must read them as
// integers: half of them are above 2^63, and a double keeps only 53 bits. They
// cover tokens, adapter and salt, but no model: a cache must not be shared by
// models with other weights. The answer, of status 200, is
//
//	{"ranges":[[0,12],[16,20]]}
//
// half-open ranges of positions in that list. They may come in any order,
// overlap, be empty and reach beyond the list; anything else is a bad answer.
// The empty list of hashes is asked to see whether a server is back, and is
// answered with no ranges.
//
// The package owns no connection: internal/app gives it the HTTP client. A
// Client never makes a selection fail and costs it at most Config.Deadline.
// After a failure of any kind but the caller's the server is away: calls return
// ErrAway at once, and Run asks it in the background, after 100 ms and then
// twice as long each time up to 5 s, until it has answered within the deadline.
// So a server that was killed costs one deadline, once. Run is the only
// goroutine, and without it a server that went away stays so.
//
//	c, err := sharedcache.New(cfg, upstreamClient, log, reg)
//	go c.Run(ctx)
//	held, err := c.Hits(ctx, key, hashes, held[:0])
package sharedcache

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/internal/backoff"
	"github.com/routerd/routerd/kvcache"
)

// ErrAway means that the server was not asked: its last answer failed, and it
// has not been seen to be back.
var ErrAway = errors.New("the shared cache is away")

// Poster sends a JSON body to a path below a base URL and returns the answer's
// status and whole body, which the caller owns. It ends when ctx does.
type Poster interface {
	Post(ctx context.Context, endpoint, path string, body []byte) (status int, answer []byte, err error)
}

// Client asks one server. It is safe for concurrent use.
type Client struct {
	cfg     Config
	poster  Poster
	log     *slog.Logger
	metrics *metrics
	absence *backoff.Absence
}

// New makes a Client; nothing is sent before the first call.
func New(cfg Config, poster Poster, log *slog.Logger, reg prometheus.Registerer) (*Client, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("shared cache: %w", err)
	}
	c := &Client{cfg: cfg, poster: poster, log: log, absence: backoff.NewAbsence(firstPause, lastPause)}
	m, err := newMetrics(reg, c.absence.Away)
	if err != nil {
		return nil, fmt.Errorf("register metrics of the shared cache: %w", err)
	}
	c.metrics = m
	return c, nil
}

// Hits appends to out the ranges of block positions that the cache holds:
// sorted, disjoint, not empty and within blocks. It returns within the deadline
// and keeps neither slice. With an error, ErrAway among them, out comes back as
// it was given. A prompt without blocks is not asked for.
func (c *Client) Hits(
	ctx context.Context, _ fleet.PartitionKey, blocks []kvcache.SequenceHash, out []kvcache.BlockRange,
) ([]kvcache.BlockRange, error) {
	if len(blocks) == 0 {
		return out, nil
	}
	turn := c.absence.Turn()
	if turn.Away() {
		c.metrics.errors[reasonAway].Inc()
		return out, ErrAway
	}
	begun := time.Now()
	held, err := c.ask(ctx, c.cfg.Deadline, blocks, out)
	if err != nil {
		c.failed(ctx, turn, err)
		return out, fmt.Errorf("ask the shared cache for %d blocks: %w", len(blocks), err)
	}
	if c.absence.Succeeded(turn) {
		c.log.Info("the shared cache answers again")
	}
	c.metrics.seconds.Observe(time.Since(begun).Seconds())
	c.metrics.asked.Add(float64(len(blocks)))
	c.metrics.hits.Add(float64(kvcache.Beyond(held[len(out):], 0)))
	return held, nil
}

// failed counts a failure and, unless the caller ended the call or the server
// has gone or come back meanwhile, takes the server for away.
func (c *Client) failed(ctx context.Context, turn backoff.Turn, err error) {
	why := reasonOf(err)
	if ctx.Err() != nil {
		why = reasonCancelled
	}
	c.metrics.errors[why].Inc()
	if why != reasonCancelled && c.absence.Failed(turn) {
		c.log.Warn("the shared cache is away; requests are routed without it", "reason", string(why), "err", err)
	}
}
