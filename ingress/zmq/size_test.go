//go:build !soak

package zmq_test

import (
	"time"

	"github.com/routerd/routerd/ingress/zmq"
)

const (
	cycles   = 200                    // of registering and unregistering a worker
	flows    = 3 * time.Second        // how long a publisher sends at full speed
	swallows = 4 * time.Second        // how long a relay swallows all packets
	returns  = 500 * time.Millisecond // after which a publisher is back
)

// scaled is the configuration that the cases' times are scaled to.
func scaled() zmq.Config {
	cfg := quick()
	cfg.Heartbeat, cfg.ReconnectIvlMax = 800*time.Millisecond, time.Second
	return cfg
}
