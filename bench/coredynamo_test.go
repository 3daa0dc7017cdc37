package bench_test

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"testing"
)

// dynamoRound runs the rig's measurement of selections once and returns its
// medians in µs by the name of our case.
func dynamoRound(b *testing.B, program string) map[string]float64 {
	b.Helper()
	out, err := exec.Command(program, "select").Output()
	if err != nil {
		b.Fatalf("run %s: %v", program, err)
	}
	all := map[string]float64{}
	for line := range bytes.Lines(out) {
		var l struct {
			Bench       string  `json:"bench"`
			Workers     float64 `json:"workers"`
			Tokens      float64 `json:"tokens"`
			Temperature float64 `json:"temperature"`
			HitShare    float64 `json:"hit_share_1_in"`
			Median      float64 `json:"cpu_us_med"`
		}
		if err := json.Unmarshal(line, &l); err != nil {
			b.Fatalf("read a line of the rig: %v", err)
		}
		switch {
		case l.Bench == "core.select_reserve_free":
			all[caseName(int(l.Workers), int(l.Tokens))] = l.Median
		case l.Bench == "selector.default" && l.Temperature == 0 && l.HitShare == 1:
			all[caseName(int(l.Workers), 0)] = l.Median
		}
	}
	return all
}
