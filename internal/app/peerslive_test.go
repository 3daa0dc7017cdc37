package app_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/internal/app"
	"github.com/routerd/routerd/internal/config"
	"github.com/routerd/routerd/sim"
)

// tiers are the hashes that are held, by tier.
type tiers map[string][]string

// rankKV is what a router says of one worker's cache; the workers have one rank each.
type rankKV struct {
	Name string `json:"name"`
	KV   struct {
		Hashes  tiers `json:"hashes"`
		Trusted bool  `json:"trusted"`
	} `json:"kv"`
}

// ofEach reads something of each worker's cache.
func ofEach[V any](t *testing.T, a *app.App, read func(rankKV) V) map[string]V {
	t.Helper()
	var got struct {
		Partitions []struct {
			Ranks []rankKV `json:"ranks"`
		} `json:"partitions"`
	}
	admin(t, a, "/v1/partitions?blocks=1", &got)
	all := map[string]V{}
	for _, p := range got.Partitions {
		for _, r := range p.Ranks {
			all[r.Name] = read(r)
		}
	}
	return all
}

// known is what a router's index has of each worker.
func known(t *testing.T, a *app.App) map[string]tiers {
	t.Helper()
	return ofEach(t, a, func(r rankKV) tiers { return r.KV.Hashes })
}

// truth is what the engines really hold.
func truth(t *testing.T, engines []*sim.Engine) map[string]tiers {
	t.Helper()
	all := map[string]tiers{}
	for i, e := range engines {
		resp, err := client.Get(e.URL() + "/sim/blocks")
		if err != nil {
			t.Fatal(err)
		}
		var got struct {
			Ranks []struct {
				Hashes tiers `json:"hashes"`
			} `json:"ranks"`
		}
		if err := json.NewDecoder(resp.Body).Decode(&got); err != nil || resp.Body.Close() != nil {
			t.Fatal(err)
		}
		all[fmt.Sprintf("w%d", i+1)] = got.Ranks[0].Hashes
	}
	return all
}

// waitForTruth waits until a router's index has what the engines hold.
func waitForTruth(t *testing.T, a *app.App, engines []*sim.Engine) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	for {
		diff := cmp.Diff(truth(t, engines), known(t, a))
		if diff == "" {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("the index never was as the engines (-engines +index)\n%s", diff)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// small is an engine that soon evicts.
func small(c *sim.Config) { c.Blocks, c.Slots = 96, 1 }

// withPeer is withService with these engines as workers and a peer. Without replay
// the router does not know where the engines answer such requests.
func withPeer(t *testing.T, engines []*sim.Engine, replay bool, peers ...string) config.Config {
	t.Helper()
	cfg := settings(t, engines...)
	cfg.Selection.Listen, cfg.Index.Peers = "127.0.0.1:0", peers
	for i := range cfg.Workers.Static {
		if !replay {
			cfg.Workers.Static[i].Replay = nil
		}
	}
	return cfg
}

// adminText is the text of an answer of the admin API.
func adminText(t *testing.T, a *app.App, path string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, a.AdminURL()+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+a.Token())
	return textOf(t, req)
}

// tokensOf are the ids of a prompt as the engine has them, in JSON.
func tokensOf(t *testing.T, e *sim.Engine, prompt string) string {
	t.Helper()
	body := fmt.Sprintf(`{"model":"m","prompt":%q}`, prompt)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, e.URL()+"/tokenize", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Tokens json.RawMessage `json:"tokens"`
	}
	if err := json.Unmarshal([]byte(textOf(t, req)), &got); err != nil {
		t.Fatal(err)
	}
	return string(got.Tokens)
}

func textOf(t *testing.T, req *http.Request) string {
	t.Helper()
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.Body.Close() != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("status %d, %v: %s", resp.StatusCode, err, text)
	}
	return string(text)
}

// waitForStreams waits until so many streams are connected of which nothing was
// heard.
func waitForStreams(t *testing.T, a *app.App, n int) {
	t.Helper()
	want := fmt.Sprintf("\nrouterd_ingress_streams{state=\"unsynced\"} %d\n", n)
	deadline := time.After(10 * time.Second)
	for {
		if strings.Contains(adminText(t, a, "/metrics"), want) {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("the metrics never had %s", want)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// A second router knows what the first one learned from the engines before it hears
// one event, and what they tell after that, evictions included, keeps it right.
func TestWhatAPeerKnewGoesOnWithLiveEvents(t *testing.T) {
	engines := []*sim.Engine{engine(t, "e1", small), engine(t, "e2", small)}
	a := start(t, withPeer(t, engines, true))
	defer func() { _ = a.Stop(t.Context()) }()
	prompt := func(topic, turns int) string { return strings.Repeat(fmt.Sprintf("topic %d ", topic), 30*turns) }
	for topic := range 6 {
		complete(t, a, prompt(topic, 1+topic%3))
	}
	waitForTruth(t, a, engines)

	b := start(t, withPeer(t, engines, false, a.SelectionAddress()))
	defer func() { _ = b.Stop(t.Context()) }()
	if diff := cmp.Diff(known(t, a), known(t, b)); diff != "" {
		t.Fatalf("(-first +second)\n%s", diff)
	}
	for topic := range 6 {
		body := `{"model_name":"m","token_ids":` + tokensOf(t, engines[0], prompt(topic, 3)) + `}`
		want, got := serviceText(t, a, http.MethodPost, "/overlap_scores", body), serviceText(t, b, http.MethodPost, "/overlap_scores", body)
		if want != got || strings.Count(want, `"device_blocks":0,`) == len(engines) {
			t.Errorf("overlap scores: first %s, second %s", want, got)
		}
	}
	waitForStreams(t, b, 2)
	for topic := range 12 {
		complete(t, a, prompt(topic, 1+topic%4))
	}
	waitForTruth(t, b, engines)
}

// What no worker took over is not kept for ever: it may be large, and it gets old.
func TestWhatNoWorkerTookOverFromAPeerIsForgotten(t *testing.T) {
	for after, want := range map[time.Duration]int{59 * time.Second: 1, 61 * time.Second: 0} {
		synctest.Test(t, func(t *testing.T) {
			if got := app.KeptOfAPeer(after); got != want {
				t.Errorf("after %s %d ranks are kept, want %d", after, got, want)
			}
		})
	}
}

// What a peer knew of an engine's last life is gone once the engine tells its whole
// new one.
func TestALifeThatAnEngineTellsWholeReplacesWhatAPeerKnew(t *testing.T) {
	for name, replay := range map[string]bool{"by replay": true, "live": false} {
		t.Run(name, func(t *testing.T) {
			engines := []*sim.Engine{engine(t, "e1", small)}
			a := start(t, withPeer(t, engines, true))
			complete(t, a, strings.Repeat("old ", 100))
			waitForTruth(t, a, engines)
			old := serviceText(t, a, http.MethodGet, "/dump", "")
			if err := a.Stop(t.Context()); err != nil {
				t.Fatal(err)
			}
			resp, err := client.Post(engines[0].URL()+"/sim/restart", "application/json", nil)
			if err != nil || resp.Body.Close() != nil || resp.StatusCode != http.StatusOK {
				t.Fatal(err, resp)
			}
			peer := fakeWorker(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, old) })
			b := start(t, withPeer(t, engines, replay, peer))
			defer func() { _ = b.Stop(t.Context()) }()
			if !replay {
				waitForStreams(t, b, 1)
			}
			complete(t, b, strings.Repeat("new ", 100))
			waitForTruth(t, b, engines)
		})
	}
}
