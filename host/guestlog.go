package host

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Rate of the lines of one pool's guests.
const (
	logRate  = 20 // a second
	logBurst = 40
)

// guestLog is where the guests of one pool write, thinned out. Safe for
// concurrent use.
type guestLog struct {
	log     *slog.Logger
	mute    bool // no outside effect: self-test, audit and measuring
	dropped atomic.Uint64
	lost    prometheus.Counter // the same, over all pools of the plugin

	mu     sync.Mutex // guards all below
	tokens float64
	at     time.Time
}

func newGuestLog(log *slog.Logger, plugin, digest string, lost prometheus.Counter) *guestLog {
	return &guestLog{log: log.With(slog.String("plugin", plugin), slog.String("digest", digest)), lost: lost, tokens: logBurst}
}

// write logs one line, which is cut and escaped, or counts it when there were too
// many.
func (g *guestLog) write(level int32, text string) {
	if g.mute {
		return
	}
	if !g.allow(time.Now()) {
		g.drop(1)
		return
	}
	levels := [...]slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn}
	lv := slog.LevelError
	if level >= 0 && int(level) < len(levels) {
		lv = levels[level]
	}
	attrs := []slog.Attr{slog.String("text", text)}
	if n := g.dropped.Load(); n > 0 {
		attrs = append(attrs, slog.Uint64("dropped", n))
	}
	g.log.LogAttrs(context.Background(), lv, "plugin says", attrs...)
}

// drop counts lines that are not logged.
func (g *guestLog) drop(lines int) {
	if g.mute {
		return
	}
	g.dropped.Add(uint64(lines))
	g.lost.Add(float64(lines))
}

func (g *guestLog) allow(now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.at.IsZero() {
		g.tokens = min(logBurst, g.tokens+now.Sub(g.at).Seconds()*logRate)
	}
	g.at = now
	if g.tokens < 1 {
		return false
	}
	g.tokens--
	return true
}
