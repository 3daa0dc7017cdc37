package clientwatch

import (
	"context"
	"errors"
	"fmt"
	"net"

	"golang.org/x/sync/errgroup"
)

// Modes watch client connections that were accepted under either meaning of a
// half-closed client: which of them a connection has is fixed when it is accepted.
// Safe for concurrent use.
type Modes struct{ abort, ignore *Watcher }

// NewModes returns watchers with the default configuration otherwise. They hold
// descriptors until Close.
func NewModes() (*Modes, error) {
	made := func(mode HalfClose) (*Watcher, error) {
		wc := DefaultConfig()
		wc.HalfClose = mode
		w, err := New(wc)
		if err != nil {
			return nil, fmt.Errorf("watch clients: %w", err)
		}
		return w, nil
	}
	abort, err := made(HalfCloseAbort)
	if err != nil {
		return nil, err
	}
	ignore, err := made(HalfCloseIgnore)
	if err != nil {
		return nil, errors.Join(err, abort.Close())
	}
	return &Modes{abort, ignore}, nil
}

// Run delivers events until Close is called.
func (m *Modes) Run() error {
	var both errgroup.Group
	for _, one := range []*Watcher{m.abort, m.ignore} {
		both.Go(func() error { return one.Run(context.Background()) })
	}
	return both.Wait()
}

// Close ends Run.
func (m *Modes) Close() error { return errors.Join(m.abort.Close(), m.ignore.Close()) }

// Adopt has an accepted connection watched, under a HalfClose.
func (m *Modes) Adopt(nc net.Conn, mode string) net.Conn {
	by := m.abort
	if mode == string(HalfCloseIgnore) {
		by = m.ignore
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
