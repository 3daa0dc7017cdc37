package app

import (
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.uber.org/fx"
	"go.uber.org/fx/fxevent"
)

func telemetryModule() fx.Option {
	return fx.Module("telemetry",
		fx.Provide(newRegistry, func(r *prometheus.Registry) (prometheus.Registerer, prometheus.Gatherer) { return r, r }),
		fx.Provide(newReloadMetrics),
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
