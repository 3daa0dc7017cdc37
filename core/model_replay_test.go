package core_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/routerd/routerd/core"
)

var replays = flag.Int("replays", 100, "how often each sequence is run that once failed")

// TestR8_TheWholeCoreReplays runs the sequences in which core and model once
// differed, as the failure printed them. Who of several is first is chance, so that
// each is run many times.
func TestR8_TheWholeCoreReplays(t *testing.T) {
	paths, err := filepath.Glob("testdata/whole/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no sequences: %v", err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			kind, script := readSequence(t, path)
			for range *replays {
				var failed error
				synctest.Test(t, func(t *testing.T) {
					ctx, cancel := context.WithCancel(context.Background())
					defer cancel()
					failed = newWholeModel(ctx, t, kind, map[string]int{}).run(script)
				})
				if failed != nil {
					t.Fatal(failed)
				}
			}
		})
	}
}

// readSequence reads a kind, as "queued small" or "exact" for none of the three, and then a step a line.
func readSequence(t *testing.T, path string) (kind modelKind, script []modelStep) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	first := true
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		if first {
			words := strings.Fields(line)
			kind = modelKind{queued: slices.Contains(words, "queued"), soft: slices.Contains(words, "soft"), small: slices.Contains(words, "small")}
			first = false
			continue
		}
		s, err := parseStep(line)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if got := s.String(); got != line {
			t.Fatalf("%q was read as %q", line, got)
		}
		script = append(script, s)
	}
	return kind, script
}

// parseStep reads what modelStep.String has written.
func parseStep(line string) (s modelStep, err error) {
	f := strings.Fields(line)
	if len(f) < 4 {
		return s, fmt.Errorf("%d words; want 4 at least", len(f))
	}
	s.op, s.worker, s.part = f[0], f[1], f[2]
	if s.number, err = strconv.Atoi(f[3]); err != nil {
		return s, err
	}
	for _, word := range f[4:] {
		name, value, named := strings.Cut(word, "=")
		switch {
		case named:
			err = s.ask.set(name, value)
		case s.op == "lifecycle":
			s.state = core.Lifecycle(word)
		case s.op == "select", s.op == "reserve":
			for _, k := range []core.Kind{core.Book, core.Query, core.Advisory} {
				if k.String() == word {
					s.ask.kind = k
				}
			}
		default:
			s.wait, err = time.ParseDuration(word)
		}
		if err != nil {
			return s, err
		}
	}
	return s, nil
}

// set sets a field by the name that String gives it.
func (a *modelAsk) set(name, value string) (err error) {
	texts := map[string]*string{
		"class": &a.class, "session": &a.session, "pin": &a.pin, "allow": &a.allow, "exclude": &a.exclude, "adapter": &a.adapter, "prompt": &a.letters,
	}
	numbers := map[string]*int{"tail": &a.tail, "priority": &a.priority, "times": &a.times, "rank": &a.rank, "id": &a.id}
	flags := map[string]*bool{"leased": &a.leased, "again": &a.again, "keen": &a.keen, "explicit": &a.explicit}
	switch {
	case texts[name] != nil:
		*texts[name] = value
	case numbers[name] != nil:
		*numbers[name], err = strconv.Atoi(value)
	case flags[name] != nil:
		*flags[name], err = strconv.ParseBool(value)
	default:
		err = fmt.Errorf("no field %q", name)
	}
	return err
}
