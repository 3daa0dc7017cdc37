package zmq

import (
	"log/slog"
	"testing"
	"time"

	"github.com/routerd/routerd/internal/testkit"
)

func TestFaultsThatTakeTurnsAreToldOnceEach(t *testing.T) {
	log, cfg, now := new(testkit.Log), DefaultConfig(), time.Now()
	s := &subscription{ingress: &DirectIngress{log: slog.New(slog.NewTextHandler(log, nil))}, link: link{cfg: &cfg}}
	turns := func(n int) {
		for range n {
			for _, why := range []string{"one side uses CURVE", "the engine ended the connection"} {
				s.accuse(why)
			}
		}
	}
	turns(20)
	if n := log.Count("cannot listen to KV events"); n != 2 {
		t.Errorf("told %d times:\n%s", n, log)
	}
	s.link.calm(now)
	s.link.tick(now.Add(2 * cfg.ReconnectIvlMax))
	if turns(1); s.link.fault == "" || log.Count("cannot listen to KV events") != 4 {
		t.Errorf("after it was over:\n%s", log)
	}
}
