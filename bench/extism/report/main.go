// Command report turns the figures of BenchmarkPolicyDecision, lines of JSON as
// $BENCH_JSON takes them, into policy.md and policy.svg.
//
//	report FIGURES FOLDER
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: report FIGURES FOLDER")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintf(os.Stderr, "report: %v\n", err)
		os.Exit(1)
	}
}

func run(figures, folder string) error {
	lines, err := read(figures, "BenchmarkPolicyDecision/candidates=")
	if err != nil {
		return err
	}
	decay, err := read(figures, "BenchmarkPolicyDecision/decay/candidates=")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(folder, "policy.md"), []byte(page(lines, decay, machine())), 0o644); err != nil {
		return err
	}
	return save(lines, filepath.Join(folder, "policy.svg"))
}

// line is the measurement of one size of the table.
type line struct {
	Benchmark string
	Figures   map[string]map[string]float64 // by form, then unit
	At        string
	Commit    string
	Load      string
	Host      struct {
		OS, Arch, Go string
		CPUs         int
	}

	candidates int
}

// form is one of the forms of the policy and how it is called for people.
type form struct {
	key, label string
	budget     float64 // at most so many times native; 0 for none
}

func forms() []form {
	return []form{
		{"native", "native (`builtin:kv-aware`)", 0},
		{"simd", "C, SIMD, metered", 1.8},
		{"simd-unmetered", "the same, bare engine, unmetered", 0},
		{"scalar", "C, scalar, metered", 2.5},
		{"scalar-unmetered", "the same, bare engine, unmetered", 0},
		{"go", "Go, metered", 5},
		{"go-unmetered", "the same, bare engine, unmetered", 0},
		{"extism-json", "Go, Extism, JSON", 0},
	}
}

// read takes the last line of each size, in ascending order, of the benchmarks
// whose names are prefix and the size.
func read(file, prefix string) ([]line, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	bySize := map[int]line{}
	for one := range bytes.Lines(text) {
		var l line
		if err := json.Unmarshal(one, &l); err != nil {
			return nil, fmt.Errorf("read figures: %w", err)
		}
		size, ok := strings.CutPrefix(l.Benchmark, prefix)
		if !ok {
			continue
		}
		if l.candidates, err = strconv.Atoi(size); err != nil {
			return nil, fmt.Errorf("read figures: %w", err)
		}
		bySize[l.candidates] = l
	}
	var lines []line
	for _, l := range bySize {
		lines = append(lines, l)
	}
	if len(lines) == 0 {
		return nil, fmt.Errorf("read figures: none of %s", prefix)
	}
	slices.SortFunc(lines, func(a, b line) int { return a.candidates - b.candidates })
	return lines, nil
}

// machine is what the processor and the system call themselves.
func machine() string {
	cpu := "unknown processor"
	info, _ := os.ReadFile("/proc/cpuinfo")
	for l := range strings.Lines(string(info)) {
		if name, value, ok := strings.Cut(l, ":"); ok && strings.TrimSpace(name) == "model name" {
			cpu = strings.TrimSpace(value)
		}
	}
	if strings.Contains(string(info), " hypervisor") {
		cpu += ", a virtual machine"
	}
	release, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	return cpu + ", Linux " + strings.TrimSpace(string(release))
}
