package core_test

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/core/reserve"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/internal/testkit"
)

// TestStories runs testdata/*.txt: what the core does, told in commands. Run
// with -rewrite to update what they answer.
func TestStories(t *testing.T) {
	testkit.Stories(t, func(t *testing.T) (func(*testing.T, *datadriven.TestData) string, func()) {
		s := &story{t: t}
		s.start(core.DefaultConfig(), "builtin:kv-aware")
		return s.run, s.end
	})
}

// story is the state of one script.
type story struct {
	t       *testing.T
	world   *world
	around  *surroundings
	gate    *gate
	held    map[string]*core.Selection
	members map[string]core.Member
	asked   map[string]*asking
}

func (s *story) run(t *testing.T, d *datadriven.TestData) string {
	s.t = t
	commands := map[string]func(*datadriven.TestData) string{
		"add-worker": s.addWorker, "patch-worker": s.addWorker, "remove-worker": s.removeWorker, "lifecycle": s.lifecycle,
		"book": s.selectBy(core.Book), "query": s.selectBy(core.Query), "advisory": s.selectBy(core.Advisory),
		"first-token": s.onHeld(func(r *reserve.Reservation) string { r.FirstToken(time.Now()); return "ok" }),
		"prefill-complete": s.onHeld(func(r *reserve.Reservation) string {
			r.PrefillComplete()
			return "ok"
		}),
		"output": s.output, "free": s.free, "loads": s.loads, "store": s.store, "clear": s.clear, "models": s.models,
		"resolve": s.resolve, "policy": s.policy, "decision": s.decision, "partitions": s.partitions,
		"advance": s.advance, "forget": s.forget, "shutdown": func(*datadriven.TestData) string { s.world.Close(); return "ok" },
		"reservations": func(*datadriven.TestData) string { return strconv.Itoa(s.world.Reservations()) },
		"released":     s.released,
		"inhibit":      s.onWorker((*core.SelectionCore).Inhibit), "reached": s.onWorker((*core.SelectionCore).Reached),
		"least-loaded": s.leastLoaded,
		"config":       s.config, "shut-gate": s.shutGate, "open-gate": s.openGate,
		"go": s.beside, "settle": s.settle, "cancel": s.cancel, "waiting": s.waiting, "tick": s.tick,
		"reserve": s.reserve, "prefill-complete-id": s.prefillCompleteID, "output-block": s.outputBlock, "free-id": s.freeID,
		"opened":   func(*datadriven.TestData) string { return strconv.Itoa(s.world.cache.opened) },
		"pending":  func(*datadriven.TestData) string { return strconv.Itoa(s.world.Stats().Pending) },
		"bindings": s.bindings, "sessions": s.sessions, "binding-event": s.bindingEvent,
		"refused": s.refused, "report": s.report, "rule-out": s.ruleOut, "shared": s.shared, "replicated": s.replicated,
		"adapter-state": s.adapterState, "plan-adapters": s.planAdapters,
	}
	f := commands[d.Cmd]
	if f == nil {
		t.Fatalf("%s: unknown command %q", d.Pos, d.Cmd)
	}
	out := strings.TrimRight(f(d), "\n") + "\n"
	synctest.Wait() // what it has set going comes before the next command
	return out
}

// arg reads one argument of the command, def when it is absent.
func arg(d *datadriven.TestData, key, def string) string {
	for _, a := range d.CmdArgs {
		if a.Key == key {
			return strings.Join(a.Vals, ",")
		}
	}
	return def
}

// pairs reads values like zone:a.
func pairs(values []string) map[string]string {
	out := map[string]string{}
	for _, v := range values {
		key, value, _ := strings.Cut(v, ":")
		out[key] = value
	}
	return out
}

func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic(err)
	}
	return n
}

// names are the arguments without a value.
func names(d *datadriven.TestData) (out []string) {
	for _, a := range d.CmdArgs {
		if len(a.Vals) == 0 {
			out = append(out, a.Key)
		}
	}
	return out
}

// addWorker upserts; patch-worker starts from the record as it was.
func (s *story) addWorker(d *datadriven.TestData) string {
	name := names(d)[0]
	m := core.Member{Record: record(name, "m1"), Lifecycle: core.Ready}
	if d.Cmd == "patch-worker" {
		m = s.members[name]
	}
	rec := &m.Record
	for _, a := range d.CmdArgs {
		value := strings.Join(a.Vals, ",")
		switch a.Key {
		case "model":
			rec.Model = value
		case "group":
			rec.Group = value
		case "id":
			rec.ID = fleet.WorkerID(number(value))
		case "ranks":
			rec.DPSize = number(value)
		case "url":
			rec.URL = value
		case "lifecycle":
			m.Lifecycle = core.Lifecycle(value)
		case "reason":
			m.Reasons = []string{value}
		case "label":
			rec.Labels = map[string]string{"zone": value}
		case "labels":
			rec.Labels = pairs(a.Vals)
		case "taints":
			rec.Taints = slices.DeleteFunc(a.Vals, func(v string) bool { return v == "" })
		case "start":
			rec.DPStart = number(value)
		case "batch":
			rec.MaxBatchedTokens = number(value)
		case "kv":
			rec.TotalKVBlocks = number(value)
		case "adapter", "adapters":
			rec.Adapters = nil
			for _, v := range a.Vals {
				rec.Adapters = append(rec.Adapters, fleet.Adapter{Name: v})
			}
		}
	}
	blockSize := number(arg(d, "block", "16"))
	if d.HasArg("block") {
		m.BlockSize = blockSize
	} else if p := s.partition(rec.Partition()); p != nil {
		blockSize = p.BlockSize
	}
	m.BlockSize = blockSize
	if err := s.world.Prepare(s.t.Context(), rec.Partition(), blockSize); err != nil {
		return "error: " + err.Error()
	}
	if err := s.world.Commit(core.Change{Upserts: []core.Member{m}}); err != nil {
		return "error: " + err.Error()
	}
	s.members[name] = m
	return "ok"
}

// partition is the partition of a key, nil when there is none.
func (s *story) partition(key fleet.PartitionKey) *core.PartitionView {
	for _, p := range s.world.Partitions() {
		if p.Key() == key {
			return &p
		}
	}
	return nil
}

func (s *story) removeWorker(d *datadriven.TestData) string {
	for _, name := range names(d) {
		s.world.remove(s.t, name)
		s.world.cache.drop(fleet.IDFromName(name))
	}
	return "ok"
}

// forget forgets the partitions that have had no worker for a time: "forget 10m keep=m1".
func (s *story) forget(d *datadriven.TestData) string {
	after, err := time.ParseDuration(names(d)[0])
	if err != nil {
		s.t.Fatal(err)
	}
	var out []string
	for _, key := range s.world.Forget(time.Now(), after, func(key fleet.PartitionKey) bool { return key.Model == arg(d, "keep", "") }) {
		out = append(out, key.String())
	}
	return cmp.Or(strings.Join(out, " "), "none")
}

func (s *story) lifecycle(d *datadriven.TestData) string {
	n := names(d)
	if err := s.world.SetLifecycle(fleet.IDFromName(n[0]), core.Lifecycle(n[1]), nil); err != nil {
		return "error: " + err.Error()
	}
	return "ok"
}

func (s *story) onWorker(f func(*core.SelectionCore, fleet.WorkerID)) func(*datadriven.TestData) string {
	return func(d *datadriven.TestData) string {
		for _, name := range names(d) {
			f(s.world.SelectionCore, fleet.IDFromName(name))
		}
		return "ok"
	}
}

func (s *story) leastLoaded(*datadriven.TestData) string {
	name, _, _ := s.world.LeastLoaded(fleet.PartitionKey{Model: "m1"})
	return cmp.Or(name, "none")
}

// tokens reads "A:160+B:40": 160 tokens of text A, then 40 of text B.
func tokens(script string) []uint32 {
	out := []uint32{}
	for part := range strings.SplitSeq(script, "+") {
		text, n, _ := strings.Cut(part, ":")
		out = append(out, prompt(text[0], number(n))...)
	}
	return out
}

func failure(err error) string {
	if e, ok := errors.AsType[*core.Error](err); ok {
		out := "error " + string(e.Code)
		if e.RetryAfter > 0 {
			out += " retry " + e.RetryAfter.String()
		}
		return out + ": " + e.Message
	}
	return "error: " + err.Error()
}

func (s *story) onHeld(f func(*reserve.Reservation) string) func(*datadriven.TestData) string {
	return func(d *datadriven.TestData) string {
		sel := s.held[names(d)[0]]
		if sel == nil {
			return "no such reservation"
		}
		return f(sel.Reservation)
	}
}

func (s *story) output(d *datadriven.TestData) string {
	return s.onHeld(func(r *reserve.Reservation) string {
		r.OutputBlocks(number(arg(d, "blocks", "1")))
		return "ok"
	})(d)
}

func (s *story) free(d *datadriven.TestData) string {
	return s.onHeld(func(r *reserve.Reservation) string {
		if r.Release(reserve.Outcome{Kind: reserve.Kind(arg(d, "kind", "completed"))}) {
			return "released"
		}
		return "was released before"
	})(d)
}

func (s *story) loads(*datadriven.TestData) string {
	loads := s.world.loads()
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(loads)) {
		l := loads[name]
		fmt.Fprintf(&b, "%s: prefill %d blocks %v active %d\n", name, l.PrefillTokens, l.DecodeBlocks, l.ActiveRequests)
	}
	return cmp.Or(b.String(), "no ranks")
}

func (s *story) store(d *datadriven.TestData) string {
	name := names(d)[0]
	s.world.cache.store(fleet.Worker{ID: fleet.IDFromName(name)}, tokens(arg(d, "prompt", "")), 16)
	return "ok"
}

func (s *story) clear(d *datadriven.TestData) string {
	s.world.cache.drop(fleet.IDFromName(names(d)[0]))
	return "ok"
}

func (s *story) resolve(d *datadriven.TestData) string {
	key, adapter, ok := s.world.ResolveModel(names(d)[0], arg(d, "group", ""))
	if !ok {
		return "not found"
	}
	return fmt.Sprintf("%s adapter %q", key, adapter)
}

func (s *story) decision(d *datadriven.TestData) string {
	rec, ok := s.world.Decisions().Get(arg(d, "id", ""))
	if !ok {
		return "no such decision"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s %s/%d pick %s/%d by %s tie %d tokens %d blocks %d\n", rec.Kind, rec.Partition.Model, rec.Policy.Name,
		rec.Policy.Revision, rec.Pick.Name, rec.Pick.Rank, rec.Pick.By, rec.Tie.Rows, rec.Request.Tokens, rec.Request.Blocks)
	for _, r := range rec.Rows {
		fmt.Fprintf(&b, "%d total %g", r.Rank, r.Total)
		for _, c := range slices.Sorted(maps.Keys(r.Columns)) {
			if v := r.Columns[c]; v != 0 && c != "taint.preference" {
				fmt.Fprintf(&b, " %s %g", c, v)
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func (s *story) partitions(*datadriven.TestData) string {
	var b strings.Builder
	for _, p := range s.world.Partitions() {
		fmt.Fprintf(&b, "%s:%s block %d policy %s/%d\n", p.Model, p.Group, p.BlockSize, p.Policy.Name, p.Policy.Revision)
		for _, r := range p.Ranks {
			fmt.Fprintf(&b, "  %s/%d %s %s\n", r.Name, r.Rank, r.Lifecycle, strings.Join(r.Reasons, ","))
		}
	}
	return b.String()
}

func (s *story) released(*datadriven.TestData) string {
	s.world.heard.mu.Lock()
	defer s.world.heard.mu.Unlock()
	var b strings.Builder
	for _, e := range s.world.heard.released {
		fmt.Fprintf(&b, "%s %s after %s\n", e.Key.SelectionID, e.Outcome.Kind, e.Held)
	}
	s.world.heard.released = nil
	return cmp.Or(b.String(), "none")
}
