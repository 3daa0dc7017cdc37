//go:build e2e

package e2e_test

import (
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/sim"
	"github.com/routerd/routerd/sim/simtest"
)

// keepsIndex is a router whose index on disk is tested, with its two engines.
type keepsIndex struct {
	*service
	t       *testing.T
	yaml    string
	engines map[string]*sim.Engine
	prompts [][]int
}

func startKeepsIndex(t *testing.T, index string) *keepsIndex {
	t.Helper()
	k := &keepsIndex{t: t, engines: map[string]*sim.Engine{}, yaml: "models: {m: {block_size: 16}}\nindex: " + index + "\nworkers:\n  static:\n"}
	for i, name := range []string{"w1", "w2"} {
		e := simtest.Start(t, func(c *sim.Config) { c.Name, c.Model, c.Blocks = name, "m", 200 })
		k.engines[name] = e
		k.yaml += worker(i+1, name, "m", e)
	}
	k.service = startService(t, k.yaml)
	return k
}

// again starts the router that has ended anew, in its folder.
func (k *keepsIndex) again() {
	k.t.Helper()
	r := startRouterIn(k.t, filepath.Dir(k.dataDir), k.yaml, "--selection.listen", "127.0.0.1:0")
	k.service = newService(k.t, r, r.selection)
}

// fill has the engines compute some prompts, the first of them in turn.
func (k *keepsIndex) fill(from, n int) {
	k.t.Helper()
	for i := range n {
		prompt := tokens(10_000*(from+i), 16*(i%6+1)+5)
		k.prompts = append(k.prompts, prompt)
		fills(k.t, k.engines[fmt.Sprint("w", i%2+1)], 0, prompt)
	}
}

// right waits until the index is what the engines say, and every stream trusted.
func (k *keepsIndex) right() {
	k.t.Helper()
	for name, e := range k.engines {
		sameAsEngine(k.t, k.router, "m", name, e)
	}
	eventually(k.t, soon, func() error {
		for _, v := range k.partition("m").Ranks {
			if !v.KV.Trusted {
				return fmt.Errorf("%s is not trusted", v.Name)
			}
		}
		return nil
	})
}

// scores are the overlaps of all prompts.
func (k *keepsIndex) scores() (all []string) {
	k.t.Helper()
	for _, p := range k.prompts {
		all = append(all, k.overlaps(k.t, p))
	}
	return all
}

// knows waits until the overlaps are these, as they are once the workers are ready.
func (k *keepsIndex) knows(want []string) {
	k.t.Helper()
	eventually(k.t, soon, func() error {
		if diff := cmp.Diff(want, k.scores()); diff != "" {
			return fmt.Errorf("overlaps after the start (-before +after)\n%s", diff)
		}
		return nil
	})
}

// held is what a worker holds of a prompt, by rank; nil for nothing.
func (k *keepsIndex) held(worker string, prompt []int) any {
	k.t.Helper()
	return read[struct {
		Scores map[string]any `json:"scores"`
	}](k.t, k.says(k.t, http.StatusOK, "POST", "/query", map[string]any{"model_name": "m", "token_ids": prompt})).Scores[worker]
}

// counted is how many ranks took their part over, how many engines were found
// to have started anew, and how many messages were applied since the start.
func (k *keepsIndex) counted() (restored, restarts, applied int) {
	k.t.Helper()
	m := k.metrics()
	return int(sum(m, "routerd_index_restores_total", `result="ok"`)), int(sum(m, "routerd_ingress_restarts_total")), int(sum(m, "routerd_ingress_messages_total"))
}

// A router that is stopped and started knows the engines' caches at once and trusts what
// it knows, without being told of them again.
func TestTheIndexSurvivesARestart(t *testing.T) {
	k := startKeepsIndex(t, "{dump_interval: 0s}")
	k.fill(1, 24)
	k.right()
	was, told := k.scores(), k.rank("m", "w1").KV.LastSeq
	if told < 5 || !strings.Contains(strings.Join(was, ""), `"device_blocks":6`) {
		t.Fatalf("w1 sent %d messages; overlaps %s", told, was)
	}
	k.stop()
	k.again()
	k.knows(was)
	k.right()
	if restored, restarts, applied := k.counted(); restored != 2 || restarts != 0 || applied != 0 {
		t.Errorf("%d ranks restored, %d restarts, %d messages applied; want 2, 0, 0", restored, restarts, applied)
	}
	k.fill(101, 24) // evicts some of it
	k.right()
}

// The blocks of an engine that started anew between stop and start count nowhere.
func TestAnEngineThatRestartsWhileTheRouterIsDown(t *testing.T) {
	k := startKeepsIndex(t, "{dump_interval: 0s}")
	k.fill(1, 24)
	k.right()
	old := k.rank("m", "w1").KV.Hashes["device"]
	if k.held("1", k.prompts[0]) == nil {
		t.Fatal("worker 1 holds nothing of the first prompt")
	}
	k.stop()
	engineJSON(t, k.engines["w1"], "POST", "/sim/restart", nil, nil)
	fills(t, k.engines["w1"], 0, tokens(9_000_000, 16*4))
	k.again()
	eventually(t, soon, func() error {
		if _, restarts, _ := k.counted(); restarts != 1 {
			return fmt.Errorf("%d engines were found to have started anew", restarts)
		}
		return nil
	})
	k.right()
	for _, h := range k.rank("m", "w1").KV.Hashes["device"] {
		if slices.Contains(old, h) {
			t.Errorf("block %s of the life before counts", h)
		}
	}
	for i := 0; i < len(k.prompts); i += 2 { // those of w1
		if held := k.held("1", k.prompts[i]); held != nil {
			t.Errorf("prompt %d: worker 1 holds %v", i, held)
		}
	}
	if !strings.Contains(k.log.String(), "engine started anew: its blocks are dropped") {
		t.Error("the log does not say so")
	}
}

// After kill -9 the file before is used, and what came after it is replayed from there.
func TestAnOlderIndexIsHealedByTheReplay(t *testing.T) {
	k := startKeepsIndex(t, "{dump_interval: 0s}")
	k.fill(1, 24)
	k.right()
	k.stop()
	k.again()
	k.right()
	kept := k.rank("m", "w1").KV.LastSeq
	k.fill(101, 30) // evicts some of what the file has
	k.right()
	last := map[string]uint64{"w1": k.rank("m", "w1").KV.LastSeq, "w2": k.rank("m", "w2").KV.LastSeq}
	was := k.scores()
	k.kill()
	k.again()
	k.right()
	if diff := cmp.Diff(was, k.scores()); diff != "" {
		t.Errorf("overlaps (-before +after)\n%s", diff)
	}
	if kept == 0 || last["w1"] == kept {
		t.Fatalf("message %d was kept, %d the last", kept, last["w1"])
	}
	if restored, restarts, applied := k.counted(); restored != 2 || restarts != 0 || applied == 0 || applied >= int(last["w1"]+last["w2"]) {
		t.Errorf("%d ranks restored, %d restarts, %d messages applied of %v", restored, restarts, applied, last)
	}
}

// What is written now and then is there after a crash.
func TestTheIndexOfAWhileAgoSurvivesACrash(t *testing.T) {
	k := startKeepsIndex(t, "{dump_interval: 1s}")
	k.fill(1, 24)
	k.right()
	was := k.scores()
	written := func() float64 { return sum(k.metrics(), "routerd_index_dumps_total", `result="ok"`) }
	before := written()
	eventually(t, soon, func() error { // the second one has begun since
		if n := written(); n < before+2 {
			return fmt.Errorf("written %g times", n)
		}
		return nil
	})
	k.kill()
	k.again()
	k.knows(was)
	k.right()
	if restored, restarts, applied := k.counted(); restored != 2 || restarts != 0 || applied != 0 {
		t.Errorf("%d ranks restored, %d restarts, %d messages applied; want 2, 0, 0", restored, restarts, applied)
	}
}
