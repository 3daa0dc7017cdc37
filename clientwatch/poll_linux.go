package clientwatch

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// poller is an epoll set that is itself waited for by the Go runtime: its
// goroutine parks and holds no thread.
type poller struct {
	file    *os.File
	raw     syscall.RawConn
	events  uint32
	stopped atomic.Bool
}

var errNoDescriptor = errors.New("connection has no descriptor")

func newPoller(halfCloseIsGone bool) (*poller, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create epoll set: %w", err)
	}
	// NewFile hands only a non-blocking descriptor to the runtime's poller.
	if err := unix.SetNonblock(fd, true); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("unblock epoll set: %w", err)
	}
	p := &poller{file: os.NewFile(uintptr(fd), "epoll"), events: unix.EPOLLONESHOT}
	if halfCloseIsGone {
		p.events |= unix.EPOLLRDHUP
	}
	if p.raw, err = p.file.SyscallConn(); err == nil {
		err = p.file.SetReadDeadline(time.Time{}) // fails if the runtime does not poll it
	}
	if err != nil {
		_ = p.file.Close()
		return nil, fmt.Errorf("poll epoll set: %w", err)
	}
	return p, nil
}

// add watches a connection. Errors and hang-ups are always reported; closing
// the descriptor ends the watch.
func (p *poller) add(nc net.Conn, id uint64) error {
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return errNoDescriptor
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return err
	}
	ev := unix.EpollEvent{Events: p.events, Fd: int32(uint32(id)), Pad: int32(uint32(id >> 32))}
	var ctlErr error
	err = raw.Control(func(fd uintptr) {
		eperr := p.raw.Control(func(ep uintptr) {
			ctlErr = unix.EpollCtl(int(ep), unix.EPOLL_CTL_ADD, int(fd), &ev)
		})
		ctlErr = errors.Join(ctlErr, eperr)
	})
	return errors.Join(err, ctlErr)
}

// hungUp tells whether one of the events has come about on the connection.
func (p *poller) hungUp(nc net.Conn) bool {
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return false
	}
	look := []unix.PollFd{{}}
	if p.events&unix.EPOLLRDHUP != 0 {
		look[0].Events = unix.POLLRDHUP
	}
	n := 0
	err = raw.Control(func(fd uintptr) {
		look[0].Fd = int32(fd)
		for n, err = unix.Poll(look, 0); errors.Is(err, unix.EINTR); {
			n, err = unix.Poll(look, 0)
		}
	})
	return err == nil && n > 0 && look[0].Revents != 0
}

// run hands each event's id to gone until wake is called.
func (p *poller) run(gone func(id uint64)) error {
	events := make([]unix.EpollEvent, 128)
	for !p.stopped.Load() {
		n, err := 0, error(nil)
		rawErr := p.raw.Read(func(fd uintptr) bool {
			n, err = unix.EpollWait(int(fd), events, 0)
			return n > 0 || (err != nil && !errors.Is(err, unix.EINTR)) || p.stopped.Load()
		})
		switch {
		case p.stopped.Load():
			return nil
		case err != nil:
			return fmt.Errorf("wait for events: %w", err)
		case rawErr != nil:
			return fmt.Errorf("wait for events: %w", rawErr)
		}
		for i := range n {
			gone(uint64(uint32(events[i].Fd)) | uint64(uint32(events[i].Pad))<<32)
		}
	}
	return nil
}

// wake ends run for good.
func (p *poller) wake() {
	p.stopped.Store(true)
	_ = p.file.SetReadDeadline(time.Unix(1, 0))
}

func (p *poller) close() error { return p.file.Close() }

func setUserTimeout(tc *net.TCPConn, d time.Duration) {
	raw, err := tc.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(d.Milliseconds()))
	})
}
