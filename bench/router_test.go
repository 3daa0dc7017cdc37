package bench_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/internal/app"
	"github.com/routerd/routerd/internal/cli"
	"github.com/routerd/routerd/internal/config"
)

// serveRouter is the whole program as `routerd serve` has it, with static
// workers and without tokenising: the workers here have no tokenizer, and its
// answers would come from the cache. Policy is builtin:kv-aware, or the module
// in the named file.
func serveRouter(module string, urls []string) ([]string, func() error, error) {
	dir, err := os.MkdirTemp("", "routerd-bench-")
	if err != nil {
		return nil, nil, fmt.Errorf("make a folder: %w", err)
	}
	cfg := config.DefaultConfig()
	cfg.DataDir = dir
	cfg.Frontend.Listen, cfg.Admin.Listen = "127.0.0.1:0", "127.0.0.1:0"
	cfg.Models = map[string]config.Model{"m": {BlockSize: 16, Tokenize: "off"}}
	for i, u := range urls {
		rec, err := fleet.Record{ID: fleet.WorkerID(i + 1), Name: fmt.Sprintf("w%d", i+1), URL: "http://" + u, Model: "m"}.Normalised()
		if err != nil {
			return nil, nil, errors.Join(err, os.RemoveAll(dir))
		}
		cfg.Workers.Static = append(cfg.Workers.Static, rec)
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	a, err := app.Start(context.Background(), cfg, log)
	if err != nil {
		return nil, nil, errors.Join(err, os.RemoveAll(dir))
	}
	stop := func() error { return errors.Join(a.Stop(context.Background()), os.RemoveAll(dir)) }
	addrs := []string{strings.TrimPrefix(a.FrontendURL(), "http://")}
	if module == "" {
		return addrs, stop, nil
	}
	client := cli.NewClient(a.AdminURL(), a.Token())
	if err := activate(client, module); err != nil {
		return nil, nil, errors.Join(err, stop())
	}
	return addrs, func() error { return errors.Join(decided(client), stop()) }, nil
}

// decided refuses figures of a module that are largely those of its fallback.
func decided(client *cli.Client) error {
	var policy struct {
		Stats policyStats `json:"stats"`
	}
	if err := client.Do(context.Background(), "GET", "/v1/policies/default", nil, &policy); err != nil {
		return err
	}
	return policy.Stats.check()
}

// policyStats is what is read of a policy's counts.
type policyStats struct {
	Calls     uint64            `json:"calls"`
	Fallbacks uint64            `json:"fallbacks"`
	Faults    map[string]uint64 `json:"faults"`
}

func (s policyStats) check() error {
	if s.Calls == 0 || s.Fallbacks > s.Calls/100 {
		return fmt.Errorf("%d of %d decisions were the fallback's, at most 1 %% may be; faults %v", s.Fallbacks, s.Calls, s.Faults)
	}
	return nil
}

func TestFiguresOfTheFallbackAreRefused(t *testing.T) {
	for _, tc := range []struct {
		stats policyStats
		ok    bool
	}{
		{policyStats{Calls: 1000}, true},
		{policyStats{Calls: 1000, Fallbacks: 10}, true},
		{policyStats{Calls: 1000, Fallbacks: 11}, false},
		{policyStats{}, false},
	} {
		if err := tc.stats.check(); (err == nil) != tc.ok {
			t.Errorf("%+v: got %v", tc.stats, err)
		}
	}
}

// activate makes the module in the file the only scorer.
func activate(client *cli.Client, file string) error {
	wasm, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read module: %w", err)
	}
	ctx := context.Background()
	if err := client.Do(ctx, "PUT", "/v1/modules/kv-aware", wasm, nil); err != nil {
		return err
	}
	spec := map[string]any{"scorers": []any{map[string]any{"use": "module:kv-aware"}}}
	var made struct {
		Revision int `json:"revision"`
	}
	if err := client.Do(ctx, "PUT", "/v1/policies/default", spec, &made); err != nil {
		return err
	}
	return client.Do(ctx, "POST", "/v1/policies/default/activate", map[string]any{"revision": made.Revision}, nil)
}
