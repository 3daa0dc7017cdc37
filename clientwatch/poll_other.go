//go:build !linux

package clientwatch

import (
	"net"
	"sync"
	"time"
)

// poller of a system without epoll watches nothing.
type poller struct {
	once sync.Once
	done chan struct{}
}

func newPoller(bool) (*poller, error) { return &poller{done: make(chan struct{})}, nil }

func (p *poller) hungUp(net.Conn) bool { return false }

func (p *poller) add(net.Conn, uint64) error { return nil }

func (p *poller) run(func(uint64)) error {
	<-p.done
	return nil
}

func (p *poller) wake() { p.once.Do(func() { close(p.done) }) }

func (p *poller) close() error { return nil }

func setUserTimeout(*net.TCPConn, time.Duration) {}
