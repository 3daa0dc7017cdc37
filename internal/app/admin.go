package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/fx"

	"github.com/routerd/routerd/admin"
	"github.com/routerd/routerd/catalog"
	"github.com/routerd/routerd/catalog/adapters"
	"github.com/routerd/routerd/catalog/api"
	"github.com/routerd/routerd/catalog/scrape"
	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/host"
	"github.com/routerd/routerd/host/library"
	"github.com/routerd/routerd/internal/config"
	"github.com/routerd/routerd/prompt"
	"github.com/routerd/routerd/upstream"
)

// adminModule is the admin API. It starts before the frontend and stops after
// it, so that it tells of a drain.
func adminModule() fx.Option {
	return fx.Module("admin", fx.Provide(newReadiness, newAdmin), fx.Invoke(followAdmin, serveAdmin))
}

// readiness is whether the frontend takes requests; nil means ready.
type readiness struct{ reason atomic.Pointer[string] }

func newReadiness() *readiness {
	r := &readiness{}
	r.set("starting")
	return r
}

func (r *readiness) set(reason string) { r.reason.Store(&reason) }

func (r *readiness) check() error {
	if reason := *r.reason.Load(); reason != "" {
		return errors.New(reason)
	}
	return nil
}

// adminParts are what the admin API shows and changes.
type adminParts struct {
	fx.In

	Modules   *library.Library
	Runtime   *host.Runtime
	Policies  *host.PolicySource
	Workers   *catalog.Reconciler
	Tokenizer *prompt.Tokenizer
	Adapters  *adapters.Manager
	Upstream  *upstream.Client
	Source    *api.Source
	Sources   *catalog.Sources
	Scraper   *scrape.Scraper
	Core      *core.SelectionCore
	Indexes   indexes
	Gatherer  prometheus.Gatherer
	Readiness *readiness
	DataDir   *dataDir
	Addresses *addresses
	Live      *live
	Reloads   *reloads
	Log       *slog.Logger
}

func newAdmin(p adminParts) (*admin.Server, error) {
	ac, err := adminConfig(p.Live.Load(), p.DataDir)
	if err != nil {
		return nil, err
	}
	p.Addresses.token.Store(&ac.Token)
	return admin.New(ac, admin.Parts{
		Modules: p.Modules, Policies: p.Policies, Workers: workerList{p.Workers, p.Indexes, p.Scraper, p.Core, p.Tokenizer, p.Adapters, p.Upstream}, WorkerSource: p.Source,
		Drains: p.Workers, Sources: p.Sources, Partitions: p.Core,
		Kv: p.Indexes, Decisions: p.Core.Decisions(), Metrics: p.Gatherer, Config: p.Reloads, Ready: p.Readiness.check,
		Limits: p.Runtime.Limits,
	}, p.Log.With("component", "admin"))
}

// adminConfig is what the configuration says of the admin API, with the token as
// its file has it now.
func adminConfig(cfg *config.Config, d *dataDir) (admin.Config, error) {
	file := tokenFile(cfg, d)
	ac := admin.DefaultConfig()
	ac.MaxBody, ac.MetricsPublic = int64(cfg.Admin.MaxBody), cfg.Admin.MetricsPublic
	var err error
	ac.Token, err = admin.LoadOrMakeToken(file)
	return ac, err
}

// tokenFile is where the token is: the configured path, or one in the data folder.
func tokenFile(cfg *config.Config, d *dataDir) string {
	if cfg.Admin.TokenFile != "" {
		return cfg.Admin.TokenFile
	}
	return d.file("admin.token")
}

// reloadedAdmin is adminConfig for a reload. It makes no token where a path of
// the operator's has none: a mistyped one would lock the operator out.
func reloadedAdmin(cfg *config.Config, d *dataDir) (admin.Config, error) {
	if file := tokenFile(cfg, d); file != d.file("admin.token") {
		if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
			return admin.Config{}, fmt.Errorf("%q does not exist; allowed: a file with a token, which only a start makes", file)
		}
	}
	ac, err := adminConfig(cfg, d)
	if err != nil {
		return ac, err
	}
	return ac, ac.Validate()
}

// followAdmin has the admin API follow the configuration, and the token its
// file.
func followAdmin(r *reloads, s *admin.Server, d *dataDir, addr *addresses) {
	r.follow(settingsLast, part{prepare: func(_ context.Context, now *config.Config) (prepared, error) {
		ac, err := reloadedAdmin(now, d)
		if err != nil {
			return prepared{}, &admin.ReloadError{Code: admin.CodeInvalid, Step: admin.ReloadPrepare, Problems: []admin.ReloadProblem{
				{Key: "admin.token_file", Text: "admin.token_file: " + err.Error()},
			}}
		}
		var changed []string
		if ac.Token != *addr.token.Load() {
			changed = []string{"admin.token_file"}
		}
		return prepared{changed: changed, publish: func() error {
			addr.token.Store(&ac.Token)
			return s.Configure(ac)
		}}, nil
	}})
}

// serveAdmin opens the listener at start and ends its calls at stop.
func serveAdmin(lc fx.Lifecycle, cfg config.Config, s *admin.Server, addr *addresses, failed failures) {
	served := make(chan struct{})
	lc.Append(fx.Hook{
		OnStart: func(ctx context.Context) error {
			ln, err := listen(ctx, "admin.listen", cfg.Admin.Listen)
			if err != nil {
				return err
			}
			addr.admin = ln.Addr().String()
			go func() {
				defer close(served)
				if err := s.Serve(ln); err != nil {
					failed.report(fmt.Errorf("admin API: %w", err))
				}
			}()
			return nil
		},
		OnStop: func(ctx context.Context) error {
			err := s.Shutdown(ctx)
			<-served
			return err
		},
	})
}
