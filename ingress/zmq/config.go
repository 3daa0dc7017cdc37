package zmq

import (
	"fmt"
	"strconv"
	"time"

	zmq4 "github.com/pebbe/zmq4"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/ingress/stream"
	"github.com/routerd/routerd/ingress/wire"
)

// Config bounds the sockets and replays of a DirectIngress.
type Config struct {
	// Owners is the number of goroutines that own sockets, 1 to 64.
	Owners int
	// RcvHWM is how many live messages of a socket wait to be read, 1 to 10,000,000. Further ones wait with the publisher,
	// which drops those beyond its own bound.
	RcvHWM int
	// MaxMessage is the largest message in bytes, 1 KiB to wire.MaxPayload. ZeroMQ closes the connection for a larger one.
	MaxMessage int
	// ReconnectIvl and ReconnectIvlMax bound the delay between attempts to connect, 1ms to 1h.
	ReconnectIvl    time.Duration
	ReconnectIvlMax time.Duration
	// Heartbeat is how often a silent connection is probed; after three probes without an answer it counts as lost. It is
	// also how long one attempt to connect may take. 100ms to 1h.
	Heartbeat time.Duration
	// UnconnectedAfter is how long a publisher may be away before that is told, 1ms to 1h.
	UnconnectedAfter time.Duration
	// ReplayTimeout is how long a replay may stay silent before it counts as incomplete, 10ms to 10m. A whole one may
	// take 60 times as long.
	ReplayTimeout time.Duration
	// ReplayRetryMin and ReplayRetryMax bound the delay before an incomplete replay is asked for again, 1ms to 1h.
	ReplayRetryMin time.Duration
	ReplayRetryMax time.Duration
	// ReplayTries is how many replays in a row may bring nothing new before the missing is given up, 1 to 1,000.
	ReplayTries int
	// BufferMessages and BufferBytes bound what a stream keeps while a replay runs, from 16 messages and 64 KiB on.
	BufferMessages int
	BufferBytes    int
	// Curve has the keys of encrypted connections.
	Curve Curve
}

// DefaultConfig returns the configuration that is used when nothing is set.
func DefaultConfig() Config {
	return Config{
		Owners:           1,
		RcvHWM:           1000,
		MaxMessage:       wire.MaxPayload,
		ReconnectIvl:     100 * time.Millisecond,
		ReconnectIvlMax:  5 * time.Second,
		Heartbeat:        5 * time.Second,
		UnconnectedAfter: 3 * time.Second,
		ReplayTimeout:    2 * time.Second,
		ReplayRetryMin:   500 * time.Millisecond,
		ReplayRetryMax:   10 * time.Second,
		ReplayTries:      6,
		BufferMessages:   65_536,
		BufferBytes:      64 << 20,
	}
}

// Validate returns an error that names the first field out of its range, a *fleet.FieldError but for a secret.
func (c Config) Validate() error {
	for _, f := range []struct {
		name          string
		value, lo, hi int64
	}{
		{"owners", int64(c.Owners), 1, 64},
		{"rcv_hwm", int64(c.RcvHWM), 1, 10_000_000},
		{"max_message", int64(c.MaxMessage), 1 << 10, wire.MaxPayload},
		{"replay_tries", int64(c.ReplayTries), 1, 1000},
		{"buffer_messages", int64(c.BufferMessages), 16, 1 << 24},
		{"buffer_bytes", int64(c.BufferBytes), 64 << 10, 4 << 30},
	} {
		if f.value < f.lo || f.value > f.hi {
			return &fleet.FieldError{Field: f.name, Value: strconv.FormatInt(f.value, 10), Allowed: fmt.Sprintf("%d to %d", f.lo, f.hi)}
		}
	}
	for _, f := range []struct {
		name          string
		value, lo, hi time.Duration
		least         string // the key that lo is the value of
	}{
		{"reconnect_ivl", c.ReconnectIvl, time.Millisecond, time.Hour, ""},
		{"reconnect_ivl_max", c.ReconnectIvlMax, c.ReconnectIvl, time.Hour, "reconnect_ivl"},
		{"heartbeat", c.Heartbeat, 100 * time.Millisecond, time.Hour, ""},
		{"unconnected_after", c.UnconnectedAfter, time.Millisecond, time.Hour, ""},
		{"replay_timeout", c.ReplayTimeout, 10 * time.Millisecond, 10 * time.Minute, ""},
		{"replay_retry_min", c.ReplayRetryMin, time.Millisecond, time.Hour, ""},
		{"replay_retry_max", c.ReplayRetryMax, c.ReplayRetryMin, time.Hour, "replay_retry_min"},
	} {
		if f.value < f.lo || f.value > f.hi {
			low := f.lo.String()
			if f.least != "" {
				low += " (" + f.least + ")"
			}
			return &fleet.FieldError{Field: f.name, Value: f.value.String(), Allowed: low + " to " + f.hi.String()}
		}
	}
	return c.Curve.validate(zmq4.HasCurve())
}

func (c Config) stream() stream.Config {
	return stream.Config{
		ReplayTimeout: c.ReplayTimeout,
		RetryMin:      c.ReplayRetryMin,
		RetryMax:      c.ReplayRetryMax,
		Tries:         c.ReplayTries,
		MaxMessages:   c.BufferMessages,
		MaxBytes:      c.BufferBytes,
	}
}
