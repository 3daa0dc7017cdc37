package sharedcache

import (
	"context"
	"time"

	"github.com/routerd/routerd/internal/backoff"
)

const (
	firstPause = 100 * time.Millisecond
	lastPause  = 5 * time.Second
	// patience bounds the first question to a server that was away, for which
	// nobody waits: a connection has to be made, and its name looked up.
	patience = time.Second
)

func isAway(turn uint64) bool { return turn%2 == 1 }

func (c *Client) away() bool { return isAway(c.turns.Load()) }

// Run looks whether a server that went away is back, until ctx ends, and then
// returns nil. It is to be called once.
func (c *Client) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.gone:
		}
		if !c.waitFor(ctx) {
			return nil
		}
		c.turns.Add(1)
	}
}

// waitFor returns true once the server has answered, false when ctx has ended.
func (c *Client) waitFor(ctx context.Context) bool {
	timer := time.NewTimer(backoff.Pause(firstPause, lastPause, int(c.failures.Add(1))))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-timer.C:
		}
		if c.answers(ctx) {
			return true
		}
		timer.Reset(backoff.Pause(firstPause, lastPause, int(c.failures.Add(1))))
	}
}

// answers asks twice: once to have a connection, then as a request would. What
// is back but too slow stays away, and costs no request a deadline.
func (c *Client) answers(ctx context.Context) bool {
	if _, err := c.ask(ctx, patience, nil, nil); err != nil {
		return false
	}
	_, err := c.ask(ctx, c.cfg.Deadline, nil, nil)
	return err == nil
}
