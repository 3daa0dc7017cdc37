//go:build soak

package zmq_test

import (
	"time"

	"github.com/routerd/routerd/ingress/zmq"
)

const (
	cycles   = 1000
	flows    = time.Minute
	swallows = 40 * time.Second
	returns  = 30 * time.Second
)

func scaled() zmq.Config { return zmq.DefaultConfig() }
