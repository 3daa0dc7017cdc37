package selection_test

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/routerd/routerd/internal/testkit"
)

// parting counts the connections that the server has closed.
type parting struct {
	net.Listener
	closed atomic.Int64
}

func (l *parting) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &parted{TCPConn: c.(*net.TCPConn), closed: sync.OnceFunc(func() { l.closed.Add(1) })}, nil
}

type parted struct {
	*net.TCPConn
	closed func()
}

func (c *parted) Close() error {
	err := c.TCPConn.Close()
	c.closed()
	return err
}

// The end of the caller's stream comes in with the last byte of its request, so that
// only a look at the socket tells that it has gone.
func TestABookingOfACallerThatLeavesWithItsRequestIsUndone(t *testing.T) {
	const calls = 200
	w := two(t, options{})
	var l *parting
	s := newSite(t, w, siteOptions{listener: func(ln net.Listener) net.Listener { l = &parting{Listener: ln}; return l }})
	for range calls {
		c, err := net.Dial("tcp", s.addr)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := c.(*net.TCPConn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		var corked error
		if err := raw.Control(func(fd uintptr) { corked = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_CORK, 1) }); err != nil || corked != nil {
			t.Fatal(err, corked)
		}
		if _, err := io.WriteString(c, request("POST", "/select_and_reserve", aBooking)); err != nil {
			t.Fatal(err)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	testkit.Until(t, "all connections are closed", func() bool { return l.closed.Load() == calls })
	if n := s.core.Stats().Reservations; n != 0 {
		t.Errorf("%d bookings of %d are left", n, calls)
	}
	if s.gauge(t, "routerd_selection_service_undelivered_total") == 0 {
		t.Errorf("none of %d calls booked anything", calls)
	}
}
