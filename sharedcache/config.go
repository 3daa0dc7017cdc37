package sharedcache

import (
	"time"

	"github.com/routerd/routerd/fleet"
)

// Bounds of Config.Deadline.
const (
	minDeadline = time.Millisecond
	maxDeadline = time.Second
)

// Config says which server is asked and how long.
type Config struct {
	// URL is the server's base, http://HOST:PORT with an optional path; the path
	// /hits is below it.
	URL string
	// Deadline bounds each question, connecting included: 1 ms to 1 s. What it
	// allows is added to the time to the first token of every request while the
	// cache is slow.
	Deadline time.Duration
}

// DefaultConfig has no URL and a deadline of 5 ms: many times what a server in
// the same network takes to answer for thousands of tokens, and as much as the
// prefill of some hundred tokens, which a hit of a few blocks saves.
func DefaultConfig() Config { return Config{Deadline: 5 * time.Millisecond} }

// Validate names the first field that is not allowed, in a *fleet.FieldError.
func (c Config) Validate() error {
	if _, err := fleet.NormaliseURL(c.URL); err != nil {
		return err
	}
	if c.Deadline < minDeadline || c.Deadline > maxDeadline {
		return &fleet.FieldError{Field: "deadline", Value: c.Deadline.String(), Allowed: "1ms to 1s"}
	}
	return nil
}
