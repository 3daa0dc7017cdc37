package clientwatch

import (
	"fmt"
	"time"
)

// HalfClose says what a client means that shuts its sending side and still
// waits for the answer.
type HalfClose string

const (
	// HalfCloseAbort takes a half-closed client for gone.
	HalfCloseAbort HalfClose = "abort"
	// HalfCloseIgnore takes only a reset or fully closed connection for gone.
	// A client that closes normally is then noticed at the next write.
	HalfCloseIgnore HalfClose = "ignore"
)

// maxTimeout bounds every duration here.
const maxTimeout = 24 * time.Hour

// Config holds what a Watcher does with accepted connections.
type Config struct {
	// HalfClose is abort or ignore.
	HalfClose HalfClose
	// WriteTimeout bounds one Write to a client; 0 means no bound. A write
	// that makes no room in time ends the connection. Each Write gets at least
	// this long and at most an eighth more.
	WriteTimeout time.Duration
	// KeepAlive is the TCP keep-alive idle time; probes follow at a third of
	// it. 0 leaves keep-alive off.
	KeepAlive time.Duration
	// UserTimeout is TCP_USER_TIMEOUT: how long sent data may stay
	// unacknowledged, or the peer's window shut. 0 leaves the system's.
	// Linux only.
	UserTimeout time.Duration
}

// DefaultConfig returns the configuration of a listener that faces clients.
// The two minutes are what a reader of 1 KiB/s needs to drain one loopback
// segment of 64 KiB, with room.
func DefaultConfig() Config {
	return Config{
		HalfClose:    HalfCloseAbort,
		WriteTimeout: 2 * time.Minute,
		KeepAlive:    15 * time.Second,
		UserTimeout:  2 * time.Minute,
	}
}

// Validate reports the first field that is out of range.
func (c Config) Validate() error {
	if c.HalfClose != HalfCloseAbort && c.HalfClose != HalfCloseIgnore {
		return fmt.Errorf("half_close %.32q: must be %q or %q", string(c.HalfClose), HalfCloseAbort, HalfCloseIgnore)
	}
	for _, f := range []struct {
		name  string
		value time.Duration
	}{
		{"write_timeout", c.WriteTimeout},
		{"keep_alive", c.KeepAlive},
		{"user_timeout", c.UserTimeout},
	} {
		if f.value != 0 && (f.value < 10*time.Millisecond || f.value > maxTimeout) {
			return fmt.Errorf("%s %v: must be 0 (off) or 10ms to %v", f.name, f.value, maxTimeout)
		}
	}
	return nil
}
