package host

import (
	"errors"
	"log/slog"
	"time"
)

// setback is what a pool could not make, and when it tries again: after 1 s, 2 s,
// 4 s and so on up to a minute. Memory that is short may come back at any time
// and refusing costs nothing: then it is 1 s. Guarded by its pool's mu.
type setback struct {
	fails int
	until time.Time
	err   error // nil while all is well
}

// Limits of a setback's waits.
const (
	setbackFirst = time.Second
	setbackMost  = time.Minute
)

// failed notes a failure, and tells the log of the first one.
func (s *setback) failed(p *pool, what string, err error) {
	wait := min(setbackFirst<<min(s.fails, 6), setbackMost)
	if errors.Is(err, errMemory) {
		wait = setbackFirst
	}
	if s.err == nil {
		p.rt.log.Warn("a plugin's pool cannot grow", slog.String("what", what), slog.String("plugin", p.module.manifest.Name), slog.String("digest", p.module.digest),
			slog.String("why", clip(err.Error(), maxWhy)))
	}
	s.fails++
	s.until, s.err = time.Now().Add(wait), err
	if !p.aside {
		p.rt.metrics.growthFailed.WithLabelValues(p.module.manifest.Name).Inc()
	}
}

// waits tells whether it is too early to try again.
func (s *setback) waits() bool { return s.err != nil && time.Now().Before(s.until) }
