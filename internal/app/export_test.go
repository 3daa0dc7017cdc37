package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/fx"

	"github.com/routerd/routerd/catalog"
	"github.com/routerd/routerd/catalog/health"
	"github.com/routerd/routerd/catalog/scrape"
	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/host"
	"github.com/routerd/routerd/ingress/zmq"
	"github.com/routerd/routerd/internal/config"
	"github.com/routerd/routerd/upstream"
)

// Validate checks the wiring of the whole router without making anything.
func Validate(cfg config.Config) error {
	return fx.ValidateApp(modules(context.Background(), cfg, &source{}, slog.New(slog.DiscardHandler), make(failures, 1), &addresses{}, &closers{}))
}

// Inside is what tests see and do in a router that has no other way to it.
type Inside struct {
	runtime    *host.Runtime
	monitor    *health.Monitor
	scraper    *scrape.Scraper
	upstream   *upstream.Client
	reconciler *catalog.Reconciler
	ingress    *zmq.DirectIngress
}

// StartWatched starts a router that can be looked into.
func StartWatched(ctx context.Context, cfg config.Config, load func() (config.Config, error), log *Log) (*App, *Inside, error) {
	in := &Inside{}
	a, err := start(ctx, cfg, &source{load: load, log: log}, log.Logger, fx.Populate(&in.runtime, &in.monitor, &in.scraper, &in.upstream, &in.reconciler, &in.ingress))
	return a, in, err
}

// Limits are those of guest modules.
func (in *Inside) Limits() host.Limits { return in.runtime.Limits() }

// Listens tells whether there is a stream of KV events of a rank.
func (in *Inside) Listens(w fleet.Worker) bool {
	_, ok := in.ingress.Status(w)
	return ok
}

// Plan makes a list that of a source behind the source's back.
func (in *Inside) Plan(source string, list []fleet.Record) error {
	_, err := in.reconciler.Plan(source, list)
	return err
}

// WatchSettings are by what the router watches its workers.
type WatchSettings struct {
	Health  health.Config
	Scrape  scrape.Config
	Breaker upstream.BreakerConfig
}

// Watching are those in force.
func (in *Inside) Watching() WatchSettings {
	return WatchSettings{Health: in.monitor.Config(), Scrape: in.scraper.Config(), Breaker: in.upstream.Breaker()}
}

// Metric describes one metric that the router registers.
type Metric struct{ Name, Help, Labels string }

// recorder registers as usual and keeps the descriptions.
type recorder struct {
	prometheus.Registerer
	metrics map[string]Metric
}

var description = regexp.MustCompile(`fqName: "([^"]*)", help: "((?:[^"\\]|\\.)*)", unit: "[^"]*", constLabels: \{[^}]*\}, variableLabels: \{([^}]*)\}`)

func (r *recorder) Register(c prometheus.Collector) error {
	descs := make(chan *prometheus.Desc, 1000)
	c.Describe(descs)
	close(descs)
	if len(descs) == 0 && fmt.Sprintf("%T", c) != "*host.guestCollector" { // it would stand in no reference; guests name their own
		return fmt.Errorf("%T describes no metric", c)
	}
	for d := range descs {
		if m := description.FindStringSubmatch(d.String()); len(m) > 3 && strings.HasPrefix(m[1], "routerd_") {
			r.metrics[m[1]] = Metric{m[1], m[2], m[3]}
		}
	}
	return r.Registerer.Register(c)
}

func (r *recorder) MustRegister(cs ...prometheus.Collector) {
	for _, c := range cs {
		if err := r.Register(c); err != nil {
			panic(err) // a bug in a test
		}
	}
}

// Metrics lists what a router registers, by name.
func Metrics(cfg config.Config) ([]Metric, error) {
	opened := &closers{}
	rec := &recorder{metrics: map[string]Metric{}}
	a := fx.New(
		modules(context.Background(), cfg, &source{}, slog.New(slog.DiscardHandler), make(failures, 1), &addresses{}, opened),
		fx.Decorate(func(r prometheus.Registerer) prometheus.Registerer {
			rec.Registerer = r
			return rec
		}))
	var out []Metric
	for _, m := range rec.metrics {
		out = append(out, m)
	}
	slices.SortFunc(out, func(a, b Metric) int { return strings.Compare(a.Name, b.Name) })
	return out, errors.Join(a.Err(), opened.closeAll())
}

// NewSelectionMetrics is the router's telemetry of its decisions.
func NewSelectionMetrics(reg prometheus.Registerer) core.Telemetry { return newSelectionMetrics(reg) }

// Indexes returns what opens partitions' indexes of blocks of one token, each bounded by so many bytes; their metrics
// are registered.
func Indexes(reg prometheus.Registerer, maxBytes int64) func(fleet.PartitionKey) zmq.Sink {
	c, err := newCaches(nil, config.Config{Index: config.Index{Kind: config.IndexExact, MaxBytes: config.Bytes(maxBytes)}}, slog.New(slog.DiscardHandler), reg)
	if err != nil {
		panic(err) // the registry is new
	}
	return func(key fleet.PartitionKey) zmq.Sink {
		index, _ := c.Open(key, 1) // it never fails
		return index.(zmq.Sink)
	}
}
