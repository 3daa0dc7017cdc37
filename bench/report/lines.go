package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// line is the measurement of one size.
type line struct {
	Benchmark string
	Figures   map[string]map[string]float64 // by contender, then unit
	At        string
	Commit    string
	Load      string
	Host      struct {
		OS, Arch, Go string
		CPUs         int
	}

	size int
}

// read takes all lines of a file.
func read(file string) ([]line, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var all []line
	for one := range bytes.Lines(text) {
		var l line
		if err := json.Unmarshal(one, &l); err != nil {
			return nil, fmt.Errorf("read figures: %w", err)
		}
		all = append(all, l)
	}
	return all, nil
}

// sizes takes the last line of each size, in ascending order, of the benchmarks
// whose names are prefix and the size.
func sizes(all []line, prefix string) ([]line, error) {
	bySize := map[int]line{}
	for _, l := range all {
		size, ok := strings.CutPrefix(l.Benchmark, prefix)
		if !ok {
			continue
		}
		var err error
		if l.size, err = strconv.Atoi(size); err != nil {
			return nil, fmt.Errorf("read figures: %w", err)
		}
		bySize[l.size] = l
	}
	var lines []line
	for _, l := range bySize {
		lines = append(lines, l)
	}
	if len(lines) == 0 {
		return nil, fmt.Errorf("read figures: none of %s", prefix)
	}
	slices.SortFunc(lines, func(a, b line) int { return a.size - b.size })
	return lines, nil
}

// measured says when, of what and where the lines were measured.
func measured(lines []line) string {
	first, last := lines[0], lines[len(lines)-1]
	load := fmt.Sprintf("Load average %s after the first size and %s after the last", average(first.Load), average(last.Load))
	if len(lines) == 1 {
		load = "Load average " + average(first.Load) + " at the end"
	}
	return fmt.Sprintf("Measured %s at commit %s on %d cores: %s, %s. %s, the measurement itself included.",
		first.At, first.Commit, first.Host.CPUs, machine(), first.Host.Go, load)
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

// average is the average of the last minute.
func average(load string) string {
	one, _, _ := strings.Cut(load, " ")
	return one
}

// digits is a number with three digits that count, or all of its whole ones.
func digits(v float64) string {
	switch {
	case v >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	default:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
}
