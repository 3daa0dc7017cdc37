package catalog_test

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/cockroachdb/datadriven"

	"github.com/routerd/routerd/fleet"
)

// lose takes a source's place away; it comes back with its next list.
func (s *story) lose(d *datadriven.TestData) string {
	p := s.places[d.CmdArgs[0].Key]
	p.change(func() { p.lost = errors.New("no such place") })
	return ""
}

func (s *story) configured(d *datadriven.TestData) string {
	s.stage.mu.Lock()
	defer s.stage.mu.Unlock()
	for _, a := range d.CmdArgs {
		s.stage.configured[a.Key] = number(s.t, a.Vals[0])
	}
	return ""
}

// policy says how long a model's policy takes to build.
func (s *story) policy(d *datadriven.TestData) string {
	s.stage.mu.Lock()
	defer s.stage.mu.Unlock()
	for _, a := range d.CmdArgs {
		s.stage.slow[a.Key] = span(s.t, a.Vals[0])
	}
	return ""
}

// refuse has the core refuse workers, or every change of several with "together".
func (s *story) refuse(d *datadriven.TestData) string {
	s.stage.mu.Lock()
	defer s.stage.mu.Unlock()
	clear(s.stage.refuses)
	s.stage.commits = nil
	for _, a := range d.CmdArgs {
		switch a.Key {
		case "together":
			s.stage.commits = errors.New("one of them is bad")
		case "none":
		default:
			s.stage.refuses[a.Key] = &fleet.FieldError{Field: "name", Value: a.Key, Allowed: "another one"}
		}
	}
	return ""
}

func (s *story) noListening(d *datadriven.TestData) string {
	s.stage.mu.Lock()
	defer s.stage.mu.Unlock()
	s.stage.listens = nil
	if !d.HasArg("over") {
		s.stage.listens = errors.New("too many sockets")
	}
	return ""
}

// drain also shows how the worker stands when the call returns.
func (s *story) drain(d *datadriven.TestData) string {
	v, err := s.r.Drain(d.CmdArgs[0].Key, span(s.t, option(d, "for", "10m")))
	if err != nil {
		return "error: " + err.Error()
	}
	return "at once: " + string(v.Lifecycle)
}

func (s *story) undrain(d *datadriven.TestData) string {
	if _, err := s.r.Undrain(context.Background(), d.CmdArgs[0].Key); err != nil {
		return "error: " + err.Error()
	}
	return ""
}

func (s *story) reconsider(d *datadriven.TestData) string {
	s.r.Reconsider(s.id(d.CmdArgs[0].Key))
	return ""
}

// restart ends the router and begins another, which knows what is in files.
func (s *story) restart(*datadriven.TestData) string {
	s.stop()
	s.stage.restarted()
	s.start()
	return ""
}

// advance lets further time pass.
func (s *story) advance(d *datadriven.TestData) string {
	s.pass(span(s.t, d.CmdArgs[0].Key))
	return ""
}

// workers lists where all stand, with their sources.
func (s *story) workers(*datadriven.TestData) string {
	var lines []string
	now := lifecycles(s.r)
	for _, v := range s.r.Workers() {
		lines = append(lines, fmt.Sprintf("%s of %s: %s", v.Name, v.Source, now[v.Name]))
	}
	return strings.Join(lines, "\n")
}

// worker shows what is known of one.
func (s *story) worker(d *datadriven.TestData) string {
	v, ok := s.r.Worker(d.CmdArgs[0].Key)
	if !ok {
		return "unknown"
	}
	lines := []string{fmt.Sprintf("model=%q engine=%q version=%q block=%d ranks=%d kv=%d batch=%d events=%d", v.Model, v.Engine, v.Version, v.BlockSize, v.DPSize, v.TotalKVBlocks, v.MaxBatchedTokens, len(v.KVEvents))}
	if v.DrainUntil != nil {
		lines = append(lines, "drains")
	}
	for _, u := range v.Untold {
		lines = append(lines, "untold "+u)
	}
	return strings.Join(lines, "\n")
}

// status tells how the sources stand.
func (s *story) status(*datadriven.TestData) string {
	var lines []string
	for _, st := range s.sources.Status() {
		line := fmt.Sprintf("%s workers=%d up=%t", st.Name, st.Workers, st.Up)
		if st.Err != "" {
			line += " err: " + st.Err
		}
		if st.Refused != "" {
			line += " refused: " + st.Refused
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}
