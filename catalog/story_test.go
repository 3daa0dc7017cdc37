package catalog_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/routerd/routerd/catalog"
	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/internal/testkit"
)

// TestStories runs testdata/*.txt: what a Reconciler does, told in commands. Most take
// a second of the story's clock and answers with what the core and the listeners were
// told in it, worker by worker, then with the workers that stand otherwise than before. Run with -rewrite to update the answers.
func TestStories(t *testing.T) {
	testkit.Stories(t, func(t *testing.T) (func(*testing.T, *datadriven.TestData) string, func()) {
		s := &story{t: t, stage: newStage(), drains: filepath.Join(t.TempDir(), "drains.json"), places: map[string]*place{}}
		s.start()
		return s.run, s.stop
	})
}

// story is the state of one script.
type story struct {
	t      *testing.T
	stage  *stage
	drains string
	places map[string]*place
	order  []string // of the places

	r       *catalog.Reconciler
	sources *catalog.Sources
	end     context.CancelFunc
	running sync.WaitGroup
	ctx     context.Context //nolint:containedctx // of the router that runs now
	seen    map[string]string
}

// start begins a router's life over the same sources and files.
func (s *story) start() {
	d, err := catalog.OpenDrains(s.drains)
	if err != nil {
		s.t.Fatal(err)
	}
	s.r = catalog.New(catalog.Parts{
		Core: s.stage, Listeners: s.stage, Engines: s.stage, Health: s.stage, Adapters: s.stage.loaded, Drains: d,
	}, slog.New(slog.DiscardHandler))
	s.sources = catalog.NewSources(s.r, slog.New(slog.DiscardHandler))
	s.ctx, s.end = context.WithCancel(context.Background())
	s.seen = map[string]string{}
	s.running.Go(func() {
		if err := s.r.Run(s.ctx); err != nil {
			s.t.Error(err)
		}
	})
	for _, name := range s.order {
		s.follow(s.places[name])
	}
}

func (s *story) follow(p *place) {
	s.running.Go(func() {
		if err := s.sources.Follow(s.ctx, p, catalog.DefaultFollowConfig()); err != nil {
			s.t.Error(err)
		}
	})
	synctest.Wait()
}

func (s *story) stop() {
	s.end()
	s.running.Wait()
}

func (s *story) run(t *testing.T, d *datadriven.TestData) string {
	s.t = t
	commands := map[string]func(*datadriven.TestData) string{
		"source": s.source, "lose": s.lose, "engine": s.engine, "health": s.health, "adapters": s.adapters,
		"configured": s.configured, "policy": s.policy, "refuse": s.refuse, "no-listening": s.noListening,
		"drain": s.drain, "undrain": s.undrain, "reconsider": s.reconsider, "restart": s.restart, "advance": s.advance,
		"workers": s.workers, "asked": func(*datadriven.TestData) string { return s.stage.counts() }, "status": s.status,
		"worker": s.worker,
	}
	f := commands[d.Cmd]
	if f == nil {
		d.Fatalf(t, "no command %q", d.Cmd)
	}
	out := f(d)
	if slices.Contains(timeless, d.Cmd) || d.HasArg("unnoticed") {
		return cmp.Or(out, "-") + "\n"
	}
	s.pass(time.Second)
	lines := s.stage.take()
	if out != "" {
		lines = append([]string{out}, lines...)
	}
	lines = append(lines, s.changes()...)
	if len(lines) == 0 {
		return "-\n"
	}
	return strings.Join(lines, "\n") + "\n"
}

// timeless are the commands that take no time: they look, or say what comes to bear
// later.
var timeless = []string{"workers", "worker", "asked", "status", "engine", "configured", "policy", "refuse", "no-listening"}

// pass lets time pass.
func (s *story) pass(d time.Duration) {
	<-time.After(d) // the bubble's clock
	synctest.Wait()
}

// changes are the workers that stand otherwise than when somebody last looked.
func (s *story) changes() (lines []string) {
	now := lifecycles(s.r)
	for _, v := range s.r.Workers() {
		if s.seen[v.Name] != now[v.Name] {
			lines = append(lines, "> "+v.Name+" "+now[v.Name])
		}
	}
	s.seen = now
	return lines
}

func option(d *datadriven.TestData, key, def string) string {
	for _, a := range d.CmdArgs {
		if a.Key == key && len(a.Vals) > 0 {
			return strings.Join(a.Vals, ",")
		}
	}
	return def
}

func number(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func span(t *testing.T, text string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// source sets the list of a source; each line is a worker.
func (s *story) source(d *datadriven.TestData) string {
	name := d.CmdArgs[0].Key
	var list []fleet.Record
	for line := range strings.Lines(d.Input) {
		if words := strings.Fields(line); len(words) > 0 {
			list = append(list, s.wish(words))
		}
	}
	p := s.places[name]
	if p == nil {
		p = newPlace(name, list...)
		s.places[name], s.order = p, append(s.order, name)
		s.follow(p)
	} else {
		p.mu.Lock()
		p.silent, p.lost, p.closed = d.HasArg("unnoticed"), nil, false
		p.mu.Unlock()
		p.set(list...)
	}
	synctest.Wait()
	for _, st := range s.sources.Status() {
		if st.Name == name && st.Refused != "" {
			return "list refused: " + st.Refused
		}
	}
	return ""
}

// wish is a record by words: its name, which ends in its id, and key=value.
func (s *story) wish(words []string) fleet.Record {
	id := number(s.t, strings.TrimLeft(words[0], "abcdefghijklmnopqrstuvwxyz"))
	r := fleet.Record{ID: fleet.WorkerID(id), Name: words[0], URL: fmt.Sprintf("http://127.0.0.1:%d", 8000+id)}
	for _, w := range words[1:] {
		key, value, _ := strings.Cut(w, "=")
		switch key {
		case "id":
			r.ID = fleet.WorkerID(number(s.t, value))
		case "at":
			r.URL = "http://127.0.0.1:" + value
		case "nowhere":
			r.URL = ""
		case "model":
			r.Model = value
		case "group":
			r.Group = value
		case "block":
			r.BlockSize = number(s.t, value)
		case "kv":
			r.TotalKVBlocks = number(s.t, value)
		case "start":
			r.DPStart = number(s.t, value)
		case "ranks":
			r.DPSize = number(s.t, value)
		case "events":
			r.KVEvents = endpoints(5000+100*id, 0, number(s.t, value))
		case "replay":
			r.Replay = endpoints(6000+100*id, 0, number(s.t, value))
		case "require-events":
			r.RequireEvents = true
		case "unwatched":
			r.NoHealthCheck = true
		case "adapter":
			r.Adapters = append(r.Adapters, fleet.Adapter{Name: value})
		case "taint":
			r.Taints = append(r.Taints, value)
		default:
			s.t.Fatalf("no word %q", w)
		}
	}
	return r
}

func endpoints(port, first, n int) map[int]string {
	out := map[int]string{}
	for i := range n {
		out[first+i] = fmt.Sprintf("tcp://127.0.0.1:%d", port+i)
	}
	return out
}

// engine says how the engine at a port answers from now on.
func (s *story) engine(d *datadriven.TestData) string {
	port := number(s.t, d.CmdArgs[0].Key)
	var e told
	for _, a := range d.CmdArgs[1:] {
		value := strings.Join(a.Vals, ",")
		switch a.Key {
		case "refuses":
			e.err = errors.New("connection refused")
		case "after":
			e.after = span(s.t, value)
		case "kind":
			e.facts.Engine = value
		case "version":
			e.facts.Version = value
		case "model":
			e.facts.Models = a.Vals
		case "more":
			e.facts.More = true
		case "adapter":
			for _, name := range a.Vals {
				e.facts.Adapters = append(e.facts.Adapters, fleet.Adapter{Name: name})
			}
		case "block":
			e.facts.BlockSize = number(s.t, value)
		case "kv":
			e.facts.TotalKVBlocks = number(s.t, value)
		case "batch":
			e.facts.MaxBatchedTokens = number(s.t, value)
		case "ranks":
			e.facts.DPSize = number(s.t, value)
		case "events":
			e.facts.KVEvents = endpoints(port*2-9000, 0, number(s.t, value))
		case "replay":
			e.facts.Replay = endpoints(port*2-8000, 0, number(s.t, value))
		case "untold":
			e.facts.Untold = append(e.facts.Untold, value)
		default:
			s.t.Fatalf("no word %q", a.Key)
		}
	}
	s.stage.mu.Lock()
	defer s.stage.mu.Unlock()
	s.stage.engines[fmt.Sprintf("http://127.0.0.1:%d", port)] = e
	return ""
}

// health says how a worker stands and tells of it.
func (s *story) health(d *datadriven.TestData) string {
	st := standing{lifecycle: core.Lifecycle(d.CmdArgs[1].Key)}
	if why := option(d, "why", ""); why != "" {
		st.reasons = []string{why}
	}
	id := s.id(d.CmdArgs[0].Key)
	s.stage.mu.Lock()
	s.stage.standing[id] = st
	s.stage.mu.Unlock()
	s.r.Reconsider(id)
	return ""
}

// id is a worker's, known or not.
func (s *story) id(name string) fleet.WorkerID {
	if v, ok := s.r.Worker(name); ok {
		return v.ID
	}
	return fleet.WorkerID(number(s.t, strings.TrimLeft(name, "abcdefghijklmnopqrstuvwxyz")))
}

// adapters says what a worker has loaded and tells of it; without names nobody knows.
func (s *story) adapters(d *datadriven.TestData) string {
	id := s.id(d.CmdArgs[0].Key)
	s.stage.mu.Lock()
	delete(s.stage.adapters, id)
	if d.HasArg("loaded") {
		s.stage.adapters[id] = nil
		for _, name := range strings.FieldsFunc(option(d, "loaded", ""), func(c rune) bool { return c == ',' }) {
			s.stage.adapters[id] = append(s.stage.adapters[id], fleet.Adapter{Name: name})
		}
	}
	s.stage.mu.Unlock()
	s.r.Reconsider(id)
	return ""
}
