package sim

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// watchInterval bounds how late a closed connection is noticed.
const watchInterval = 10 * time.Millisecond

// watcher notices clients that have closed (or half-closed) their connection
// while their request runs: it asks the kernel about all of them at once, and
// only while there is one to ask about.
type watcher struct {
	wake chan struct{} // size 1: a full one already wakes the loop

	mu      sync.Mutex // guards watched
	watched map[*watched]struct{}
}

// watched is one connection; its descriptor stays open while it is registered,
// because the request's handler has not returned.
type watched struct {
	fd   int32
	gone func()
}

func newWatcher() *watcher {
	return &watcher{wake: make(chan struct{}, 1), watched: make(map[*watched]struct{})}
}

// add calls gone, at most once, when the connection's other side has closed it
// before remove was called. After remove has returned gone is not called.
func (w *watcher) add(c net.Conn, gone func()) (remove func()) {
	entry := &watched{fd: descriptor(c), gone: gone}
	if entry.fd < 0 {
		return func() {}
	}
	w.mu.Lock()
	w.watched[entry] = struct{}{}
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
	return func() {
		w.mu.Lock()
		delete(w.watched, entry)
		w.mu.Unlock()
	}
}

// run looks until ctx ends.
func (w *watcher) run(ctx context.Context) {
	ticker := time.NewTicker(watchInterval)
	defer ticker.Stop()
	for {
		tick := ticker.C
		if w.idle() {
			tick = nil
		}
		select {
		case <-ctx.Done():
			return
		case <-w.wake:
		case <-tick:
			w.look()
		}
	}
}

func (w *watcher) idle() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.watched) == 0
}

// look asks about every connection and reports those that were closed. It holds
// the lock, so that no descriptor can be closed and used anew meanwhile; the
// callbacks only cancel a context.
func (w *watcher) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	fds := make([]unix.PollFd, 0, len(w.watched))
	entries := make([]*watched, 0, len(w.watched))
	for e := range w.watched {
		fds = append(fds, unix.PollFd{Fd: e.fd, Events: unix.POLLIN})
		entries = append(entries, e)
	}
	if n, err := unix.Poll(fds, 0); n <= 0 || err != nil {
		return
	}
	for i, fd := range fds {
		if fd.Revents != 0 && closedByPeer(int(fd.Fd)) {
			delete(w.watched, entries[i])
			entries[i].gone()
		}
	}
}

// closedByPeer peeks: no bytes means the end of the stream, bytes mean that the
// client has sent its next request early.
func closedByPeer(fd int) bool {
	var one [1]byte
	n, _, err := unix.Recvfrom(fd, one[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
	if err == nil {
		return n == 0
	}
	return !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR)
}

// descriptor is a connection's file descriptor, -1 if it has none.
func descriptor(c net.Conn) int32 {
	fd := int32(-1)
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return fd
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return fd
	}
	if raw.Control(func(v uintptr) { fd = int32(v) }) != nil {
		return -1
	}
	return fd
}
