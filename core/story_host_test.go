package core_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/routerd/routerd/core/affinity"
	"github.com/routerd/routerd/core/load"
	"github.com/routerd/routerd/core/lora"
	"github.com/routerd/routerd/core/reserve"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/kvcache"
)

func endOf(kind string) reserve.Outcome { return reserve.Outcome{Kind: reserve.Kind(kind)} }

// bindingEvent is another router's binding of a session.
func (s *story) bindingEvent(d *datadriven.TestData) string {
	pin := pinOf(arg(d, "worker", "w1"))
	w := fleet.Worker{ID: fleet.IDFromName(pin.Name)}
	if pin.Rank != nil {
		w.Rank = *pin.Rank
	}
	age := s.duration(d, "age") // before now
	return string(s.world.ApplyBinding(fleet.PartitionKey{Model: arg(d, "model", "m1")}, affinity.Event{
		ID: arg(d, "session", ""), Worker: w,
		Version: affinity.Version{Sequence: uint64(time.Now().Add(-age).UnixNano()), Writer: uint64(number(arg(d, "writer", "9")))},
	}))
}

func (s *story) refused(d *datadriven.TestData) string {
	for _, name := range names(d) {
		s.world.Refused(fleet.IDFromName(name), s.duration(d, "retry"))
	}
	return "ok"
}

// report is what a worker's engine says of rank 0; "report w1 gone" is nothing
// any more.
func (s *story) report(d *datadriven.TestData) string {
	n := names(d)
	w := fleet.Worker{ID: fleet.IDFromName(n[0])}
	s.around.mu.Lock()
	defer s.around.mu.Unlock()
	if len(n) > 1 {
		delete(s.around.reports, w)
		return "ok"
	}
	s.around.reports[w] = load.Report{
		At: time.Now().Add(-s.duration(d, "age")), Queued: int64(number(arg(d, "queued", "-1"))), Running: int64(number(arg(d, "running", "-1"))),
		KVUsed: int64(number(arg(d, "used", "-1"))), KVTotal: -1, KVUsage: -1,
	}
	return "ok"
}

// ruleOut names the workers that the host does not let serve.
func (s *story) ruleOut(d *datadriven.TestData) string {
	s.around.mu.Lock()
	defer s.around.mu.Unlock()
	clear(s.around.ruledOut)
	for _, name := range names(d) {
		s.around.ruledOut[fleet.IDFromName(name)] = true
	}
	return "ok"
}

// shared sets the ranges that the shared cache holds; "shared down" makes it fail.
func (s *story) shared(d *datadriven.TestData) string {
	s.around.mu.Lock()
	defer s.around.mu.Unlock()
	s.around.shared, s.around.down = nil, false
	for _, text := range names(d) {
		if text == "down" {
			s.around.down = true
			continue
		}
		from, to, _ := strings.Cut(text, "-")
		s.around.shared = append(s.around.shared, kvcache.BlockRange{Start: uint32(number(from)), End: uint32(number(to))})
	}
	return "ok"
}

// replicated tells what replicas were told since the last time.
func (s *story) replicated(*datadriven.TestData) string {
	s.around.mu.Lock()
	defer s.around.mu.Unlock()
	out := strings.Join(s.around.told, "\n")
	s.around.told = nil
	return cmp.Or(out, "nothing")
}

// adapterState says where a worker stands with an adapter.
func (s *story) adapterState(d *datadriven.TestData) string {
	n := names(d)
	if n[2] == "forget" {
		s.world.ForgetAdapterState(fleet.IDFromName(n[0]), n[1])
		return "ok"
	}
	states := map[string]lora.State{"absent": lora.Absent, "loading": lora.Loading, "loaded": lora.Loaded}
	s.world.SetAdapterState(fleet.IDFromName(n[0]), n[1], states[n[2]])
	return "ok"
}

// planAdapters makes a step of the allocation; each line is a worker: "w1
// slots=2 manage=sql,chat loaded=sql".
func (s *story) planAdapters(d *datadriven.TestData) string {
	var workers []lora.Worker
	list := func(text string) []string { return strings.FieldsFunc(text, func(r rune) bool { return r == ',' }) }
	for line := range strings.Lines(d.Input) {
		words := strings.Fields(line)
		set := settings(words[1:])
		workers = append(workers, lora.Worker{
			ID: fleet.IDFromName(words[0]), Slots: number(cmp.Or(set["slots"], "4")), Manage: list(set["manage"]), Loaded: list(set["loaded"]),
		})
	}
	var lines []string
	for _, a := range s.world.PlanAdapters(time.Now(), workers) {
		lines = append(lines, fmt.Sprintf("%s %s %s", map[bool]string{true: "load", false: "unload"}[a.Load], a.Adapter, nameOf(a.Worker)))
	}
	slices.Sort(lines)
	if more := s.settle(nil); more != "nobody" {
		lines = append(lines, more)
	}
	return cmp.Or(strings.Join(lines, "\n"), "nothing to do")
}
