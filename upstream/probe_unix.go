//go:build unix

package upstream

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// probe looks, without waiting or reading, whether a connection has something
// to read: bytes, its end or an error. It allocates once.
type probe struct {
	raw   syscall.RawConn
	fds   [1]unix.PollFd
	quiet bool
	look  func(fd uintptr)
}

func newProbe(nc net.Conn) *probe {
	p := &probe{}
	if sc, ok := nc.(syscall.Conn); ok {
		p.raw, _ = sc.SyscallConn() // fails only on a closed connection: then nothing is quiet
	}
	p.look = func(fd uintptr) {
		p.fds[0] = unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
		n, err := unix.Poll(p.fds[:], 0)
		p.quiet = err == unix.EINTR || (err == nil && n == 0)
	}
	return p
}

// isQuiet reports that nothing has come.
func (p *probe) isQuiet() bool {
	p.quiet = false
	return p.raw != nil && p.raw.Control(p.look) == nil && p.quiet
}
