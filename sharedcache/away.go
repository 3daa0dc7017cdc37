package sharedcache

import (
	"context"
	"time"
)

const (
	firstPause = 100 * time.Millisecond
	lastPause  = 5 * time.Second
	// patience bounds the first question to a server that was away, for which
	// nobody waits: a connection has to be made, and its name looked up.
	patience = time.Second
)

// Run looks whether a server that went away is back, until ctx ends, and then
// returns nil. It is to be called once.
func (c *Client) Run(ctx context.Context) error { return c.absence.Run(ctx, c.answers) }

// answers asks twice: once to have a connection, then as a request would. What
// is back but too slow stays away, and costs no request a deadline.
func (c *Client) answers(ctx context.Context) bool {
	if _, err := c.ask(ctx, patience, nil, nil); err != nil {
		return false
	}
	_, err := c.ask(ctx, c.cfg.Deadline, nil, nil)
	return err == nil
}
