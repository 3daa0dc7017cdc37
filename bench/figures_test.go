package bench_test

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// series has one value a round.
type series []float64

func (s *series) add(v float64) { *s = append(*s, v) }

func (s series) median() float64 {
	sorted := slices.Sorted(slices.Values(s))
	n := len(sorted)
	if n == 0 {
		return 0
	}
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// over is the median of the rounds' ratios. Both series come from the same
// rounds, so that what slowed a whole round falls out.
func (s series) over(o series) float64 {
	ratios := make(series, len(s))
	for i := range s {
		ratios[i] = s[i] / o[i]
	}
	return ratios.median()
}

// minus is the median of the rounds' differences.
func (s series) minus(o series) float64 {
	differences := make(series, len(s))
	for i := range s {
		differences[i] = s[i] - o[i]
	}
	return differences.median()
}

// figures are what a benchmark tells of one contender, by unit.
type figures map[string]float64

// report shows the figures of each contender and keeps them.
func report(b *testing.B, names []string, all map[string]figures) {
	b.Helper()
	show(b, names, all)
	keep(b, all)
}

// show tells the figures of each contender as the metrics of a benchmark below
// b, which has measured them: the number of iterations that go test prints for
// it means nothing.
func show(b *testing.B, names []string, all map[string]figures) {
	for _, name := range names {
		b.Run(name, func(b *testing.B) {
			b.ReportMetric(0, "ns/op") // prints none
			for unit, v := range all[name] {
				b.ReportMetric(v, unit)
			}
		})
	}
}

// keep appends the figures as a line of JSON to the file that $BENCH_JSON names,
// if it does.
func keep(b *testing.B, all map[string]figures) {
	b.Helper()
	if file := os.Getenv("BENCH_JSON"); file != "" {
		if err := record(file, b.Name(), all); err != nil {
			b.Fatal(err)
		}
	}
}

func record(file, benchmark string, all map[string]figures) (err error) {
	line, err := json.Marshal(map[string]any{
		"benchmark": benchmark, "figures": all, "at": time.Now().UTC().Format(time.RFC3339), "command": os.Args,
		"commit": commit(), "load": loadAverage(),
		"host": map[string]any{"os": runtime.GOOS, "arch": runtime.GOARCH, "cpus": runtime.NumCPU(), "go": runtime.Version()},
	})
	if err != nil {
		return err
	}
	out, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	_, err = out.Write(append(line, '\n'))
	return err
}

// commit is empty where there is no repository.
func commit() string {
	out, _ := exec.Command("git", "describe", "--always", "--dirty").Output()
	return strings.TrimSpace(string(out))
}

// loadAverage is empty where the system does not tell it.
func loadAverage() string {
	b, _ := os.ReadFile("/proc/loadavg")
	return strings.TrimSpace(string(b))
}
