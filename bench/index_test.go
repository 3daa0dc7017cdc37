package bench_test

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// BenchmarkIndex is the exact index, from events to finds, each round in a
// process of its own. Where $BENCH_KV_ROUTER names the program that make
// bench-index builds of bench/peers/kv-router, that has its turns in each round:
// the concurrent compressed tree with two event threads, and the tree for a
// single thread. All read the same plans, and all must find the same.
//
// $BENCH_INDEX_FLEETS are the sizes, as workers x blocks of a worker x rounds,
// and $BENCH_INDEX_DEPTHS the blocks of a prompt.
func BenchmarkIndex(b *testing.B) {
	fleets, err := fleetsOf(cmp.Or(os.Getenv("BENCH_INDEX_FLEETS"), "64x20000x1"))
	if err != nil {
		b.Fatalf("$BENCH_INDEX_FLEETS: %v", err)
	}
	depths, err := depthsOf(cmp.Or(os.Getenv("BENCH_INDEX_DEPTHS"), "64,512,4096"))
	if err != nil {
		b.Fatalf("$BENCH_INDEX_DEPTHS: %v", err)
	}
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	all := []indexContender{{"exact", true, []string{self, childMark, "index"}}}
	if peer := os.Getenv("BENCH_KV_ROUTER"); peer != "" {
		all = append(all, indexContender{"crtc", true, []string{peer, "crtc"}}, indexContender{"radix", false, []string{peer, "radix"}})
	}
	for _, fleet := range fleets {
		for _, depth := range depths {
			b.Run(fmt.Sprintf("workers=%d,blocks=%d/depth=%d", fleet.workers, fleet.blocks, depth), func(b *testing.B) {
				measureIndexes(b, all, fleet, depth)
			})
		}
	}
}

// indexContender is a program that measures an index by a plan.
type indexContender struct {
	name       string
	concurrent bool     // it has readers beside writers, and two writers
	command    []string // to which the part and the plan's file are added
}

// measureIndexes has the contenders, the first of which is ours, measured in
// turns.
func measureIndexes(b *testing.B, all []indexContender, fleet indexFleet, depth int) {
	b.Helper()
	took := map[string]map[string]series{}
	for _, c := range all {
		took[c.name] = map[string]series{}
	}
	for _, part := range indexParts() {
		file := filepath.Join(b.TempDir(), part.name)
		if err := os.WriteFile(file, makePlan(fleet, depth, max(2000, 2_000_000/depth), part), 0o600); err != nil {
			b.Fatal(err)
		}
		for range fleet.rounds {
			var ours figures
			for i, c := range all {
				f := c.round(b, part.name, file)
				if i == 0 {
					ours = f
				} else if err := agree(ours, f); err != nil {
					b.Fatalf("%s, %s: %v", c.name, part.name, err)
				}
				for name, v := range f {
					if strings.HasPrefix(name, "end-") {
						continue // it differs by part, and is there to agree
					}
					took[c.name][name] = append(took[c.name][name], v)
				}
			}
		}
		if err := os.Remove(file); err != nil { // the next one may need the room
			b.Fatal(err)
		}
	}
	tellIndexes(b, all, took, fleet.rounds)
}

// round has a contender measured once.
func (c indexContender) round(b *testing.B, part, file string) figures {
	b.Helper()
	var stderr bytes.Buffer
	cmd := exec.Command(c.command[0], slices.Concat(c.command[1:], []string{part, file})...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		b.Fatalf("%s, %s: %v\n%s", c.name, part, err, stderr.String())
	}
	f, err := readFigures(out, toldOf(part, c.concurrent))
	if err != nil {
		b.Fatalf("%s, %s: %v", c.name, part, err)
	}
	return f
}

// tellIndexes shows medians, and ours as times those of the others; what is kept
// has also the least and the most of the rounds.
func tellIndexes(b *testing.B, all []indexContender, took map[string]map[string]series, rounds int) {
	b.Helper()
	var names []string
	shown, kept := map[string]figures{}, map[string]figures{}
	for _, c := range all {
		names = append(names, c.name)
		shown[c.name], kept[c.name] = figures{}, figures{}
		for unit, s := range took[c.name] {
			shown[c.name][unit] = s.median()
			kept[c.name]["min-"+unit], kept[c.name]["max-"+unit] = slices.Min(s), slices.Max(s)
			if c.name != all[0].name && !slices.Contains(agreements(), unit) {
				shown[all[0].name]["x-"+c.name+"-"+unit] = took[all[0].name][unit].over(s)
			}
		}
	}
	for name, f := range shown {
		maps.Copy(kept[name], f)
		kept[name]["rounds"] = float64(rounds)
	}
	show(b, names, shown)
	keep(b, kept)
}

// fleetsOf reads sizes such as 64x20000x5.
func fleetsOf(text string) (all []indexFleet, err error) {
	for one := range strings.FieldsSeq(text) {
		numbers, err := positives(strings.Split(one, "x"))
		if err != nil || len(numbers) != 3 {
			return nil, fmt.Errorf("%q: must be workers x blocks of a worker x rounds, such as 64x20000x5", one)
		}
		all = append(all, indexFleet{numbers[0], numbers[1], numbers[2]})
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%q: must be at least one size", text)
	}
	return all, nil
}

// depthsOf reads numbers of blocks such as 64,512.
func depthsOf(text string) ([]int, error) {
	all, err := positives(strings.Split(text, ","))
	for _, depth := range all {
		if depth%2 != 0 {
			return nil, fmt.Errorf("%d: must be even", depth)
		}
	}
	return all, err
}

func positives(texts []string) (all []int, err error) {
	for _, text := range texts {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%q: must be a number above 0", text)
		}
		all = append(all, n)
	}
	return all, nil
}
