//go:build e2e

package e2e_test

import (
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/routerd/routerd/sim"
)

// cuttable is a TCP relay that cuts off its connections and takes no new ones for a while.
type cuttable struct {
	from, to string

	mu    sync.Mutex // guards all below
	ln    net.Listener
	conns map[net.Conn]struct{}
	wg    sync.WaitGroup
}

// open listens.
func (c *cuttable) open() error {
	ln, err := net.Listen("tcp", c.from)
	if err != nil {
		return fmt.Errorf("open relay to %s: %w", c.to, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ln, c.conns = ln, map[net.Conn]struct{}{}
	c.wg.Go(func() {
		for {
			in, err := ln.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", c.to)
			if err != nil || !c.hold(ln, in, out) {
				_ = in.Close()
				continue
			}
			for _, pair := range [][2]net.Conn{{in, out}, {out, in}} {
				c.wg.Go(func() {
					_, _ = io.Copy(pair[0], pair[1])
					_, _ = pair[0].Close(), pair[1].Close()
				})
			}
		}
	})
	return nil
}

// hold notes connections to cut, unless that was done already.
func (c *cuttable) hold(ln net.Listener, conns ...net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range conns {
		if c.ln != ln {
			_ = conn.Close()
		} else {
			c.conns[conn] = struct{}{}
		}
	}
	return c.ln == ln
}

// cut ends all connections and listens no more.
func (c *cuttable) cut() {
	c.mu.Lock()
	if c.ln != nil {
		_ = c.ln.Close()
		c.ln = nil
	}
	for conn := range c.conns {
		_ = conn.Close()
	}
	c.mu.Unlock()
	c.wg.Wait()
}

// chaosEngine is a worker with many ranks, each with a publisher of its own, to which the router goes by a relay. How
// much its publishers can repeat differs.
type chaosEngine struct {
	flappingEngine

	ranks  int
	keeps  int  // batches for a replay
	asked  bool // it answers replays
	relays []*cuttable
	joined bool // of the goroutine that disturbs
}

// Ports of rank 0; the ranks follow.
const (
	chaosEvents, chaosReplay           = 6000, 7000
	chaosRelayEvents, chaosRelayReplay = 10_000, 11_000
)

func (e *chaosEngine) config(c *sim.Config) {
	c.Model, c.BlockSize, c.Blocks, c.AnswerTokens, c.Ranks, c.BufferSteps = "m", 16, 64, 2, e.ranks, e.keeps
	c.EventsListen, c.ReplayListen = fmt.Sprintf("tcp://%s:%d", e.host, chaosEvents), ""
	if e.asked {
		c.ReplayListen = fmt.Sprintf("tcp://%s:%d", e.host, chaosReplay)
	}
}

// record is the worker as the router gets it.
func (e *chaosEngine) record() map[string]any {
	events, replay := map[string]string{}, map[string]string{}
	for r := range e.ranks {
		events[fmt.Sprint(r)] = fmt.Sprintf("tcp://%s:%d", e.host, chaosRelayEvents+r)
		if e.asked {
			replay[fmt.Sprint(r)] = fmt.Sprintf("tcp://%s:%d", e.host, chaosRelayReplay+r)
		}
	}
	return map[string]any{
		"id": e.id, "name": e.name(), "url": e.url(), "model": "m", "engine": "vllm", "block_size": 16, "dp_size": e.ranks,
		"no_health_check": true, "kv_events": events, "replay": replay,
	}
}

// chaos is a router that listens to engines which are disturbed.
type chaos struct {
	t       *testing.T
	r       *router
	client  *http.Client
	engines []*chaosEngine
	away    sync.WaitGroup // what comes again by itself
	acts    map[string]int
}

func startChaos(t *testing.T) *chaos {
	t.Helper()
	c := &chaos{t: t, acts: map[string]int{}, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8}, Timeout: time.Minute}}
	t.Cleanup(c.client.CloseIdleConnections)
	c.r = startRouter(t, "models: {m: {block_size: 16}}\nworkers: {health_check: {interval: 0s}}\n")
	for i := range chaosEngines {
		e := &chaosEngine{flappingEngine: flappingEngine{id: i + 1, host: ownHost(100 + i)}, ranks: chaosRanks, keeps: 10_000, asked: i%5 != 3}
		e.change = e.config
		if i%5 == 4 {
			e.keeps = 4
		}
		if err := e.start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := e.stop(); err != nil {
				t.Error(err)
			}
		})
		for r := range e.ranks {
			ways := map[int]int{chaosRelayEvents: chaosEvents}
			if e.asked {
				ways[chaosRelayReplay] = chaosReplay
			}
			for from, to := range ways {
				relay := &cuttable{from: fmt.Sprintf("%s:%d", e.host, from+r), to: fmt.Sprintf("%s:%d", e.host, to+r)}
				if err := relay.open(); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(relay.cut)
				e.relays = append(e.relays, relay)
			}
		}
		c.engines = append(c.engines, e)
	}
	return c
}

// talk has a rank of an engine store something, unless the engine is down.
func (c *chaos) talk(e *chaosEngine, rank int, prompt string) error {
	e.mu.Lock()
	up := e.e != nil
	e.mu.Unlock()
	if !up {
		return nil
	}
	body := fmt.Sprintf(`{"model":"m","prompt":%q,"max_tokens":2}`, prompt)
	req, err := http.NewRequestWithContext(c.t.Context(), http.MethodPost, e.url()+"/v1/completions", strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("X-data-parallel-rank", fmt.Sprint(rank))
	resp, err := c.client.Do(req)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s rank %d: status %d", e.name(), rank, resp.StatusCode)
	}
	return err
}

// asks has a random rank store something; an engine that crashes meanwhile is no failure.
func (c *chaos) asks(_ int, rnd *rand.Rand) string {
	prompt := strings.Repeat(fmt.Sprintf("word%d ", rnd.IntN(20)), 8+rnd.IntN(120))
	if err := c.talk(c.engines[rnd.IntN(len(c.engines))], rnd.IntN(chaosRanks), prompt); err != nil {
		return "left"
	}
	return "served"
}

// disturb does something to an engine, or to the way to one of its ranks.
func (c *chaos) disturb(rnd *rand.Rand) {
	e := c.engines[rnd.IntN(len(c.engines))]
	rank, some := rnd.IntN(e.ranks), 1+rnd.IntN(3)
	switch rnd.IntN(10) {
	case 0:
		c.order(e, "restart", "/sim/restart", nil)
	case 1:
		c.crash(e, time.Duration(rnd.IntN(500))*time.Millisecond)
	case 2, 3:
		c.cut(e.relays[rnd.IntN(len(e.relays))], time.Duration(rnd.IntN(500))*time.Millisecond)
	case 4, 5:
		c.order(e, "drop events", "/sim/faults", map[string]any{"kind": "drop_events", "count": some, "rank": rank})
	case 6:
		mode := []string{"silent", "holes", "no_end"}[some-1]
		c.order(e, "drop replies", "/sim/faults", map[string]any{"kind": "drop_replies", "count": 1 + 5*rnd.IntN(2), "mode": mode, "rank": rank})
	case 7:
		c.order(e, "reset a cache", "/sim/faults", map[string]any{"kind": "reset_prefix_cache", "rank": rank})
	default:
		c.join(e, !e.joined)
	}
}

// join has the router listen to an engine, which may have published for long, or no more.
func (c *chaos) join(e *chaosEngine, in bool) {
	e.joined = in
	if in {
		c.acts["join"]++
		c.r.must("PUT", "/v1/workers/"+fmt.Sprint(e.id), e.record(), nil)
		return
	}
	c.acts["leave"]++
	c.r.must("DELETE", "/v1/workers/"+fmt.Sprint(e.id), nil, nil)
}

func (c *chaos) order(e *chaosEngine, act, path string, in any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.e != nil {
		c.acts[act]++
		engineJSON(c.t, e.e, "POST", path, in, nil)
	}
}

func (c *chaos) crash(e *chaosEngine, away time.Duration) {
	if !e.mu.TryLock() {
		return
	}
	up := e.e != nil
	e.mu.Unlock()
	if !up {
		return
	}
	c.acts["crash"]++
	c.away.Go(func() {
		if err := e.stop(); err != nil {
			c.t.Error(err)
		}
		<-time.After(away)
		if err := e.start(); err != nil {
			c.t.Error(err)
		}
	})
}

func (c *chaos) cut(relay *cuttable, away time.Duration) {
	relay.mu.Lock()
	up := relay.ln != nil
	relay.mu.Unlock()
	if !up {
		return
	}
	c.acts["cut"]++
	c.away.Go(func() {
		relay.cut()
		<-time.After(away)
		if err := relay.open(); err != nil {
			c.t.Error(err)
		}
	})
}

// rest takes all disturbances back, and has each rank say something so that what it lost shows.
func (c *chaos) rest() {
	c.t.Helper()
	c.away.Wait()
	for _, e := range c.engines {
		engineJSON(c.t, e.e, "DELETE", "/sim/faults", nil, nil)
		if !e.joined {
			c.join(e, true)
		}
	}
	said := make(chan error, len(c.engines))
	for _, e := range c.engines {
		go func() {
			var err error
			for rank := range e.ranks {
				if err == nil {
					err = c.talk(e, rank, strings.Repeat(fmt.Sprintf("rest%d ", time.Now().UnixNano()), 40))
				}
			}
			said <- err
		}()
	}
	for range c.engines {
		if err := <-said; err != nil {
			c.t.Fatal(err)
		}
	}
}

// chaosRank is what an engine says of a rank.
type chaosRank struct {
	engineCache

	certain bool // its publisher can repeat all
}

// told compares the router's index with what the engines say, rank by rank: those that it trusts must be the same, and of
// others it must say why, and there must be something that the engine could not repeat.
func chaosTold(engines map[string]chaosRank, ranks []rankView) (untrusted map[string]int, err error) {
	known := map[string]rankView{}
	for _, v := range ranks {
		known[fmt.Sprint(v.Name, "/", v.Rank)] = v
	}
	untrusted = map[string]int{}
	var wrong []string
	for _, name := range slices.Sorted(maps.Keys(engines)) {
		e, v := engines[name], known[name]
		got := v.KV.Hashes["device"]
		switch {
		case v.Name == "":
			wrong = append(wrong, name+": the router does not know it")
		case !v.KV.Trusted && v.KV.Untrusted == "":
			wrong = append(wrong, name+": it is not trusted and nobody says why")
		case !v.KV.Trusted && slices.Contains([]string{"connecting", "syncing", "resync", "disconnected"}, v.KV.Untrusted):
			wrong = append(wrong, name+" is still "+v.KV.Untrusted)
		case !v.KV.Trusted && e.certain && e.lost == 0:
			wrong = append(wrong, fmt.Sprintf("%s: not trusted for %q, though its engine repeats all", name, v.KV.Untrusted))
		case !v.KV.Trusted:
			untrusted[v.KV.Untrusted]++
		case !slices.Equal(slices.Sorted(slices.Values(e.blocks)), slices.Sorted(slices.Values(got))):
			wrong = append(wrong, fmt.Sprintf("%s: %d blocks, want the engine's %d (last %d)", name, len(got), len(e.blocks), v.KV.LastSeq))
		}
	}
	if len(wrong) > 0 {
		return nil, fmt.Errorf("%d of %d ranks: %s", len(wrong), len(engines), strings.Join(wrong[:min(len(wrong), 20)], "; "))
	}
	return untrusted, nil
}

// says asks the engines.
func (c *chaos) says() map[string]chaosRank {
	c.t.Helper()
	all := map[string]chaosRank{}
	for _, e := range c.engines {
		held := e.says(c.t)
		for rank := range e.ranks {
			all[fmt.Sprint(e.name(), "/", rank)] = chaosRank{held[rank], e.asked && e.keeps > 100}
		}
	}
	return all
}

// Publishers die, restart, are cut off, lose events and replay answers, and are listened to from any moment on; at rest
// the index is what the engines say of their caches, or is not trusted and says why.
func TestKVEventsSurviveChaos(t *testing.T) {
	c := startChaos(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d, %d endpoints", seed, chaosEngines*chaosRanks)
	churn{
		seed: seed, lasts: chaosRun, clients: 8, ask: c.asks, pause: 10 * time.Millisecond,
		disturb: c.disturb, every: chaosEvery,
	}.run(t)
	c.rest()
	var untrusted map[string]int
	eventually(t, time.Minute, func() (err error) {
		untrusted, err = chaosTold(c.says(), c.r.partition("m").Ranks)
		return err
	})
	for _, act := range slices.Sorted(maps.Keys(c.acts)) {
		t.Logf("%6d times: %s", c.acts[act], act)
	}
	t.Logf("of %d ranks not trusted, by reason: %v", chaosEngines*chaosRanks, untrusted)
	if len(untrusted) == 0 {
		t.Error("nothing was lost for good, though publishers that cannot repeat were cut off")
	}
}

func TestChaosIsToldOnlyWhereTheIndexIsRight(t *testing.T) {
	rank := func(trusted bool, reason string, blocks ...string) (v rankView) {
		v.Name, v.KV.Trusted, v.KV.Untrusted, v.KV.Hashes = "w1", trusted, reason, map[string][]string{"device": blocks}
		return v
	}
	held := engineCache{blocks: []string{"a"}}
	sure, unsure := chaosRank{held, true}, chaosRank{held, false}
	for _, c := range []struct {
		name   string
		engine chaosRank
		view   rankView
		want   string // empty for no error
	}{
		{"the same", sure, rank(true, "", "a"), ""},
		{"other blocks", sure, rank(true, "", "b"), "1 blocks, want the engine's 1"},
		{"not trusted, no reason", unsure, rank(false, ""), "nobody says why"},
		{"not trusted for nothing", sure, rank(false, "gap"), "though its engine repeats all"},
		{"not trusted after lost answers", chaosRank{engineCache{nil, 1}, true}, rank(false, "gap"), ""},
		{"not trusted, cannot repeat", unsure, rank(false, "gap"), ""},
		{"not at rest", unsure, rank(false, "syncing"), "still syncing"},
		{"unknown", sure, rankView{}, "does not know it"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := chaosTold(map[string]chaosRank{"w1/0": c.engine}, []rankView{c.view})
			fails(t, err, c.want)
		})
	}
}
