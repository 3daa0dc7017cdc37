//go:build soak

package zmq_test

import (
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/routerd/routerd/ingress/zmq"
)

// A host that answers to nothing is tried again soon: the kernel alone would wait longer each time.
func TestAConnectionThatNobodyAnswersIsTriedAnewSoon(t *testing.T) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	must(t, err)
	defer func() { _ = unix.Close(fd) }()
	must(t, unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	must(t, unix.Listen(fd, 0))
	at, err := unix.Getsockname(fd)
	must(t, err)
	address := net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: at.(*unix.SockaddrInet4).Port}
	filler, err := net.DialTCP("tcp", nil, &address) // fills the queue: what comes further is not answered
	must(t, err)
	defer func() { _ = filler.Close() }()
	cfg := quick()
	cfg.Heartbeat, cfg.ReconnectIvlMax = 300*time.Millisecond, 300*time.Millisecond
	in := start(t, cfg)
	must(t, in.Register(zmq.Source{Worker: w1, Name: "w1", Endpoint: "tcp://" + address.String(), Sink: newSink()}))
	<-time.After(8 * time.Second) // the kernel would try after 1, 3, 7 and 15 seconds, newer ones after 1, 2, 3, 4, 5, 7 and 11
	resumed := time.Now()
	accepted, _, err := unix.Accept(fd)
	must(t, err)
	defer func() { _ = unix.Close(accepted) }()
	next, _, err := unix.Accept(fd)
	must(t, err)
	defer func() { _ = unix.Close(next) }()
	if took := time.Since(resumed); took > 2*time.Second {
		t.Errorf("tried again after %s", took)
	}
}
