package app_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/indexer"
	"github.com/routerd/routerd/internal/app"
	"github.com/routerd/routerd/internal/config"
	"github.com/routerd/routerd/internal/testkit"
	"github.com/routerd/routerd/kvcache"
	"github.com/routerd/routerd/sim"
)

// startLogged is start with a log that can be read.
func startLogged(t *testing.T, cfg config.Config) (*app.App, *testkit.Log) {
	t.Helper()
	log := &testkit.Log{}
	a, err := app.Start(t.Context(), cfg, slog.New(slog.NewTextHandler(io.MultiWriter(log, t.Output()), nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Stop(context.WithoutCancel(t.Context())) })
	waitForWorkers(t, a)
	return a, log
}

func stop(t *testing.T, a *app.App) {
	t.Helper()
	if err := a.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// filled are two engines whose blocks a router with this configuration had learned when
// it stopped.
func filled(t *testing.T, replay bool) ([]*sim.Engine, config.Config, map[string]tiers) {
	t.Helper()
	engines := []*sim.Engine{engine(t, "e1", small), engine(t, "e2", small)}
	cfg := withPeer(t, engines, replay)
	cfg.Index.DumpInterval = 0
	a, _ := startLogged(t, cfg)
	if !replay {
		waitForStreams(t, a, 2)
	}
	filled := func() bool {
		all := truth(t, engines)
		return len(all["w1"]["device"]) > 0 && len(all["w2"]["device"]) > 0
	}
	for topic := 0; topic < 6 || !filled(); topic++ {
		complete(t, a, strings.Repeat(fmt.Sprintf("topic %d ", topic), 30*(1+topic%3)))
	}
	waitForTruth(t, a, engines)
	was := known(t, a)
	stop(t, a)
	return engines, cfg, was
}

// told waits until the metrics have a line, as a pattern.
func told(t *testing.T, a *app.App, line string) {
	t.Helper()
	want := regexp.MustCompile(`(?m)^` + line + `$`)
	deadline := time.After(10 * time.Second)
	for !want.MatchString(adminText(t, a, "/metrics")) {
		select {
		case <-deadline:
			t.Fatalf("the metrics never had %s", line)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// trusted is which workers' streams are trusted.
func trusted(t *testing.T, a *app.App) map[string]bool {
	t.Helper()
	return ofEach(t, a, func(r rankKV) bool { return r.KV.Trusted })
}

func waitForTrust(t *testing.T, a *app.App, want map[string]bool) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	for {
		diff := cmp.Diff(want, trusted(t, a))
		if diff == "" {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("trusted (-want +got)\n%s", diff)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// tells has an engine do something to itself.
func tells(t *testing.T, e *sim.Engine, path, body string) {
	t.Helper()
	resp, err := client.Post(e.URL()+path, "application/json", strings.NewReader(body))
	if err != nil || resp.Body.Close() != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(err, resp)
	}
}

var both = map[string]bool{"w1": true, "w2": true}

// What the router knew at its stop it knows at once, and what the engines did meanwhile
// it is told by their replays alone.
func TestAStartKnowsWhatTheStopBeforeKnew(t *testing.T) {
	engines, cfg, was := filled(t, true)
	tells(t, engines[0], "/v1/completions", fmt.Sprintf(`{"model":"m","prompt":%q,"max_tokens":2}`, strings.Repeat("meanwhile ", 400)))
	a, log := startLogged(t, cfg)
	for _, says := range []string{`msg="index found on disk" component=index ranks=2 blocks=`, `msg="index restored from disk" component=index partition=m:default worker=`} {
		if !strings.Contains(log.String(), says) {
			t.Errorf("the log does not say %s", says)
		}
	}
	waitForTrust(t, a, both)
	waitForTruth(t, a, engines)
	if cmp.Equal(was["w1"], known(t, a)["w1"]) || !cmp.Equal(was["w2"], known(t, a)["w2"]) {
		t.Error("w1 knows nothing new, or w2 does")
	}
	text := adminText(t, a, "/metrics")
	for _, line := range []string{
		"\nrouterd_ingress_restarts_total 0\n", "\nrouterd_index_restores_total{result=\"ok\"} 2\n", "\nrouterd_ingress_replays_total{result=\"complete\"} 2\n",
	} {
		if !strings.Contains(text, line) {
			t.Errorf("the metrics do not have %s", line)
		}
	}
	if !regexp.MustCompile(`(?m)^routerd_ingress_messages_total [0-9]$`).MatchString(text) {
		t.Error("more messages were applied than the last few")
	}
}

// Of an engine that has started anew meanwhile nothing is left but its new life.
func TestAnEngineThatStartedAnewMeanwhileIsFoundOut(t *testing.T) {
	engines, cfg, was := filled(t, true)
	tells(t, engines[0], "/sim/restart", "")
	tells(t, engines[0], "/v1/completions", fmt.Sprintf(`{"model":"m","prompt":%q,"max_tokens":2}`, strings.Repeat("new ", 200)))
	a, _ := startLogged(t, cfg)
	told(t, a, "routerd_ingress_restarts_total 1")
	waitForTruth(t, a, engines)
	waitForTrust(t, a, both)
	for _, h := range was["w1"]["device"] {
		if strings.Contains(strings.Join(known(t, a)["w1"]["device"], " ")+" ", h+" ") {
			t.Fatalf("block %s of the life before is still there", h)
		}
	}
}

// Where nothing can be replayed the blocks count, and are not trusted until the engine
// drops them all.
func TestWithoutReplayWhatWasKeptIsNotTrusted(t *testing.T) {
	engines, cfg, was := filled(t, false)
	a, _ := startLogged(t, cfg)
	if diff := cmp.Diff(was, known(t, a)); diff != "" {
		t.Fatalf("(-before +after)\n%s", diff)
	}
	told(t, a, `routerd_ingress_streams\{state="degraded"\} 2`)
	waitForTrust(t, a, map[string]bool{"w1": false, "w2": false})
	tells(t, engines[1], "/sim/faults", `{"kind":"reset_prefix_cache"}`)
	waitForTruth(t, a, engines)
	waitForTrust(t, a, map[string]bool{"w1": false, "w2": true})
}

// A rank whose record is of something else by now begins empty.
func TestOnlyWhatFitsIsRestored(t *testing.T) {
	other := engine(t, "e3", func(c *sim.Config) { c.Model = "m2" })
	for name, c := range map[string]struct {
		change func(*config.Config)
		says   string
	}{
		"another group": {func(c *config.Config) { c.Workers.Static[0].Group = "g" }, "msg=\"index found on disk\""},
		"another model": {func(c *config.Config) {
			w := &c.Workers.Static[0]
			w.Model, w.URL, w.KVEvents = "m2", other.URL(), other.EventEndpoints()
		}, "msg=\"index found on disk\""},
		"another worker":     {func(c *config.Config) { c.Workers.Static[0].ID = 77 }, "msg=\"index found on disk\""},
		"another block size": {func(c *config.Config) { c.Workers.Static[0].BlockSize = 32 }, `err="its blocks have 16 tokens, the partition's 32"`},
		"another engine":     {func(c *config.Config) { c.Workers.Static[0].Engine = "sglang" }, `err="its engine was \"vllm\" and is \"sglang\""`},
	} {
		t.Run(name, func(t *testing.T) {
			_, cfg, _ := filled(t, false)
			cfg.Workers.Static = cfg.Workers.Static[:1]
			c.change(&cfg)
			a, log := startLogged(t, cfg)
			if got := known(t, a)["w1"]; len(got["device"]) > 0 || !strings.Contains(log.String(), c.says) || strings.Contains(log.String(), "index restored") {
				t.Errorf("%d blocks are known", len(got["device"]))
			}
		})
	}
}

// What is wrong with the file is said, and costs what it concerns alone.
func TestAFileThatIsWrongIsNotBelieved(t *testing.T) {
	for name, c := range map[string]struct {
		change func(file []byte) []byte
		says   string
		ranks  int // that are restored
	}{
		"another version": {func(b []byte) []byte { b[8]++; return b }, "it has version 2, this router reads version 1", 0},
		"torn":            {func(b []byte) []byte { return b[:len(b)/2] }, "it is torn", 0},
		"empty":           {func([]byte) []byte { return nil }, "it has 0 bytes, which is none", 0},
		"one section":     {func(b []byte) []byte { b[20] ^= 4; return b }, "the checksum is wrong", 1},
	} {
		t.Run(name, func(t *testing.T) {
			_, cfg, was := filled(t, false)
			file := filepath.Join(cfg.DataDir, "index")
			b, err := os.ReadFile(file)
			if err == nil {
				err = os.WriteFile(file, c.change(b), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			a, log := startLogged(t, cfg)
			restored := 0
			for name, got := range known(t, a) {
				if cmp.Equal(got, was[name]) {
					restored++
				} else if len(got["device"]) > 0 {
					t.Errorf("%s has a part of its blocks", name)
				}
			}
			if restored != c.ranks || !strings.Contains(log.String(), "level=WARN") || !strings.Contains(log.String(), c.says) {
				t.Errorf("%d ranks are restored, want %d", restored, c.ranks)
			}
			stop(t, a)
			again, _ := startLogged(t, cfg)
			told(t, again, `routerd_index_restores_total\{result="unusable"\} 0`)
		})
	}
}

// What no rank has taken over yet is kept for the next start, also across one.
func TestWhatNoRankTookOverIsWrittenAgain(t *testing.T) {
	_, cfg, was := filled(t, false)
	static := cfg.Workers.Static
	for range 2 {
		cfg.Workers.Static = static[1:]
		a, _ := startLogged(t, cfg)
		stop(t, a)
	}
	cfg.Workers.Static = static
	a, _ := startLogged(t, cfg)
	if diff := cmp.Diff(was, known(t, a)); diff != "" {
		t.Errorf("(-before +after)\n%s", diff)
	}
}

// Where an engine replays, what was kept goes before what a peer knows, since it can be
// proven; where it does not, the peer has listened on. What only the other has is taken.
func TestWhatWasKeptAndWhatAPeerKnows(t *testing.T) {
	const fromDisk, fromPeer = "index restored from disk", "index taken over from a peer"
	for name, c := range map[string]struct {
		replay, file bool
		want, never  string
	}{
		"replay":                {true, true, fromDisk, fromPeer},
		"replay and no file":    {true, false, fromPeer, fromDisk},
		"no replay":             {false, true, fromPeer, fromDisk},
		"no replay and no file": {false, false, fromPeer, fromDisk},
	} {
		t.Run(name, func(t *testing.T) {
			engines, cfg, _ := filled(t, c.replay)
			other := cfg
			other.DataDir = t.TempDir()
			if err := os.CopyFS(other.DataDir, os.DirFS(cfg.DataDir)); err != nil {
				t.Fatal(err)
			}
			peer, _ := startLogged(t, other)
			if c.replay {
				waitForTruth(t, peer, engines)
			}
			cfg.Index.Peers = []string{peer.SelectionAddress()}
			if !c.file {
				if err := os.Remove(filepath.Join(cfg.DataDir, "index")); err != nil {
					t.Fatal(err)
				}
			}
			_, log := startLogged(t, cfg)
			if log.Count(c.want) != 2 || log.Count(c.never) != 0 {
				t.Errorf("%d from disk, %d from the peer", log.Count(fromDisk), log.Count(fromPeer))
			}
		})
	}
}

// Switched off, nothing is kept, not even what was, and the log says so.
func TestWithoutADumpNothingIsKept(t *testing.T) {
	_, cfg, _ := filled(t, false)
	cfg.Index.Dump = false
	a, log := startLogged(t, cfg)
	if log.Count("the index on disk is removed: this run does not keep one") != 1 {
		t.Errorf("the log does not say once that it is removed\n%s", log)
	}
	if got := known(t, a)["w1"]; len(got["device"]) > 0 {
		t.Errorf("%d blocks are known", len(got["device"]))
	}
	stop(t, a)
	if _, err := os.Stat(filepath.Join(cfg.DataDir, "index")); !os.IsNotExist(err) {
		t.Errorf("the file: %v", err)
	}
	if a, log = startLogged(t, cfg); log.Count("removed") != 0 {
		t.Errorf("what is not there is said to be removed\n%s", log)
	}
	stop(t, a)
}

// A file that cannot be written costs a line in the log.
func TestAFileThatCannotBeWritten(t *testing.T) {
	_, cfg, _ := filled(t, false)
	file := filepath.Join(cfg.DataDir, "index")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(file, "full"), 0o700); err != nil {
		t.Fatal(err)
	}
	a, log := startLogged(t, cfg)
	stop(t, a)
	for _, says := range []string{"the index on disk cannot be used", "index not written to disk: the file before stays"} {
		if !strings.Contains(log.String(), says) {
			t.Errorf("the log does not say %q", says)
		}
	}
}

// While the router runs the file is written now and then, beside the events.
func TestTheIndexIsWrittenWhileTheRouterRuns(t *testing.T) {
	engines := []*sim.Engine{engine(t, "e1", small)}
	cfg := withPeer(t, engines, true)
	cfg.Index.DumpInterval = config.Duration(10 * time.Millisecond)
	a, _ := startLogged(t, cfg)
	for topic := range 20 {
		complete(t, a, strings.Repeat(fmt.Sprintf("topic %d ", topic), 60))
	}
	waitForTruth(t, a, engines)
	want := fmt.Sprintf("routerd_index_dump_blocks %d", len(known(t, a)["w1"]["device"]))
	told(t, a, want)
	told(t, a, `routerd_index_dumps_total\{result="ok"\} [0-9]{2,}`)
	told(t, a, `routerd_index_dumps_total\{result="failed"\} 0`)
	b, err := os.ReadFile(filepath.Join(cfg.DataDir, "index"))
	if err != nil || !bytes.HasPrefix(b, []byte("routerdx")) {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}

// What no rank took over is not kept for ever.
func TestWhatNoRankTookOverIsForgottenAfterAnHour(t *testing.T) {
	for after, want := range map[time.Duration]int{59 * time.Minute: 1, 61 * time.Minute: 0} {
		synctest.Test(t, func(t *testing.T) {
			left, written, err := app.KeptOnDisk(t.TempDir(), after)
			if err != nil || left != want || written != want {
				t.Errorf("after %s %d ranks are left and %d written, want %d, %v", after, left, written, want, err)
			}
		})
	}
}

// What a stream stored is restored on all ranks that it stored for, or on none.
func TestAStreamsRanksAreRestoredTogether(t *testing.T) {
	fits := []byte{0, 0, 0} // flags, number 0, no digests
	snapshot := func(rank uint32, blocks int, parent bool) indexer.Snapshot {
		c := indexer.Change{HasParent: parent, Parent: kvcache.NumberHash(999)}
		for i := range blocks {
			c.Blocks = append(c.Blocks, indexer.Block{Hash: kvcache.NumberHash(uint64(i)), Local: kvcache.BlockHash(i)})
		}
		return indexer.Snapshot{Worker: fleet.Worker{ID: 1, Rank: rank}, Changes: slices.Values([]indexer.Change{c})}
	}
	sound := []indexer.Snapshot{snapshot(0, 3, false), snapshot(1, 2, false)}
	for name, c := range map[string]struct {
		ranks    int
		events   map[int]string
		position []byte
		stored   []indexer.Snapshot
		says     string
	}{
		"whole":                   {2, map[int]string{0: "tcp://a:1"}, fits, sound, ""},
		"a rank that is gone":     {1, map[int]string{0: "tcp://a:1"}, fits, sound, "stored for rank 1"},
		"a rank with a stream":    {2, map[int]string{0: "tcp://a:1", 1: "tcp://a:2"}, fits, sound, "stored for rank 1"},
		"a position that is none": {2, map[int]string{0: "tcp://a:1"}, []byte{9}, sound, "read position of a stream"},
		"blocks of no parent":     {2, map[int]string{0: "tcp://a:1"}, fits, []indexer.Snapshot{sound[0], snapshot(1, 2, true)}, "no place for 2 of its blocks"},
	} {
		t.Run(name, func(t *testing.T) {
			others, blocks, err := app.TakeIn(&fleet.Record{ID: 1, DPSize: c.ranks, KVEvents: c.events}, c.position, c.stored)
			if c.says != "" {
				if err == nil || !strings.Contains(err.Error(), c.says) || len(blocks) > 0 {
					t.Errorf("got %v, blocks %v", err, blocks)
				}
				return
			}
			want := map[fleet.Worker]int{{ID: 1}: 3, {ID: 1, Rank: 1}: 2}
			if err != nil || !cmp.Equal(want, blocks) || !slices.Equal(others, []fleet.Worker{{ID: 1, Rank: 1}}) {
				t.Errorf("got %v, blocks %v, others %v", err, blocks, others)
			}
		})
	}
}

// A part that does not fit a rank as it is now is left for when it does; one that cannot
// be used is not.
func TestAPartThatDoesNotFitIsLeft(t *testing.T) {
	got, left, err := app.RestoreAs(t.TempDir(), []byte{0, 0, 0}, []string{"sglang", "vllm", "vllm"}, []int{4, 8, 4})
	if err != nil || !slices.Equal(got, []bool{false, false, true}) || !slices.Equal(left, []int{1, 1, 1}) {
		t.Errorf("restored %v, left %v, %v", got, left, err)
	}
	got, left, err = app.RestoreAs(t.TempDir(), []byte{9}, []string{"vllm", "vllm"}, []int{4, 4})
	if err != nil || !slices.Equal(got, []bool{false, false}) || !slices.Equal(left, []int{0, 0}) {
		t.Errorf("restored %v, left %v, %v", got, left, err)
	}
}

// What a rank learned anew takes the place of what did not fit it.
func TestWhatIsLearnedAnewReplacesWhatWasKept(t *testing.T) {
	engines, cfg, was := filled(t, true)
	for i := range cfg.Workers.Static {
		cfg.Workers.Static[i].Engine = "sglang"
	}
	a, log := startLogged(t, cfg)
	if log.Count("index on disk not restored") != 2 {
		t.Error("the log does not tell of the other engines")
	}
	waitForTruth(t, a, engines)
	waitForTrust(t, a, both)
	stop(t, a)
	a, log = startLogged(t, cfg)
	if diff := cmp.Diff(was, known(t, a)); diff != "" || log.Count("index restored from disk") != 2 {
		t.Errorf("%d ranks are restored (-before +after)\n%s", log.Count("index restored from disk"), diff)
	}
}

// A rank that cannot be listened to has nothing, and its part is left for when it can.
func TestARankThatIsNotListenedToGivesItsPartBack(t *testing.T) {
	blocks, left, err := app.ListenInVain(t.TempDir())
	if err == nil || !strings.Contains(err.Error(), "kv_events") || blocks != [2]int{0, 2} || left != [2]int{1, 0} {
		t.Errorf("got %v, blocks %v, left %v", err, blocks, left)
	}
}

func TestOfAStreamThatEndsNoRankIsLeft(t *testing.T) {
	during, after, err := app.LeftBehind(t.TempDir())
	if err != nil || during != [2]int{1, 1} || after != [2]int{} {
		t.Errorf("%v blocks, %v when nobody listens any more, %v", during, after, err)
	}
}

func TestWhatAPeerKnewOfARankThatIsNotListenedToIsGivenBack(t *testing.T) {
	if blocks, refused := app.PeersInVain(); refused == nil || blocks != 0 {
		t.Errorf("%d blocks, refused with %v", blocks, refused)
	}
}
