package frontend

import (
	"context"
	"errors"
	"fmt"
	"net"

	"golang.org/x/sync/errgroup"

	"github.com/routerd/routerd/clientwatch"
)

// watchers watch client connections, one for each meaning of a half-closed
// client: which of them a connection has is fixed when it is accepted.
type watchers struct{ abort, ignore *clientwatch.Watcher }

func newWatchers() (*watchers, error) {
	made := func(mode clientwatch.HalfClose) (*clientwatch.Watcher, error) {
		wc := clientwatch.DefaultConfig()
		wc.HalfClose = mode
		w, err := clientwatch.New(wc)
		if err != nil {
			return nil, fmt.Errorf("watch clients: %w", err)
		}
		return w, nil
	}
	abort, err := made(clientwatch.HalfCloseAbort)
	if err != nil {
		return nil, err
	}
	ignore, err := made(clientwatch.HalfCloseIgnore)
	if err != nil {
		return nil, errors.Join(err, abort.Close())
	}
	return &watchers{abort, ignore}, nil
}

// run delivers events until close is called.
func (w *watchers) run() error {
	var both errgroup.Group
	for _, one := range []*clientwatch.Watcher{w.abort, w.ignore} {
		both.Go(func() error { return one.Run(context.Background()) })
	}
	return both.Wait()
}

func (w *watchers) close() error { return errors.Join(w.abort.Close(), w.ignore.Close()) }

// adopt has an accepted connection watched.
func (w *watchers) adopt(nc net.Conn, halfClose string) net.Conn {
	by := w.abort
	if halfClose == string(clientwatch.HalfCloseIgnore) {
		by = w.ignore
	}
	watched, err := by.Wrap(accepted{conn: nc}).Accept()
	if err != nil { // accepted never fails
		return nc
	}
	return watched
}

// accepted is a listener that has its one connection already.
type accepted struct {
	net.Listener
	conn net.Conn
}

// Accept returns the connection.
func (a accepted) Accept() (net.Conn, error) { return a.conn, nil }
