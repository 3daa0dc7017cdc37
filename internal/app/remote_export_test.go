package app

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/indexer/remote"
	"github.com/routerd/routerd/internal/config"
	"github.com/routerd/routerd/upstream"
)

// ServeAndRead serves some partitions at a listener, of TCP or a Unix socket, and returns an
// index of blocks of 16 tokens that reads them there.
func ServeAndRead(ln net.Listener, parts remote.Partitions, deadline time.Duration, log *slog.Logger, reg prometheus.Registerer) (x core.KvIndex, stop func(), err error) {
	s := newIndexServer(remote.NewServer(parts), "", log)
	served := make(chan error, 1)
	go func() { served <- s.Serve(ln) }()
	client := upstream.New(upstream.DefaultConfig())
	stop = func() {
		client.Close()
		_ = errors.Join(s.Shutdown(context.Background()), <-served)
	}
	r, err := newRemoteIndexes(config.IndexRead{URL: addressOf(ln, "unix:"+ln.Addr().String()), Deadline: config.Duration(deadline)}, client, log, reg)
	if err == nil {
		x, err = r.Open(fleet.PartitionKey{Model: "m", Group: "default"}, 16)
	}
	if err != nil {
		stop()
	}
	return x, stop, err
}
