package selection

import (
	"context"

	"github.com/routerd/routerd/core"
)

// ready tells whether any worker can be selected, and lists all.
func (s *Server) ready(_ context.Context, x *exchange) error {
	all := s.parts.Workers.List()
	n := 0
	for i := range all {
		if all[i].Lifecycle == core.Ready {
			n++
		}
	}
	status := 200
	if n == 0 {
		status = 503
	}
	return x.reply(status, readyAnswer{Ready: n > 0, SchedulableWorkers: n, Workers: answersOf(all)})
}
