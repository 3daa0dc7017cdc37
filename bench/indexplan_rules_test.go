package bench_test

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/indexer/exact"
	"github.com/routerd/routerd/kvcache"
)

// smallFleet has workers with some of the families, and prompts whose halves are
// no whole number of batches.
var smallFleet = indexFleet{workers: 5, blocks: 2000, rounds: 1}

const smallDepth = 496

func smallPlan(part indexPart) indexPlan { return makePlan(smallFleet, smallDepth, 100, part) }

// mappedSmall writes a plan and maps it, as the programs that are measured do.
func mappedSmall(t *testing.T, part indexPart) indexPlan {
	t.Helper()
	file := filepath.Join(t.TempDir(), part.name)
	if err := os.WriteFile(file, smallPlan(part), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := mappedPlan(file)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// held is which blocks each worker has, by their names.
type held map[int]map[uint64]bool

// replay goes through a phase as the description says, block by block.
func (h held) replay(t *testing.T, p indexPlan, phase, batch int) {
	t.Helper()
	for i := range p.steps(phase) {
		s := p.step(phase, i)
		worker, _, _ := p.sequence(s.sequence)
		if h[worker] == nil {
			h[worker] = map[uint64]bool{}
		}
		if n := s.to - s.from; n < 1 || n > batch || s.to > p.depth() {
			t.Fatalf("step %d: %+v, want 1 to %d blocks of %d", i, s, batch, p.depth())
		}
		if s.from > 0 && !s.removal {
			if b, at := p.block(s.sequence, s.from-1); !h[worker][b.name(at)] {
				t.Fatalf("step %d: %+v is behind what worker %d does not have", i, s, worker)
			}
		}
		for pos := s.from; pos < s.to; pos++ {
			b, at := p.block(s.sequence, pos)
			if name := b.name(at); h[worker][name] != s.removal {
				t.Fatalf("step %d: %+v of worker %d, which has block %d: %v", i, s, worker, pos, h[worker][name])
			} else if s.removal {
				delete(h[worker], name)
			} else {
				h[worker][name] = true
			}
		}
	}
}

func TestAPlanIsWhatItsDescriptionSays(t *testing.T) {
	for _, part := range indexParts() {
		t.Run(part.name, func(t *testing.T) {
			p := mappedSmall(t, part)
			if p.workers() != smallFleet.workers || p.depth() != smallDepth || p.families() != 4096/smallDepth {
				t.Errorf("%d workers, depth %d, %d families", p.workers(), p.depth(), p.families())
			}
			if again := smallPlan(part); !bytes.Equal(p, again) {
				t.Error("the same arguments make another plan")
			}
			namesAreThoseOfTheTokens(t, p)
			h := held{}
			h.replay(t, p, 0, part.batch)
			for worker, names := range h {
				if n := len(names); n < smallFleet.blocks || n >= smallFleet.blocks+smallDepth {
					t.Errorf("worker %d holds %d blocks, want %d or the sequence that goes beyond", worker, n, smallFleet.blocks)
				}
			}
			for i := range smallFleet.workers {
				first, _, _ := p.sequence(p.step(0, i).sequence)
				if first != i {
					t.Errorf("event %d is worker %d's, want the workers in turns", i, first)
				}
			}
			full := map[int]int{}
			for worker, names := range h {
				full[worker] = len(names)
			}
			h.replay(t, p, 1, part.batch)
			h.replay(t, p, 2, part.batch)
			for worker, names := range h {
				switch n := len(names); {
				case part.name == "churn" && n != full[worker]:
					t.Errorf("worker %d holds %d blocks after the churn, %d before", worker, n, full[worker])
				case part.name != "churn" && (n == 0 || n%p.half() != 0 || n > p.families()*p.half()):
					t.Errorf("worker %d holds %d blocks, want nothing but its families", worker, n)
				}
			}
		})
	}
}

// namesAreThoseOfTheTokens compares the hashes of all sequences with those that
// the product makes of their tokens.
func namesAreThoseOfTheTokens(t *testing.T, p indexPlan) {
	t.Helper()
	for s := range p.sequences() {
		var tokens []uint32
		var hashes []kvcache.BlockHash
		var names []kvcache.SequenceHash
		for pos := range p.depth() {
			b, i := p.block(s, pos)
			tokens = appendTokens(tokens, b.content(i))
			hashes, names = append(hashes, kvcache.BlockHash(b.hash(i))), append(names, kvcache.SequenceHash(b.name(i)))
		}
		want, err := kvcache.BlockHashes(nil, tokens, planBlockSize, kvcache.Seed("", ""))
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(hashes, want) || !slices.Equal(names, kvcache.SequenceHashes(nil, want)) {
			t.Fatalf("sequence %d: hashes or names are not those of its tokens", s)
		}
	}
}

func TestTheIndexHoldsExactlyWhatThePlanTells(t *testing.T) {
	for _, part := range indexParts() {
		t.Run(part.name, func(t *testing.T) {
			p, x, h := mappedSmall(t, part), exact.New(planBlockSize), held{}
			for phase := range planPhases {
				for half := range 2 {
					f, err := newIndexFeed(p, phase, func(worker int) bool { return worker%2 == half })
					if err != nil {
						t.Fatal(err)
					}
					if err := f.apply(x); err != nil {
						t.Fatal(err)
					}
				}
				h.replay(t, p, phase, part.batch)
				for worker := range p.workers() {
					var want []kvcache.EngineHash
					for _, name := range slices.Sorted(maps.Keys(h[worker])) {
						want = append(want, kvcache.NumberHash(name))
					}
					if got := x.Hashes(workerID(worker))[kvcache.Device]; !slices.Equal(got, want) {
						t.Errorf("phase %d: worker %d holds %d blocks, want %d", phase, worker, len(got), len(want))
					}
				}
				checkHits(t, p, x, h)
			}
		})
	}
}

// checkHits compares what a reader counts with the blocks that are held.
func checkHits(t *testing.T, p indexPlan, x *exact.Index, h held) {
	t.Helper()
	r, err := newIndexReader(x, p)
	if err != nil {
		t.Fatal(err)
	}
	workers, leading := 0, 0
	for q := range p.queries() {
		for worker := range p.workers() {
			n := 0
			for ; n < p.depth(); n++ {
				if b, i := p.block(p.query(q), n); !h[worker][b.name(i)] {
					break
				}
			}
			workers, leading = workers+min(n, 1), leading+n
		}
	}
	gotWorkers, gotLeading := r.hits()
	got, want := []float64{gotWorkers, gotLeading}, []float64{float64(workers) / float64(p.queries()), float64(leading) / float64(p.queries())}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// An event that the index does not take as a whole ends a measurement.
func TestAFeedThatIsNotTakenIsRefused(t *testing.T) {
	p := mappedSmall(t, indexParts()[0])
	f, err := newIndexFeed(p, 1, func(int) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	if err := f.apply(exact.New(planBlockSize)); err == nil || !strings.Contains(err.Error(), "event 0 of worker 1") {
		t.Errorf("removals from an empty index: %v", err)
	}
}

func TestABrokenPlanIsRefused(t *testing.T) {
	good := smallPlan(indexParts()[0])
	other := slices.Clone(good)
	other[3*8] = 32
	for name, c := range map[string]struct {
		plan []byte
		want string
	}{
		"short": {good[:16], "16 bytes are no plan"},
		"cut":   {good[:len(good)-8], "bytes, want"},
		"other": {append([]byte{0}, good[1:]...), "no plan of an index"},
		"size":  {other, "32 tokens in a block, want 16"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), name)
			if err := os.WriteFile(file, c.plan, 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := mappedPlan(file); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

// Each part of ours tells what every contender must, and all parts agree.
func TestOurMeasurementTellsAllFigures(t *testing.T) {
	var full []figures
	for _, part := range indexParts() {
		file := filepath.Join(t.TempDir(), part.name)
		if err := os.WriteFile(file, smallPlan(part), 0o600); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := measureExact(&out, part.name, file); err != nil {
			t.Fatal(err)
		}
		f, err := readFigures(out.Bytes(), toldOf(part.name, true))
		if err != nil {
			t.Fatalf("%s: %v", part.name, err)
		}
		full = append(full, f)
	}
	for _, f := range full[1:] {
		f["end-workers/query"], f["end-blocks/query"] = full[0]["end-workers/query"], full[0]["end-blocks/query"]
		if err := agree(full[0], f); err != nil {
			t.Error(err)
		}
	}
}

func TestFiguresOfAContenderAreReadOrRefused(t *testing.T) {
	want := []string{"a", "b/c"}
	for name, c := range map[string]struct{ told, err string }{
		"good":     {`{"a":1.5,"b/c":0}` + "\n", ""},
		"nothing":  {"", "EOF"},
		"no JSON":  {"thread panicked", "invalid character"},
		"text":     {`{"a":"1","b/c":0}`, "cannot unmarshal string"},
		"missing":  {`{"a":1}`, "no b/c"},
		"negative": {`{"a":-1,"b/c":0}`, "a is -1, must be at least 0"},
		"NaN":      {`{"a":NaN,"b/c":0}`, "invalid character"},
		"unknown":  {`{"a":1,"b/c":0,"d":1}`, "d is unknown, must be one of a, b/c"},
		"two":      {`{"a":1,"b/c":0}{}`, "more than one object"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := readFigures([]byte(c.told), want)
			if c.err == "" {
				if d := cmp.Diff(figures{"a": 1.5, "b/c": 0}, got); err != nil || d != "" {
					t.Errorf("error %v, %s", err, d)
				}
			} else if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("error %v, want %q", err, c.err)
			}
		})
	}
}

func TestContendersMustFindTheSame(t *testing.T) {
	ours := figures{"workers/query": 4, "blocks/query": 100, "end-workers/query": 3, "end-blocks/query": 50, "find-cpu-us": 1}
	theirs := figures{"workers/query": 4, "blocks/query": 100, "end-workers/query": 3, "end-blocks/query": 50, "find-cpu-us": 2}
	if err := agree(ours, theirs); err != nil {
		t.Error(err)
	}
	theirs["end-blocks/query"] = 50.001
	if err := agree(ours, theirs); err == nil || err.Error() != "end-blocks/query: 50.001, want 50 as ours" {
		t.Errorf("error %v", err)
	}
}

func TestSizesOfAFleetAreReadOrRefused(t *testing.T) {
	got, err := fleetsOf("64x20000x5 8x10x1")
	want := []indexFleet{{64, 20000, 5}, {8, 10, 1}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, error %v", got, err)
	}
	for _, bad := range []string{"64x20000", "64x20000x0", "64xmanyx1", "1x2x3x4", ""} {
		if got, err := fleetsOf(bad); err == nil {
			t.Errorf("%q gave %v", bad, got)
		}
	}
	for _, bad := range []string{"", "0", "63", "64,,512"} {
		if got, err := depthsOf(bad); err == nil {
			t.Errorf("%q gave %v", bad, got)
		}
	}
}

func TestSharesOfASpread(t *testing.T) {
	s := &spread{}
	if got := s.share(0.5); got != 0 {
		t.Errorf("share of none %v", got)
	}
	for i := range 1000 {
		s.add(time.Duration(i+1) * time.Microsecond)
	}
	for q, want := range map[float64]time.Duration{0.5: 501 * time.Microsecond, 0.999: time.Millisecond} {
		if got := s.share(q); got > want || got < want*98/100 {
			t.Errorf("share %v: %v, want %v less 2 %% at most", q, got, want)
		}
	}
	if s.worst != time.Millisecond {
		t.Errorf("worst %v", s.worst)
	}
}
