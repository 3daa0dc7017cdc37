package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/routerd/routerd/internal/app"
	"github.com/routerd/routerd/internal/cli"
)

const (
	tableEvery = time.Second
	lineEvery  = 5 * time.Second
)

// screen shows how the router stands, as its admin API tells.
type screen struct {
	out      io.Writer
	terminal bool
	router   *app.App
	client   *cli.Client
	talk     *traffic
	engines  map[string]string   // base URL by name
	counts   map[string][]tokens // by name, what was read in the last window
}

// tokens are an engine's counts since its start.
type tokens struct{ queried, cached float64 }

// window is what the hit rate spans.
const window = 10 * time.Second

func (s *screen) run(ctx context.Context) error {
	tick := time.NewTicker(s.every())
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := s.show(ctx); err != nil && ctx.Err() == nil {
			return err
		}
	}
}

// every is how long the screen stands.
func (s *screen) every() time.Duration {
	if s.terminal {
		return tableEvery
	}
	return lineEvery
}

// partition is what the screen reads of GET /v1/partitions.
type partition struct {
	Policy struct {
		Name     string `json:"name"`
		Revision int    `json:"revision"`
	} `json:"policy"`
	Ranks []struct {
		Name      string `json:"name"`
		Lifecycle string `json:"lifecycle"`
		Load      struct {
			Prefill int `json:"prefill_tokens"`
			Decode  int `json:"decode_blocks"`
			Active  int `json:"active_requests"`
		} `json:"load"`
		KV struct {
			Blocks  map[string]int `json:"blocks"`
			Trusted bool           `json:"trusted"`
		} `json:"kv"`
	} `json:"ranks"`
}

func (s *screen) show(ctx context.Context) error {
	var got struct {
		Partitions []partition `json:"partitions"`
	}
	if err := s.client.Do(ctx, "GET", "/v1/partitions?model="+Model, nil, &got); err != nil {
		return fmt.Errorf("read partitions: %w", err)
	}
	if len(got.Partitions) == 0 {
		return nil
	}
	text := s.line(ctx, got.Partitions[0])
	if s.terminal {
		text = s.table(ctx, got.Partitions[0])
	}
	if _, err := io.WriteString(s.out, text); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}

// rate is the share of prompt tokens that an engine had cached in the last
// window, by its own count.
func (s *screen) rate(ctx context.Context, worker string) string {
	now, err := s.read(ctx, worker)
	if err != nil {
		return "-"
	}
	kept := s.counts[worker]
	kept = append(kept[max(0, len(kept)-int(window/s.every())):], now)
	s.counts[worker] = kept
	queried := now.queried - kept[0].queried
	if queried == 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f%%", 100*(now.cached-kept[0].cached)/queried)
}

func (s *screen) read(ctx context.Context, worker string) (tokens, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.engines[worker]+"/sim/stats", http.NoBody)
	if err != nil {
		return tokens{}, err
	}
	resp, err := s.talk.client.Do(req)
	if err != nil {
		return tokens{}, err
	}
	var got struct {
		Ranks []struct {
			Queried float64 `json:"queried_tokens"`
			Cached  float64 `json:"cached_tokens"`
		} `json:"ranks"`
	}
	if err := errors.Join(json.NewDecoder(resp.Body).Decode(&got), resp.Body.Close()); err != nil {
		return tokens{}, err
	}
	var sum tokens
	for _, r := range got.Ranks {
		sum.queried += r.Queried
		sum.cached += r.Cached
	}
	return sum, nil
}

// line is the state on one line, for a log.
func (s *screen) line(ctx context.Context, p partition) string {
	var b strings.Builder
	fmt.Fprintf(&b, "policy=%s@%d sent=%d failed=%d", p.Policy.Name, p.Policy.Revision, s.talk.sent.Load(), s.talk.failed.Load())
	for _, r := range p.Ranks {
		fmt.Fprintf(&b, " %s[active=%d blocks=%d hits=%s]", r.Name, r.Load.Active, r.KV.Blocks["device"], s.rate(ctx, r.Name))
	}
	return b.String() + "\n"
}

// table redraws the screen.
func (s *screen) table(ctx context.Context, p partition) string {
	var b strings.Builder
	b.WriteString("\x1b[H\x1b[2J") // home, clear
	fmt.Fprintf(&b, "routerd demo   frontend %s   admin %s   Ctrl-C ends it\n", s.router.FrontendURL(), s.router.AdminURL())
	fmt.Fprintf(&b, "policy %s@%d   requests %d   failed %d\n\n", p.Policy.Name, p.Policy.Revision, s.talk.sent.Load(), s.talk.failed.Load())
	w := tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "WORKER\tSTATE\tACTIVE\tPREFILL TOKENS\tDECODE BLOCKS\tCACHED BLOCKS\tHIT RATE")
	for _, r := range p.Ranks {
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%d\t%s\n", r.Name, r.Lifecycle, r.Load.Active, r.Load.Prefill, r.Load.Decode, r.KV.Blocks["device"], s.rate(ctx, r.Name))
	}
	if err := w.Flush(); err != nil {
		return err.Error() // a strings.Builder takes everything
	}
	b.WriteString("\nTry in another terminal:\n" + s.tries())
	return b.String()
}

// tries are three commands for a newcomer.
func (s *screen) tries() string {
	return fmt.Sprintf(`  export ROUTERD_ADMIN_URL=%s ROUTERD_ADMIN_TOKEN=%s
  curl -i %s/v1/completions -H 'content-type: application/json' -d '{"model":%q,"prompt":"Once upon a time","max_tokens":16}'
  bin/routerd policy rollback default
  bin/routerd decisions
`, s.router.AdminURL(), s.router.Token(), s.router.FrontendURL(), Model)
}
