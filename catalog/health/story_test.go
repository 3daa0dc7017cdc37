package health_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/routerd/routerd/catalog/health"
	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/internal/testkit"
)

// TestStories runs testdata/*.txt: what the monitor does, told in commands. Run
// with -rewrite to update what they answer.
func TestStories(t *testing.T) {
	testkit.Stories(t, func(t *testing.T) (func(*testing.T, *datadriven.TestData) string, func()) {
		w, stop := start(t, health.DefaultConfig())
		s := &story{world: w, t: t}
		return s.run, stop
	})
}

type story struct {
	*world
	t *testing.T
}

func (s *story) run(t *testing.T, d *datadriven.TestData) string {
	s.t = t
	commands := map[string]func(*datadriven.TestData) []string{
		"add": s.add, "remove": s.leave, "lacks": s.lacks, "drain": s.drain, "answer": s.answer, "probe": s.probe,
		"advance": s.advance, "request": s.request, "breaker": s.breaker, "workers": s.workers, "config": s.config,
		"share": s.share, "probes": s.probes,
	}
	f := commands[d.Cmd]
	if f == nil {
		d.Fatalf(t, "no command %q", d.Cmd)
	}
	before := s.standings()
	lines := f(d)
	if lines == nil {
		for _, l := range s.standings() { // what changed; on the way there is chance
			if !slices.Contains(before, l) {
				lines = append(lines, l)
			}
		}
	}
	if len(lines) == 0 {
		return "-"
	}
	return strings.Join(lines, "\n")
}

// words are a command's arguments that are no key=value.
func words(d *datadriven.TestData) (out []string) {
	for _, a := range d.CmdArgs {
		if len(a.Vals) == 0 {
			out = append(out, a.Key)
		}
	}
	return out
}

// add adds workers; answer= says what they answer, place= moves one, model= is theirs.
func (s *story) add(d *datadriven.TestData) []string {
	for _, name := range words(d) {
		rec := record(s.t, name)
		for _, a := range d.CmdArgs {
			switch a.Key {
			case "answer":
				s.set(name, a.Vals[0])
			case "model":
				rec.Model = a.Vals[0]
			case "place":
				rec.URL = "http://" + a.Vals[0] + ":80"
			}
		}
		s.put(rec)
	}
	s.wait(100 * time.Millisecond)
	return nil
}

func (s *story) leave(d *datadriven.TestData) []string {
	for _, name := range words(d) {
		s.remove(id(name))
	}
	s.wait(100 * time.Millisecond)
	return nil
}

// lacks makes workers incomplete for a reason that is not their health.
func (s *story) lacks(d *datadriven.TestData) []string {
	for _, name := range words(d) {
		s.roster.mu.Lock()
		s.held[id(name)] = true
		s.roster.mu.Unlock()
		s.lifecycle(id(name), core.Incomplete)
	}
	s.wait(100 * time.Millisecond)
	return nil
}

func (s *story) drain(d *datadriven.TestData) []string {
	for _, name := range words(d) {
		s.lifecycle(id(name), core.Draining)
	}
	s.wait(100 * time.Millisecond)
	return nil
}

// answer sets what a worker answers from now on.
func (s *story) answer(d *datadriven.TestData) []string {
	args := words(d)
	s.set(args[0], args[1])
	return nil
}

// probe lets a worker's next probes fail (F) or succeed (S), one after another.
func (s *story) probe(d *datadriven.TestData) (lines []string) {
	args := words(d)
	for _, letter := range args[1:] {
		s.set(args[0], map[string]string{"S": "success", "F": "refused"}[letter])
		for before := len(s.times(args[0])); len(s.times(args[0])) == before; {
			s.wait(50 * time.Millisecond)
		}
		s.wait(100 * time.Millisecond)
		v, _ := s.find(id(args[0]))
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("%s %s %s", letter, v.Lifecycle, strings.Join(v.Reasons, "; "))))
	}
	return lines
}

func (s *story) advance(d *datadriven.TestData) []string {
	length, err := time.ParseDuration(words(d)[0])
	if err != nil {
		d.Fatalf(s.t, "%v", err)
	}
	s.wait(length)
	return nil
}

// request tells how requests to a worker went: request w1 server_error times=5.
func (s *story) request(d *datadriven.TestData) []string {
	args, times := words(d), 1
	if d.HasArg("times") {
		d.ScanArgs(s.t, "times", &times)
	}
	for o := fleet.Success; o <= fleet.BrokenStream; o++ {
		if o.String() == args[1] {
			for range times {
				s.monitor.Passive(id(args[0]), o)
			}
			s.wait(100 * time.Millisecond)
			return nil
		}
	}
	d.Fatalf(s.t, "no outcome %q", args[1])
	return nil
}

func (s *story) breaker(d *datadriven.TestData) []string {
	args := words(d)
	s.monitor.Breaker(id(args[0]), args[1] == "open", strings.Join(args[2:], " "))
	s.wait(100 * time.Millisecond)
	return nil
}

func (s *story) workers(*datadriven.TestData) []string { return s.standings() }

// standings are where all workers stand, by name.
func (s *story) standings() (lines []string) {
	for _, v := range s.Workers() {
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("%s %s %s", v.Name, v.Lifecycle, strings.Join(v.Reasons, "; "))))
	}
	slices.Sort(lines)
	return lines
}

func (s *story) config(d *datadriven.TestData) []string {
	for _, a := range d.CmdArgs {
		number, _ := strconv.Atoi(a.Vals[0])
		length, _ := time.ParseDuration(a.Vals[0])
		switch a.Key {
		case "interval":
			s.cfg.Interval = length
		case "grace":
			s.cfg.Grace = length
		case "slow_start":
			s.cfg.SlowStart = length
		case "max_ejected":
			s.cfg.MaxEjected = number
		case "failures":
			s.cfg.Failures = number
		default:
			d.Fatalf(s.t, "no key %q", a.Key)
		}
	}
	s.monitor.Configure(s.cfg)
	s.wait(100 * time.Millisecond)
	return nil
}

// share tells how many of 1,000 requests a worker is left in for, beside the others
// that are ready.
func (s *story) share(d *datadriven.TestData) []string {
	name := words(d)[0]
	var all []fleet.Worker
	for _, v := range s.Workers() {
		if v.Lifecycle == core.Ready {
			all = append(all, fleet.Worker{ID: v.ID})
		}
	}
	n := 0
	for seed := range uint64(1000) {
		keep := kept(s.monitor, &core.Request{Seed: &seed}, all)
		for i, w := range all {
			if w.ID == id(name) && keep[i] {
				n++
			}
		}
	}
	return []string{fmt.Sprintf("%d %%", (n+5)/10)}
}

func (s *story) probes(d *datadriven.TestData) []string {
	return []string{strconv.Itoa(len(s.times(words(d)[0])))}
}

// kept is what Narrow leaves.
func kept(m *health.Monitor, req *core.Request, workers []fleet.Worker) []bool {
	keep := make([]bool, len(workers))
	for i := range keep {
		keep[i] = true
	}
	m.Narrow(req, workers, keep)
	return keep
}
