package main

import (
	"fmt"
	"strconv"
	"strings"
)

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

// policyReport is policy.md, and what is drawn beside it.
func policyReport(file string) (string, []panel, error) {
	all, err := read(file)
	if err != nil {
		return "", nil, err
	}
	lines, err := sizes(all, "BenchmarkPolicyDecision/candidates=")
	if err != nil {
		return "", nil, err
	}
	decay, err := sizes(all, "BenchmarkPolicyDecision/decay/candidates=")
	if err != nil {
		return "", nil, err
	}
	return policyPage(lines, decay), []panel{costs(lines), ratios(lines)}, nil
}

func policyPage(lines, decay []line) string {
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

%s

![CPU time a candidate, by candidates](policy.svg)

`, measured(lines))
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

// table writes a row a form and a column a size; a row without text is left out.
func table(b *strings.Builder, lines []line, cell func(map[string]float64) string) {
	b.WriteString("| candidates |")
	for _, l := range lines {
		fmt.Fprintf(b, " %d |", l.size)
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
		if l.size != candidates || x == 0 {
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
