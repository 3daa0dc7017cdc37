package app_test

import (
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/internal/app"
	"github.com/routerd/routerd/internal/config"
	"github.com/routerd/routerd/internal/testkit"
	"github.com/routerd/routerd/sim"
)

const indexToken = "token-of-the-index"

// serving is a router with these engines whose index others read at an address.
func serving(t *testing.T, listen string, engines ...*sim.Engine) config.Config {
	t.Helper()
	cfg := settings(t, engines...)
	cfg.Index.Serve = config.IndexServed{Listen: listen, TokenFile: tokenIn(t, indexToken)}
	return cfg
}

// reading is a router with these engines that reads the index at an address.
func reading(t *testing.T, url string, engines ...*sim.Engine) config.Config {
	t.Helper()
	cfg := settings(t, engines...)
	cfg.Index.Kind = config.IndexRemote
	cfg.Index.Remote = config.IndexRead{URL: url, TokenFile: tokenIn(t, indexToken), Deadline: config.Duration(time.Second)}
	return cfg
}

// counted is the value of a metric with these labels; -1 where there is none.
func counted(t *testing.T, a *app.App, metric string) float64 {
	t.Helper()
	m := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(metric) + ` (\S+)$`).FindStringSubmatch(adminText(t, a, "/metrics"))
	if m == nil {
		return -1
	}
	v, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// kvOf is what the admin API shows of where a worker's cache is known from.
type kvOf struct {
	Source  string `json:"kv_source"`
	Trusted bool   `json:"trusted"`
}

func kvsOf(t *testing.T, a *app.App) map[string]kvOf {
	t.Helper()
	var got struct {
		Workers []struct {
			Name  string `json:"name"`
			Ranks []kvOf `json:"ranks"`
		} `json:"workers"`
	}
	admin(t, a, "/v1/workers", &got)
	out := map[string]kvOf{}
	for _, w := range got.Workers {
		for _, r := range w.Ranks {
			out[w.Name] = r
		}
	}
	return out
}

// A router without events routes by what its primary knows, tells it of its decisions, goes
// by load while that is away and by its index again when it is back.
func TestARouterRoutesByTheIndexOfItsPrimary(t *testing.T) {
	for _, listen := range []string{"127.0.0.1:0", "unix"} {
		t.Run(listen, func(t *testing.T) {
			if listen == "unix" {
				listen = "unix:" + filepath.Join(t.TempDir(), "index")
			}
			engines := []*sim.Engine{engine(t, "e1", nil), engine(t, "e2", nil), engine(t, "e3", nil)}
			own := serving(t, listen, engines...)
			a := start(t, own)
			b := startReloadable(t, reading(t, a.IndexAddress(), engines...))
			waitForWorkers(t, b.App)
			prompt := func(topic int) string { return strings.Repeat(fmt.Sprintf("topic %d ", topic), 100) }
			holders := map[int]string{}
			for topic := range 4 {
				holders[topic] = complete(t, a, prompt(topic)+"one")
				waitForBlocks(t, a, holders[topic])
			}
			byCache := func() string {
				for topic, want := range holders {
					if got := complete(t, b.App, prompt(topic)+"two"); got != want {
						return fmt.Sprintf("topic %d went to %s, its prefix is on %s", topic, got, want)
					}
				}
				return ""
			}
			if wrong := byCache(); wrong != "" {
				t.Error(wrong)
			}
			for name, e := range map[string]*sim.Engine{"w1": engines[0], "w2": engines[1], "w3": engines[2]} {
				if b.inside.Listens(fleet.Worker{ID: fleet.IDFromName(name)}) || len(e.EventEndpoints()) == 0 {
					t.Errorf("there is a stream of %s, or it has none", name)
				}
			}
			for _, state := range []string{"unsynced", "live", "degraded", "replaying"} {
				if n := counted(t, b.App, `routerd_ingress_streams{state="`+state+`"}`); n > 0 {
					t.Errorf("%v streams are %s", n, state)
				}
			}
			if n := b.log.Count("kv_events of workers are not listened to"); n != 1 {
				t.Errorf("it is told %d times that events are not listened to", n)
			}
			remote := kvOf{"remote", true}
			if diff := cmp.Diff(map[string]kvOf{"w1": remote, "w2": remote, "w3": remote}, kvsOf(t, b.App)); diff != "" {
				t.Errorf("workers (-want +got)\n%s", diff)
			}
			if got := kvsOf(t, a)["w1"]; got != (kvOf{"events", true}) {
				t.Errorf("the primary's own: %+v", got)
			}
			testkit.Until(t, "the decisions reached the primary", func() bool {
				return counted(t, a, `routerd_index_serve_records_total{outcome="answered"}`) == 4
			})
			if n := counted(t, a, `routerd_index_serve_finds_total{outcome="answered"}`); n < 4 {
				t.Errorf("the primary counted %v finds", n)
			}

			at := a.IndexAddress()
			if err := a.Stop(t.Context()); err != nil {
				t.Error(err)
			}
			for topic := range 4 {
				complete(t, b.App, prompt(topic)+"three")
			}
			if got := kvsOf(t, b.App)["w1"]; got != (kvOf{"remote", false}) || counted(t, b.App, "routerd_index_remote_away") != 1 {
				t.Errorf("the primary is away: %+v", got)
			}
			own.Index.Serve.Listen = strings.TrimPrefix(at, "http://")
			own.DataDir = t.TempDir()
			a = start(t, own)
			defer func() { _ = a.Stop(t.Context()) }()
			testkit.Until(t, "its index is read again", func() bool {
				return counted(t, b.App, "routerd_index_remote_away") == 0 && byCache() == ""
			})
			if away, back := b.log.Count("the primary of the index is away"), b.log.Count("answers again"); away != 1 || back != 1 {
				t.Errorf("told %d times that it went, %d that it came", away, back)
			}
		})
	}
}

// Without the token nobody reads the index, and who has a wrong one routes by load.
func TestAServedIndexAsksForItsToken(t *testing.T) {
	engines := []*sim.Engine{engine(t, "e1", nil)}
	a := start(t, serving(t, "127.0.0.1:0", engines...))
	defer func() { _ = a.Stop(t.Context()) }()
	resp, err := client.Post(a.IndexAddress()+"/index/v1/find", "application/octet-stream", strings.NewReader("rdix"))
	if err != nil || resp.Body.Close() != nil || resp.StatusCode != http.StatusUnauthorized {
		t.Fatal(err, resp)
	}
	cfg := reading(t, a.IndexAddress(), engines...)
	cfg.Index.Remote.TokenFile = tokenIn(t, "another token")
	b := startReloadable(t, cfg)
	waitForWorkers(t, b.App)
	complete(t, b.App, strings.Repeat("some text ", 100))
	if n := counted(t, b.App, `routerd_index_remote_finds_total{outcome="status"}`); n != 1 || b.log.Count(`is away; requests are routed by load" component=index reason=status`) != 1 {
		t.Errorf("%v finds were refused", n)
	}
	if n := counted(t, a, "routerd_index_serve_refused_total"); n != 0 {
		t.Errorf("%v messages were read of who has no token", n)
	}
}

func TestATokenFileOfTheIndexThatIsAwayStopsTheStart(t *testing.T) {
	for key, change := range map[string]func(*config.Config){
		"index.serve.token_file": func(c *config.Config) {
			c.Index.Serve = config.IndexServed{Listen: "127.0.0.1:0", TokenFile: "/none"}
		},
		"index.remote.token_file": func(c *config.Config) {
			c.Index.Kind, c.Index.Remote = config.IndexRemote, config.IndexRead{URL: "unix:/none", TokenFile: "/none", Deadline: config.Duration(time.Second)}
		},
	} {
		cfg := settings(t)
		change(&cfg)
		a, err := app.Start(t.Context(), cfg, app.NewLog(cfg.Log, t.Output()).Logger)
		if err == nil {
			_ = a.Stop(t.Context())
		}
		if err == nil || !strings.Contains(err.Error(), key+": open /none") {
			t.Errorf("%s: got %v", key, err)
		}
	}
}
