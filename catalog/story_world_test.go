package catalog_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/routerd/routerd/catalog"
	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
)

const askTakes = 10 * time.Millisecond // of the bubble's clock

// stage plays everything around a Reconciler and writes down in order what it is told.
type stage struct {
	mu         sync.Mutex // guards the fields below
	lines      []line
	blockSizes map[fleet.PartitionKey]int
	names      map[fleet.WorkerID]string

	configured map[string]int
	engines    map[string]told // by URL
	asked      map[string]int  // by worker
	standing   map[fleet.WorkerID]standing
	adapters   map[fleet.WorkerID][]fleet.Adapter
	slow       map[string]time.Duration // how long a model's policy takes to build
	commits    error                    // the refusal of a change of more than one worker
	refuses    map[string]error         // by worker
	listens    error
}

// told is how an engine answers.
type told struct {
	facts catalog.Facts
	err   error
	after time.Duration
}

type standing struct {
	lifecycle core.Lifecycle
	reasons   []string
}

func newStage() *stage {
	return &stage{
		blockSizes: map[fleet.PartitionKey]int{}, names: map[fleet.WorkerID]string{}, configured: map[string]int{},
		engines: map[string]told{}, asked: map[string]int{}, standing: map[fleet.WorkerID]standing{},
		adapters: map[fleet.WorkerID][]fleet.Adapter{}, slow: map[string]time.Duration{}, refuses: map[string]error{},
	}
}

// line is what was told of one worker.
type line struct {
	id   fleet.WorkerID
	text string
}

func (s *stage) note(id fleet.WorkerID, format string, args ...any) {
	s.lines = append(s.lines, line{id, fmt.Sprintf(format, args...)})
}

// take returns what was written down since the last call, worker by worker: only the
// order of what one is told is more than chance, and of that not which rank is listened
// to first, nor how often the core refuses it.
func (s *stage) take() (out []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	lines := s.lines
	s.lines = nil
	slices.SortStableFunc(lines, func(a, b line) int { return cmp.Compare(a.id, b.id) })
	for from := 0; from < len(lines); {
		to := from
		for to < len(lines) && lines[to].id == lines[from].id && strings.HasPrefix(lines[to].text, "listen ") {
			to++
		}
		slices.SortFunc(lines[from:to], func(a, b line) int { return cmp.Compare(a.text, b.text) })
		from = max(to, from+1)
	}
	for _, l := range slices.Compact(lines) {
		out = append(out, l.text)
	}
	return out
}

func (s *stage) Prepare(_ context.Context, key fleet.PartitionKey, blockSize int) error {
	s.mu.Lock()
	wait := s.slow[key.Model]
	s.mu.Unlock()
	<-time.After(wait) // the bubble's clock
	s.mu.Lock()
	defer s.mu.Unlock()
	if has, ok := s.blockSizes[key]; ok && has != blockSize {
		return &core.MismatchError{Partition: key, Field: "block_size", Has: strconv.Itoa(has), Requested: strconv.Itoa(blockSize)}
	}
	s.blockSizes[key] = blockSize
	return nil
}

func (s *stage) Commit(ch core.Change) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.commits != nil && len(ch.Upserts) > 1 {
		return s.commits
	}
	for _, m := range ch.Upserts {
		if err := s.refuses[m.Record.Name]; err != nil {
			s.note(m.Record.ID, "refused %s", m.Record.Name)
			return err
		}
	}
	for _, m := range ch.Upserts {
		s.names[m.Record.ID] = m.Record.Name
		s.note(m.Record.ID, "upsert %s", member(m))
	}
	for _, id := range ch.Removals {
		if _, ok := s.names[id]; !ok {
			return fmt.Errorf("worker %d is not there", id)
		}
		s.note(id, "remove %s", s.names[id])
		delete(s.names, id)
	}
	return nil
}

// member is a worker in short: its name, model/block size, ranks, and what is unusual.
func member(m core.Member) string {
	r := m.Record
	out := fmt.Sprintf("%s %s/%d x%d", r.Name, r.Model, m.BlockSize, r.DPSize)
	if r.Group != "default" {
		out += " group=" + r.Group
	}
	if r.Engine != "vllm" {
		out += " " + r.Engine
	}
	if r.TotalKVBlocks != 0 {
		out += fmt.Sprintf(" kv=%d", r.TotalKVBlocks)
	}
	for _, a := range r.Adapters {
		out += " +" + a.Name
	}
	if m.Lifecycle != core.Ready {
		out += " " + string(m.Lifecycle)
	}
	return out
}

func (s *stage) Listen(l catalog.Listening, _ func() *fleet.Record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listens != nil {
		return s.listens
	}
	line := fmt.Sprintf("listen %s %s %s", l.Worker, strings.TrimPrefix(l.Endpoint, "tcp://"), l.Engine)
	if l.Replay != "" {
		line += " replay"
	}
	s.note(l.Worker.ID, "%s", line)
	return nil
}

func (s *stage) Unlisten(_ fleet.PartitionKey, ranks ...fleet.Worker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	line := "unlisten"
	for _, w := range ranks {
		line += " " + w.String()
	}
	s.note(ranks[0].ID, "%s", line)
}

func (s *stage) Configured(model string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.configured[model]
}

func (s *stage) Ask(ctx context.Context, rec fleet.Record) (catalog.Facts, error) {
	s.mu.Lock()
	s.asked[rec.Name]++
	e, ok := s.engines[rec.URL]
	s.mu.Unlock()
	if !ok {
		e.err = errors.New("connection refused")
	}
	select {
	case <-time.After(askTakes + e.after): // the bubble's clock
	case <-ctx.Done():
		return catalog.Facts{}, context.Cause(ctx)
	}
	return e.facts, e.err
}

func (s *stage) Standing(_ context.Context, rec fleet.Record) (core.Lifecycle, []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st, ok := s.standing[rec.ID]
	if !ok {
		return core.Ready, nil
	}
	return st.lifecycle, st.reasons
}

func (s *stage) loaded(id fleet.WorkerID) ([]fleet.Adapter, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a, ok := s.adapters[id]
	return a, ok
}

// restarted forgets what only a running router has.
func (s *stage) restarted() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.blockSizes)
	clear(s.names)
}

// counts are the questions since the last call.
func (s *stage) counts() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for _, name := range slices.Sorted(maps.Keys(s.asked)) {
		out = append(out, fmt.Sprintf("%s %d", name, s.asked[name]))
	}
	clear(s.asked)
	return strings.Join(out, "\n")
}
