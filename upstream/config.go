package upstream

import (
	"fmt"
	"time"
)

// maxTimeout bounds every duration here.
const maxTimeout = 24 * time.Hour

// Config holds the limits of a Client.
type Config struct {
	// ConnectTimeout bounds a dial, name look-up included.
	ConnectTimeout time.Duration
	// WriteTimeout bounds the sending of one request; 0 means no bound.
	WriteTimeout time.Duration
	// FirstByteTimeout bounds the wait from the sent request to the complete
	// head of the answer; 0 means no bound. A worker that does not stream sends
	// its head when all tokens are made.
	FirstByteTimeout time.Duration
	// IdleReadTimeout bounds a pause inside the body; 0 means no bound. It
	// strikes after at least this long and at most an eighth more.
	IdleReadTimeout time.Duration
	// IdleConnTimeout is how long an unused connection is kept. It is best
	// below the workers' own limit.
	IdleConnTimeout time.Duration
	// MaxIdlePerHost bounds the unused connections kept to one worker.
	MaxIdlePerHost int
	// ReadBuffer is the size in bytes of each connection's read buffer.
	ReadBuffer int
	// Breaker says when a worker that fails is called no more.
	Breaker BreakerConfig
}

// DefaultConfig returns limits that suit text generation: the OpenAI clients'
// ten minutes for an answer, and idle connections closed before vLLM's web
// server (5 s) does it.
func DefaultConfig() Config {
	return Config{
		ConnectTimeout:   3 * time.Second,
		WriteTimeout:     time.Minute,
		FirstByteTimeout: 10 * time.Minute,
		IdleReadTimeout:  5 * time.Minute,
		IdleConnTimeout:  4 * time.Second,
		MaxIdlePerHost:   512,
		ReadBuffer:       8 << 10,
		Breaker:          DefaultBreakerConfig(),
	}
}

// Validate reports the first field that is out of range.
func (c Config) Validate() error {
	for _, f := range []struct {
		name  string
		value time.Duration
		off   bool // 0 is allowed
	}{
		{"connect_timeout", c.ConnectTimeout, false},
		{"write_timeout", c.WriteTimeout, true},
		{"first_byte_timeout", c.FirstByteTimeout, true},
		{"idle_read_timeout", c.IdleReadTimeout, true},
		{"idle_conn_timeout", c.IdleConnTimeout, false},
	} {
		switch {
		case f.value == 0 && f.off:
		case f.value == 0:
			return fmt.Errorf("%s 0s: must be 1ms to %v", f.name, maxTimeout)
		case f.value < time.Millisecond || f.value > maxTimeout:
			return fmt.Errorf("%s %v: must be 1ms to %v", f.name, f.value, maxTimeout)
		}
	}
	if c.MaxIdlePerHost < 0 || c.MaxIdlePerHost > 1<<16 {
		return fmt.Errorf("max_idle_per_host %d: must be 0 to %d", c.MaxIdlePerHost, 1<<16)
	}
	if c.ReadBuffer < 1<<10 || c.ReadBuffer > maxHead {
		return fmt.Errorf("read_buffer %d: must be %d to %d bytes", c.ReadBuffer, 1<<10, maxHead)
	}
	if err := c.Breaker.Validate(); err != nil {
		return fmt.Errorf("breaker: %w", err)
	}
	return nil
}
