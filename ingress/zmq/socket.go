package zmq

import (
	"strings"
	"syscall"

	zmq4 "github.com/pebbe/zmq4"
)

// prepareSocket sets what all sockets that listen to engines have in common: how they
// keep a connection to the endpoint, the keys, and the largest message in bytes; ZeroMQ
// cuts off who sends a larger one.
func prepareSocket(s *zmq4.Socket, cfg *Config, keys *keyPair, largest int64, endpoint string) error {
	for _, err := range []error{
		s.SetLinger(0),
		s.SetReconnectIvl(cfg.ReconnectIvl),
		s.SetReconnectIvlMax(cfg.ReconnectIvlMax),
		s.SetMaxmsgsize(largest),
		s.SetHeartbeatIvl(cfg.Heartbeat),
		s.SetHeartbeatTimeout(5 * cfg.Heartbeat / 2), // three probes
		s.SetConnectTimeout(cfg.Heartbeat),           // the kernel alone waits longer each time, up to minutes
		s.SetHandshakeIvl(3 * cfg.Heartbeat),
		s.SetIpv6(strings.Contains(endpoint, "[")),
		keys.use(s),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}

func closeSocket(s *zmq4.Socket) {
	_ = s.SetLinger(0) // it cannot fail on an open socket
	_ = s.Close()      // nor can this
}

// interrupted tells whether a signal ended the wait of a poll.
func interrupted(err error) bool { return zmq4.AsErrno(err) == zmq4.Errno(syscall.EINTR) }
