package bench_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
)

// agreements are the figures that must be the same for every contender: of the
// prompts asked for, how many workers have some of one and how many blocks those
// have, in the full index and after the last phase.
func agreements() []string {
	return []string{"workers/query", "blocks/query", "end-workers/query", "end-blocks/query"}
}

// toldOf are the figures that a contender tells of a part. What does not allow
// for a reader beside the writer, or for two writers, tells less.
func toldOf(part string, concurrent bool) []string {
	switch {
	case part == "batches" && concurrent:
		return append(agreements(), "store16-cpu-ns/block", "hash16-cpu-ns/block", "bytes16/block", "find-cpu-us", "remove16-cpu-ns/block",
			"beside-remove-cpu-ns/block", "beside-find-cpu-us", "beside-find-worst-us")
	case part == "batches":
		return append(agreements(), "store16-cpu-ns/block", "hash16-cpu-ns/block", "bytes16/block", "find-cpu-us", "remove16-cpu-ns/block")
	case part == "singles":
		return append(agreements(), "store1-cpu-ns/block", "hash1-cpu-ns/block", "bytes1/block", "remove1-cpu-ns/block")
	case concurrent:
		return append(agreements(), "split-store-wall-ns/block", "split-store-cpu-ns/block", "churn-cpu-ns/block",
			"churn-find-p50-us", "churn-find-p99.9-us", "churn-find-worst-us", "clear-cpu-us", "clear-find-worst-us")
	}
	return append(agreements(), "clear-cpu-us")
}

// readFigures reads what a contender told: one JSON object with exactly the
// figures that are wanted, all of them numbers of at least 0.
func readFigures(told []byte, want []string) (figures, error) {
	var f figures
	d := json.NewDecoder(bytes.NewReader(told))
	if err := d.Decode(&f); err != nil {
		return nil, fmt.Errorf("read figures: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("read figures: more than one object")
	}
	for _, name := range want {
		v, ok := f[name]
		if !ok {
			return nil, fmt.Errorf("read figures: no %s", name)
		}
		if v < 0 {
			return nil, fmt.Errorf("read figures: %s is %v, must be at least 0", name, v)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f)) {
		if !slices.Contains(want, name) {
			return nil, fmt.Errorf("read figures: %s is unknown, must be one of %s", name, strings.Join(want, ", "))
		}
	}
	return f, nil
}

// agree tells where a contender found something else than ours.
func agree(ours, theirs figures) error {
	for _, name := range agreements() {
		if a, b := ours[name], theirs[name]; math.Abs(a-b) > 1e-9*max(a, b) {
			return fmt.Errorf("%s: %v, want %v as ours", name, b, a)
		}
	}
	return nil
}
