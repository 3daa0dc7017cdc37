package upstream_test

import (
	"errors"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/valyala/fasthttp"
	"golang.org/x/sys/unix"

	"github.com/routerd/routerd/upstream"
)

// blackhole is a port on which a dial gets no answer: its backlog is full.
func blackhole(t *testing.T) upstream.Endpoint {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), unix.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	sa, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(sa.(*unix.SockaddrInet4).Port))
	for {
		c, err := net.DialTimeout("tcp", addr, 100*time.Millisecond)
		if err != nil {
			return endpoint(t, "http://"+addr)
		}
		t.Cleanup(func() { c.Close() })
	}
}

func TestD1_CancelEndsADial(t *testing.T) {
	ep := blackhole(t)
	c := newClient(t, nil)
	var call upstream.Call
	result := make(chan error, 1)
	go func() {
		_, err := c.Do(&call, ep, post("{}"), new(fasthttp.ResponseHeader))
		result <- err
	}()
	for c.Stats().Dialled == 0 {
		<-time.After(time.Millisecond)
	}
	call.Cancel()
	ended(t, result, upstream.PhaseDial)
}

func TestDialThatGetsNoAnswerTimesOut(t *testing.T) {
	c := newClient(t, func(c *upstream.Config) { c.ConnectTimeout = 100 * time.Millisecond })
	_, _, err := fetch(c, blackhole(t), post("{}"))
	if e := failed(t, err); e.Phase != upstream.PhaseDial || !e.Timeout || !e.Retryable() {
		t.Errorf("%+v", e)
	}
}
