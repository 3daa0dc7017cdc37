package clientwatch

import "net"

// Listener hands out watched connections. Put TLS above it.
type Listener struct {
	net.Listener
	w *Watcher
}

// Accept returns the next connection, always a *Conn.
func (l *Listener) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return l.w.adopt(nc), nil
}

// tune sets keep-alive and the user time-out. They are set here because a
// server sees only the wrapper, which hides these methods. A connection that
// refuses is served all the same.
func tune(nc net.Conn, cfg Config) {
	tc, ok := nc.(*net.TCPConn)
	if !ok {
		return
	}
	if cfg.KeepAlive > 0 {
		_ = tc.SetKeepAliveConfig(net.KeepAliveConfig{
			Enable: true, Idle: cfg.KeepAlive, Interval: cfg.KeepAlive / 3, Count: 3,
		})
	} else {
		_ = tc.SetKeepAlive(false)
	}
	if cfg.UserTimeout > 0 {
		setUserTimeout(tc, cfg.UserTimeout)
	}
}
