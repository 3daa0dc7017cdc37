package core_test

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/core/reserve"
	"github.com/routerd/routerd/fleet"
)

var sequences = flag.Int("sequences", 10_000, "random sequences that TestR8 runs")

// TestR8_LoadsEqualTheModel runs random scripts of bookings, their events,
// releases and changes of workers against a model that counts everything anew
// after each step. A failure prints the script; put into testdata/replay/ it
// runs for good.
func TestR8_LoadsEqualTheModel(t *testing.T) {
	for seed := range uint64(*sequences) {
		rng := rand.New(rand.NewPCG(seed, 8))
		m := newLoadModel(t)
		for range 24 {
			if err := m.step(m.draw(rng)); err != nil {
				t.Fatalf("sequence %d: %v; the script:\n%s", seed, err, strings.Join(m.script, "\n"))
			}
		}
		if err := m.finish(); err != nil {
			t.Fatalf("sequence %d: %v; the script:\n%s", seed, err, strings.Join(m.script, "\n"))
		}
	}
}

// TestR8_Replays runs the scripts that once failed.
func TestR8_Replays(t *testing.T) {
	paths, err := filepath.Glob("testdata/replay/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no replays: %v", err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			m := newLoadModel(t)
			for line := range strings.Lines(string(text)) {
				if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
					continue
				}
				if err := m.step(line); err != nil {
					t.Fatal(err)
				}
			}
			if err := m.finish(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// loadModel is what the loads should be, kept in the plainest way.
type loadModel struct {
	t      *testing.T
	world  *world
	ranks  map[string]int // of each registered worker
	state  map[string]core.Lifecycle
	held   map[string]*modelBooking
	ended  []*core.Selection
	script []string
	ids    int
}

type modelBooking struct {
	sel     *core.Selection
	prompt  string // one letter a block
	prefill int64
	output  float64 // blocks shared with nobody: the prompt's last if it is in part, and those of the output
}

func newLoadModel(t *testing.T) *loadModel {
	m := &loadModel{
		t: t, world: newWorld(t, use("builtin:kv-aware"), nil, func(c *core.Config) { c.DecisionEntries = 4 }),
		ranks: map[string]int{}, state: map[string]core.Lifecycle{}, held: map[string]*modelBooking{},
	}
	return m
}

// draw makes up the next step from what is there.
func (m *loadModel) draw(rng *rand.Rand) string {
	worker := fmt.Sprintf("w%d", rng.IntN(3)+1)
	anyHeld := func() string {
		if m.ids == 0 {
			return "r1"
		}
		return fmt.Sprintf("r%d", rng.IntN(m.ids)+1)
	}
	switch n := rng.IntN(100); {
	case len(m.ranks) == 0 || n < 8:
		return fmt.Sprintf("put %s %d", worker, rng.IntN(3)+1)
	case n < 14:
		return "delete " + worker
	case n < 18:
		return fmt.Sprintf("update %s %d", worker, rng.IntN(9))
	case n < 22:
		return fmt.Sprintf("lifecycle %s %s", worker, []core.Lifecycle{core.Ready, core.Ready, core.Draining, core.Ejected}[rng.IntN(4)])
	case n < 26:
		return fmt.Sprintf("store %s %s", worker, drawPrompt(rng))
	case n < 62:
		m.ids++
		return fmt.Sprintf("book r%d %s %d", m.ids, drawPrompt(rng), rng.IntN(16))
	case n < 70:
		return "prefill " + anyHeld()
	case n < 76:
		return "first " + anyHeld()
	case n < 82:
		return fmt.Sprintf("output %s %d", anyHeld(), rng.IntN(4))
	default:
		return fmt.Sprintf("release %s %s", anyHeld(), []reserve.Kind{reserve.Completed, reserve.Cancelled, reserve.Expired, reserve.Failed}[rng.IntN(4)])
	}
}

// drawPrompt makes a prompt that shares a prefix with others more often than
// not; "-" is none.
func drawPrompt(rng *rand.Rand) string {
	n := rng.IntN(7)
	if n == 0 {
		return "-"
	}
	b := make([]byte, n)
	for i := range b {
		b[i] = 'A'
		if rng.IntN(4) == 0 {
			b[i] = 'B'
		}
	}
	return string(b)
}

func promptOf(letters string, tail int) []uint32 {
	out := []uint32{}
	for _, c := range strings.Trim(letters, "-") {
		out = append(out, prompt(byte(c), 16)...)
	}
	return append(out, prompt('Z', tail)...)
}

// step runs one line of a script on core and model, and compares them.
func (m *loadModel) step(line string) error {
	m.script = append(m.script, line)
	f := strings.Fields(line)
	var err error
	switch f[0] {
	case "put":
		err = m.put(f[1], number(f[2]), "")
	case "update":
		if n, ok := m.ranks[f[1]]; ok {
			err = m.put(f[1], n, f[2])
		}
	case "delete":
		err = m.remove(f[1])
	case "lifecycle":
		if _, ok := m.ranks[f[1]]; ok {
			m.state[f[1]] = core.Lifecycle(f[2])
			err = m.world.SetLifecycle(fleet.IDFromName(f[1]), core.Lifecycle(f[2]), nil)
		}
	case "store":
		m.world.cache.store(fleet.Worker{ID: fleet.IDFromName(f[1])}, promptOf(f[2], 0), 16)
	case "book":
		err = m.book(f[1], f[2], number(f[3]))
	default:
		err = m.event(f)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", line, err)
	}
	if want, got := m.loads(), m.world.loads(); !maps.Equal(want, got) {
		return fmt.Errorf("%s: loads (-model +core):\n%s", line, cmp.Diff(want, got))
	}
	if got := m.world.Reservations(); got != len(m.held) {
		return fmt.Errorf("%s: %d reservations; the model has %d", line, got, len(m.held))
	}
	return nil
}

func (m *loadModel) put(name string, ranks int, label string) error {
	rec := record(name, "m1")
	rec.DPSize = ranks
	if label != "" {
		rec.Labels = map[string]string{"l": label}
	}
	state := m.state[name]
	if state == "" {
		state = core.Ready
	}
	m.ranks[name], m.state[name] = ranks, state
	m.dropped(func(b *modelBooking) bool { return b.sel.Name == name && int(b.sel.Worker.Rank) >= ranks })
	if err := m.world.Prepare(m.t.Context(), model("m1"), 16); err != nil {
		return err
	}
	return m.world.Commit(core.Change{Upserts: []core.Member{{Record: rec, Lifecycle: state}}})
}

func (m *loadModel) remove(name string) error {
	delete(m.ranks, name)
	delete(m.state, name)
	m.dropped(func(b *modelBooking) bool { return b.sel.Name == name })
	return m.world.Commit(core.Change{Removals: []fleet.WorkerID{fleet.IDFromName(name)}})
}

func (m *loadModel) dropped(gone func(*modelBooking) bool) {
	for id, b := range m.held {
		if gone(b) {
			delete(m.held, id)
			m.ended = append(m.ended, b.sel)
		}
	}
}

func (m *loadModel) book(id, letters string, tail int) error {
	tokens := promptOf(letters, tail)
	sel, err := m.world.Select(m.t.Context(), bookRequest(id, tokens))
	ready := false
	for _, s := range m.state {
		ready = ready || s == core.Ready
	}
	if e, ok := errors.AsType[*core.Error](err); ok && !ready && (e.Code == core.CodeNoWorkers || e.Code == core.CodeWorkersEjected || e.Code == core.CodeModelNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if m.state[sel.Name] != core.Ready || int(sel.Worker.Rank) >= m.ranks[sel.Name] {
		return fmt.Errorf("picked %s/%d, which is not eligible", sel.Name, sel.Worker.Rank)
	}
	m.held[id] = &modelBooking{
		sel: sel, prompt: strings.Trim(letters, "-"), prefill: int64(len(tokens)) - 16*int64(sel.Overlap.Device),
		output: float64((tail + 15) / 16),
	}
	return nil
}

// event is something that happens to a booking; to one that has ended it
// changes nothing.
func (m *loadModel) event(f []string) error {
	b := m.held[f[1]]
	if b == nil {
		for _, sel := range m.ended {
			if sel.ID == f[1] {
				sel.Reservation.PrefillComplete()
				sel.Reservation.OutputBlocks(1)
				if sel.Reservation.Release(reserve.Outcome{Kind: reserve.Completed}) {
					return errors.New("released twice")
				}
			}
		}
		return nil
	}
	switch f[0] {
	case "prefill":
		b.sel.Reservation.PrefillComplete()
		b.prefill = 0
	case "first":
		b.sel.Reservation.FirstToken(time.Now())
		b.prefill = 0
	case "output":
		b.sel.Reservation.OutputBlocks(number(f[2]))
		b.output += float64(number(f[2]))
	case "release":
		if !b.sel.Reservation.Release(reserve.Outcome{Kind: reserve.Kind(f[2])}) {
			return errors.New("not released")
		}
		delete(m.held, f[1])
		m.ended = append(m.ended, b.sel)
	default:
		return errors.New("unknown step")
	}
	return nil
}

// loads counts from nothing.
func (m *loadModel) loads() map[string]core.LoadView {
	out := map[string]core.LoadView{}
	for name, n := range m.ranks {
		for r := range n {
			out[fmt.Sprintf("%s/%d", name, r)] = core.LoadView{}
		}
	}
	blocks := map[string]bool{}
	for _, b := range m.held {
		rank := fmt.Sprintf("%s/%d", b.sel.Name, b.sel.Worker.Rank)
		l := out[rank]
		l.ActiveRequests++
		l.PrefillTokens += b.prefill
		l.DecodeBlocks += b.output
		for i := range b.prompt {
			if prefix := rank + b.prompt[:i+1]; !blocks[prefix] {
				blocks[prefix] = true
				l.DecodeBlocks++
			}
		}
		out[rank] = l
	}
	return out
}

// finish releases all that is held: nothing may be left.
func (m *loadModel) finish() error {
	for id := range m.held {
		if err := m.step("release " + id + " completed"); err != nil {
			return err
		}
	}
	if n := m.world.active(); n != 0 {
		return fmt.Errorf("%d bookings left", n)
	}
	return nil
}
