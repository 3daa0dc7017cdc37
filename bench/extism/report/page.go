package main

import (
	"fmt"
	"strconv"
	"strings"
)

// page is policy.md.
func page(lines, decay []line, machine string) string {
	first, last := lines[0], lines[len(lines)-1]
	var b strings.Builder
	fmt.Fprintf(&b, `<!-- Written by make bench-policy. -->
# A policy decision in each of its forms

    make bench-policy

The same policy, kv-aware, from the candidate table to the pick, in one run on one machine, in turns: a round of each, then
the next round. Time is CPU time of the thread that decides, told as the median over the rounds; ratios are medians of the
rounds' ratios. What runs beside is not in it: the audits of guests, for which there is a share of a core, and the
collector's threads, which only Extism's garbage keeps busy. All forms are seen to give every score the same bits before they are measured.

| form | what a decision is |
|---|---|
| native | scores, clean-up, pick |
| metered | frame filled, metered call, result read and checked, clean-up, pick: what `+"`routerd serve`"+` does |
| bare engine, unmetered | the same module as its author wrote it, called by wazero alone: no fuel, pool, deadline or checks; frame, clean-up and pick as above |
| Extism, JSON | the table as a JSON object a candidate, the call of an Extism plugin (go-sdk 1.7.1, no limits) written in Go, its JSON read; clean-up and pick as above |

Measured %s at commit %s on %d cores: %s, %s. Load average %s at the start, %s at the end.

![CPU time a candidate, by candidates](policy.svg)

`, first.At, first.Commit, first.Host.CPUs, machine, first.Host.Go, average(first.Load), average(last.Load))
	b.WriteString("CPU time of a decision in µs, and how many times native that is:\n\n")
	table(&b, lines, decision)
	b.WriteString("\nCPU time a candidate in ns:\n\n")
	table(&b, lines, func(f map[string]float64) string { return digits(f["ns/candidate"]) })
	b.WriteString("\nFuel (fuel/1) of a decision:\n\n")
	table(&b, lines, func(f map[string]float64) string {
		if f["fuel"] == 0 {
			return ""
		}
		return strconv.Itoa(int(f["fuel"]))
	})
	b.WriteString("\n")
	b.WriteString("By default `credit_decay` is 0, and the guests leave the three divisions of decay out where it is sure to be 1; the\n" +
		"native twin does them. With `credit_decay` 0.5 all do the same work; CPU time of a decision in µs:\n\n")
	table(&b, decay, decision)
	b.WriteString("\n")
	budgets(&b, lines, decay)
	return b.String()
}

// decision is the CPU time of one and, of all but the native twin, the ratio.
func decision(f map[string]float64) string {
	if x := f["x-native"]; x > 0 {
		return fmt.Sprintf("%s (%s×)", digits(f["ns/decision"]/1000), digits(x))
	}
	return digits(f["ns/decision"] / 1000)
}

// average is the average of the last minute.
func average(load string) string {
	one, _, _ := strings.Cut(load, " ")
	return one
}

// table writes a row a form and a column a size; a row without text is left out.
func table(b *strings.Builder, lines []line, cell func(map[string]float64) string) {
	b.WriteString("| candidates |")
	for _, l := range lines {
		fmt.Fprintf(b, " %d |", l.candidates)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(lines)) + "\n")
	for _, f := range forms() {
		row, any := "| "+f.label+" |", false
		for _, l := range lines {
			text := ""
			if told, ok := l.Figures[f.key]; ok {
				text = cell(told)
			}
			row, any = row+" "+text+" |", any || text != ""
		}
		if any {
			b.WriteString(row + "\n")
		}
	}
}

// budgets tells which are met. They are of 64 and 1,024 candidates.
func budgets(b *strings.Builder, lines, decay []line) {
	b.WriteString("| budget: times native, metered | at most | 64 candidates | 1024 candidates | 64, with decay | 1024, with decay |\n" +
		"|---|---|---|---|---|---|\n")
	for _, f := range forms() {
		if f.budget == 0 {
			continue
		}
		fmt.Fprintf(b, "| %s | %g | %s | %s | %s | %s |\n", f.label, f.budget,
			verdict(lines, f, 64), verdict(lines, f, 1024), verdict(decay, f, 64), verdict(decay, f, 1024))
	}
}

func verdict(lines []line, f form, candidates int) string {
	for _, l := range lines {
		x := l.Figures[f.key]["x-native"]
		if l.candidates != candidates || x == 0 {
			continue
		}
		word := "met"
		if x > f.budget {
			word = "missed"
		}
		return word + ": " + digits(x)
	}
	return "not measured"
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
