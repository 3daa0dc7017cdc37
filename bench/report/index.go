package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// contender is one of the indexes and how it is called for people.
type contender struct{ key, label string }

func contenders() []contender {
	return []contender{{"exact", "ours"}, {"crtc", "crtc"}, {"radix", "radix"}}
}

// row is a figure of the index and how it is called for people.
type row struct{ unit, label string }

func indexRows() []row {
	return []row{
		{"store16-cpu-ns/block", "store, 16 an event, ns a block"},
		{"store1-cpu-ns/block", "store, 1 an event, ns a block"},
		{"hash16-cpu-ns/block", "hashing alone, 16 an event, ns a block"},
		{"hash1-cpu-ns/block", "hashing alone, 1 an event, ns a block"},
		{"split-store-cpu-ns/block", "store by two writers, ns a block"},
		{"split-store-wall-ns/block", "the same on the clock, ns a block"},
		{"remove16-cpu-ns/block", "remove, 16 an event, ns a block"},
		{"remove1-cpu-ns/block", "remove, 1 an event, ns a block"},
		{"find-cpu-us", "find, µs"},
		{"beside-find-cpu-us", "find beside a writer, µs"},
		{"beside-remove-cpu-ns/block", "remove beside a reader, ns a block"},
		{"churn-cpu-ns/block", "churn beside a reader, ns a block"},
		{"churn-find-p50-us", "find in the churn, median on the clock, µs"},
		{"churn-find-p99.9-us", "the same, p99.9, µs"},
		{"churn-find-worst-us", "longest pause of a reader in the churn, µs"},
		{"beside-find-worst-us", "longest pause of a reader beside removals, µs"},
		{"clear-cpu-us", "clear a worker, µs"},
		{"clear-find-worst-us", "longest pause of a reader beside clears, µs"},
		{"bytes16/block", "bytes a block, 16 an event"},
		{"bytes1/block", "bytes a block, 1 an event"},
	}
}

// fleet is the lines of one size of fleet, by depth.
type fleet struct {
	workers, blocks string
	lines           []line
}

// indexReport is index.md, and what is drawn beside it.
func indexReport(file string) (string, []panel, error) {
	all, err := read(file)
	if err != nil {
		return "", nil, err
	}
	var fleets []fleet
	for _, l := range all {
		size, _, ok := strings.Cut(strings.TrimPrefix(l.Benchmark, "BenchmarkIndex/workers="), "/depth=")
		workers, blocks, split := strings.Cut(size, ",blocks=")
		if !ok || !split || slices.ContainsFunc(fleets, func(f fleet) bool { return f.workers == workers && f.blocks == blocks }) {
			continue
		}
		lines, err := sizes(all, "BenchmarkIndex/workers="+size+"/depth=")
		if err != nil {
			return "", nil, err
		}
		fleets = append(fleets, fleet{workers, blocks, lines})
	}
	if len(fleets) == 0 {
		return "", nil, errors.New("read figures: none of BenchmarkIndex")
	}
	return indexPage(fleets), indexPanels(fleets), nil
}

func indexPage(fleets []fleet) string {
	var b strings.Builder
	ends := []line{fleets[0].lines[0], fleets[len(fleets)-1].lines[len(fleets[len(fleets)-1].lines)-1]}
	fmt.Fprintf(&b, `<!-- Written by make bench-index. -->
# The exact index, and Dynamo's trees beside it

    make bench-index
    make bench-index FLEETS=8x2000x3 DEPTHS=64,512 OUT=/tmp     # a trial of some seconds, once all is built

%s

![CPU time of a find, of a stored block, and bytes a block, by depth](index.svg)
%s`, measured(ends), indexMethod)
	for _, c := range contenders()[1:] {
		indexSummary(&b, fleets, c)
	}
	for _, f := range fleets {
		rounds := f.lines[0].Figures["exact"]["rounds"]
		fmt.Fprintf(&b, "\n## %s workers with %s blocks each\n\n", thousands(f.workers), thousands(f.blocks))
		if rounds > 1 {
			fmt.Fprintf(&b, "%g rounds: median [least–most].\n", rounds)
		} else {
			b.WriteString("One round.\n")
		}
		for _, l := range f.lines {
			fmt.Fprintf(&b, "\nDepth %s; a prompt that is asked for is found at %s workers, with %s blocks in all:\n\n", thousands(strconv.Itoa(l.size)),
				digits(l.Figures["exact"]["workers/query"]), digits(l.Figures["exact"]["blocks/query"]))
			indexTable(&b, l)
		}
	}
	return b.String()
}

// indexSummary has the ratios to another, a column a fleet and depth.
func indexSummary(b *strings.Builder, fleets []fleet, other contender) {
	fmt.Fprintf(b, "\n## Ours / %s\n\n| workers, depth |", other.label)
	columns := 0
	for _, f := range fleets {
		for _, l := range f.lines {
			fmt.Fprintf(b, " %s, %s |", thousands(f.workers), thousands(strconv.Itoa(l.size)))
			columns++
		}
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", columns) + "\n")
	for _, r := range indexRows() {
		if ratio(fleets[0].lines[0], other.key, r.unit) == "" {
			continue
		}
		b.WriteString("| " + r.label + " |")
		for _, f := range fleets {
			for _, l := range f.lines {
				b.WriteString(" " + ratio(l, other.key, r.unit) + " |")
			}
		}
		b.WriteString("\n")
	}
}

// ratio is ours as times another's; empty where that has no such figure.
func ratio(l line, other, unit string) string {
	x, ok := l.Figures["exact"]["x-"+other+"-"+unit]
	switch {
	case !ok:
		return ""
	case x < 0.1:
		return fmt.Sprintf("%.1g", x)
	}
	return fmt.Sprintf("%.2f", x)
}

// indexTable has a row a figure and a column a contender, and then the ratios.
func indexTable(b *strings.Builder, l line) {
	b.WriteString("| |")
	for _, c := range contenders() {
		b.WriteString(" " + c.label + " |")
	}
	for _, c := range contenders()[1:] {
		b.WriteString(" ours / " + c.label + " |")
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", 2*len(contenders())-1) + "\n")
	for _, r := range indexRows() {
		b.WriteString("| " + r.label + " |")
		for _, c := range contenders() {
			fmt.Fprintf(b, " %s |", spanned(l.Figures[c.key], r.unit))
		}
		for _, c := range contenders()[1:] {
			b.WriteString(" " + ratio(l, c.key, r.unit) + " |")
		}
		b.WriteString("\n")
	}
}

// spanned is a median with the least and the most of the rounds.
func spanned(f map[string]float64, unit string) string {
	v, ok := f[unit]
	switch {
	case !ok:
		return ""
	case f["rounds"] > 1:
		return fmt.Sprintf("%s [%s–%s]", digits(v), digits(f["min-"+unit]), digits(f["max-"+unit]))
	}
	return digits(v)
}

// thousands is a whole number with commas.
func thousands(n string) string {
	for i := len(n) - 3; i > 0; i -= 3 {
		n = n[:i] + "," + n[i:]
	}
	return n
}
