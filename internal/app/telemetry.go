package app

import (
	"io"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.uber.org/fx"
	"go.uber.org/fx/fxevent"

	"github.com/routerd/routerd/internal/config"
)

// NewLogger makes the daemon's log from a checked configuration.
func NewLogger(cfg config.Log, w io.Writer) *slog.Logger {
	levels := map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}
	opts := &slog.HandlerOptions{Level: levels[cfg.Level]}
	if cfg.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}

func telemetryModule() fx.Option {
	return fx.Module("telemetry",
		fx.Provide(newRegistry, func(r *prometheus.Registry) (prometheus.Registerer, prometheus.Gatherer) { return r, r }),
	)
}

func newRegistry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// wiringLog shows the wiring at debug level only.
func wiringLog(log *slog.Logger) fxevent.Logger {
	l := &fxevent.SlogLogger{Logger: log.With("component", "app")}
	l.UseLogLevel(slog.LevelDebug)
	l.UseErrorLevel(slog.LevelDebug) // Start returns the error, in its own words
	return l
}
