//go:build e2e

package e2e_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/routerd/routerd/sim"
	"github.com/routerd/routerd/sim/simtest"
)

const (
	traceEngines = 8
	// traceBlocks is what an engine holds: of a whole trace by far not all.
	traceBlocks = 2048
	// A block of the engines has 16 tokens and stands for one of a trace with 512.
	traceBlock, traceScale = 16, 32
	// traceAgree is the least share of blocks for which prediction and cache must agree.
	traceAgree = 0.995
)

// tracePolicy looks for cached prefixes and now and then goes elsewhere: without load all that have a block in common
// would else go to one engine.
const tracePolicy = `policies:
  default: {scorers: [{use: "builtin:kv-aware"}], picker: {use: "builtin:softmax", config: {temperature: 0.3}}}
`

// traced is a request of a trace, scaled down.
type traced struct {
	prompt []uint32
	answer int // tokens
}

// readTrace reads at most so many requests; testdata/traces/README.md tells the format.
func readTrace(t *testing.T, name string, most int) []traced {
	t.Helper()
	text, err := os.ReadFile("testdata/traces/" + name + ".tsv")
	if err != nil {
		t.Fatal(err)
	}
	var all []traced
	next := 0 // the lowest id that was never seen
	for line := range strings.Lines(string(text)) {
		if len(all) == most {
			break
		}
		field := strings.Split(strings.TrimSpace(line), "\t")
		if len(field) != 4 {
			t.Fatalf("%s, request %d: %d fields, want 4", name, len(all), len(field))
		}
		input, output := atoi(t, field[1]), atoi(t, field[2])
		var ids []int
		ids, next = runsOf(t, field[3], next)
		req := traced{answer: max(1, output/traceScale)}
		for i := range min(max(1, input/traceScale), traceBlock*len(ids)) {
			own := rand.New(rand.NewPCG(uint64(ids[i/traceBlock]), uint64(i%traceBlock)))
			req.prompt = append(req.prompt, 256+own.Uint32N(100_000))
		}
		all = append(all, req)
	}
	return all
}

// runsOf reads a chain of blocks, and returns the lowest id that is then unused.
func runsOf(t *testing.T, text string, next int) (ids []int, after int) {
	t.Helper()
	for run := range strings.SplitSeq(text, ",") {
		first, last, isRange := strings.Cut(run, "-")
		from, until := 0, 0
		switch {
		case strings.HasPrefix(run, "+"):
			from, until = next, next+atoi(t, run[1:])-1
		case isRange:
			from, until = atoi(t, first), atoi(t, last)
		default:
			from = atoi(t, run)
			until = from
		}
		for id := from; id <= until; id++ {
			ids = append(ids, id)
		}
		next = max(next, until+1)
	}
	return ids, next
}

func atoi(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// traceRun is a router before engines that requests of a trace are sent to, one after the other.
type traceRun struct {
	t       *testing.T
	r       *router
	c       *crowd
	engines map[string]*sim.Engine
	// Blocks that were predicted to be cached, that were, and by how many these differed, of all requests.
	predicted, cached, off int
	picks                  map[string]int
}

// At rest between requests, what the index says of the chosen worker is what its engine then finds in its cache.
func TestTracesHitWhatTheIndexPredicts(t *testing.T) {
	for _, name := range []string{"conversation-a", "synthetic-a"} {
		t.Run(name, func(t *testing.T) {
			run := &traceRun{t: t, engines: map[string]*sim.Engine{}, picks: map[string]int{}}
			static := ""
			for i := range traceEngines {
				name := fmt.Sprint("w", i+1)
				run.engines[name] = simtest.Start(t, func(c *sim.Config) {
					c.Name, c.Model, c.BlockSize, c.Blocks = name, "m", traceBlock, traceBlocks
				})
				static += worker(i+1, name, "m", run.engines[name])
			}
			run.r = startRouter(t, "models: {m: {block_size: 16}}\n"+tracePolicy+"workers:\n  static:\n"+static)
			run.c = newCrowd(t, run.r)
			for _, req := range readTrace(t, name, traceRequests) {
				run.send(req)
			}
			agree := 1 - float64(run.off)/float64(max(run.predicted, run.cached))
			t.Logf("predicted %d blocks, cached %d, %.4f %% agree; picks %v", run.predicted, run.cached, 100*agree, run.picks)
			if run.cached == 0 || agree < traceAgree {
				t.Errorf("%.4f %% of blocks agree, want %.1f %%", 100*agree, 100*traceAgree)
			}
			if len(run.picks) < traceEngines/2 {
				t.Errorf("%d engines were chosen, want half of %d or more", len(run.picks), traceEngines)
			}
			for name, e := range run.engines {
				sameAsEngine(t, run.r, "m", name, e)
			}
		})
	}
}

// send has a request served, notes how its prediction turned out, and waits until all is told.
func (run *traceRun) send(req traced) {
	run.t.Helper()
	body := map[string]any{"model": "m", "prompt": req.prompt, "max_tokens": req.answer, "ignore_eos": true}
	a, err := run.c.ask(run.t.Context(), "/v1/completions", body)
	if err != nil || a.status != http.StatusOK {
		run.t.Fatalf("status %d, %v: %.300s", a.status, err, a.body)
	}
	var said struct {
		Usage struct {
			Details struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		} `json:"usage"`
	}
	if err := json.Unmarshal(a.body, &said); err != nil {
		run.t.Fatal(err)
	}
	var decision struct {
		Rows []struct {
			Worker  uint64             `json:"worker"`
			Columns map[string]float64 `json:"columns"`
		} `json:"rows"`
		Pick struct {
			Worker uint64
			Name   string
		} `json:"pick"`
	}
	run.r.must("GET", "/v1/decisions/"+a.header.Get("x-routerd-decision"), nil, &decision)
	found := -1
	for _, row := range decision.Rows {
		if row.Worker == decision.Pick.Worker {
			found = int(row.Columns["kv.overlap_device"])
		}
	}
	if found < 0 || decision.Pick.Name != a.header.Get("x-routerd-worker") {
		run.t.Fatalf("decision %+v of a request that %s served", decision, a.header.Get("x-routerd-worker"))
	}
	cached := said.Usage.Details.Cached / traceBlock
	run.predicted += found
	run.cached += cached
	run.off += max(found-cached, cached-found)
	run.picks[decision.Pick.Name]++
	run.settle(decision.Pick.Name)
}

// settle waits until the router has applied all that an engine published, and counts no load.
func (run *traceRun) settle(name string) {
	run.t.Helper()
	eventually(run.t, 20*time.Second, func() error {
		var stats struct {
			Ranks []struct {
				NextSeq uint64 `json:"next_seq"`
			} `json:"ranks"`
		}
		engineJSON(run.t, run.engines[name], "GET", "/sim/stats", nil, &stats)
		var got struct {
			Partitions []partitionView `json:"partitions"`
		}
		run.r.must("GET", "/v1/partitions?model=m", nil, &got)
		for _, v := range got.Partitions[0].Ranks {
			if v.Name != name {
				continue
			}
			told := stats.Ranks[0].NextSeq == 0 || v.KV.LastSeq+1 == stats.Ranks[0].NextSeq
			if !told || !v.KV.Trusted || v.Load.Active > 0 {
				return fmt.Errorf("%s: %+v, the engine's next number is %d", name, v, stats.Ranks[0].NextSeq)
			}
		}
		return nil
	})
}
