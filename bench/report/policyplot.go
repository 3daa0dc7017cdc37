package main

import (
	"image/color"

	"gonum.org/v1/plot/vg"
)

// policyCurves are those of the forms; what is dashed is not metered.
func policyCurves(lines []line, value func(map[string]float64) float64) (all []curve) {
	for _, c := range []struct {
		key, label string
		color      color.Color
		dashed     bool
	}{
		{"extism-json", "Go, Extism, JSON", purple, false},
		{"go", "Go, metered", orange, false},
		{"go-unmetered", "Go, bare and unmetered", orange, true},
		{"scalar", "C scalar, metered", green, false},
		{"scalar-unmetered", "C scalar, bare and unmetered", green, true},
		{"simd", "C SIMD, metered", blue, false},
		{"simd-unmetered", "C SIMD, bare and unmetered", blue, true},
		{"native", "native", black, false},
	} {
		all = append(all, curve{c.label, c.color, c.dashed, pointsOf(lines, c.key, value)})
	}
	return all
}

// costs is CPU time a candidate, both axes logarithmic.
func costs(lines []line) panel {
	return panel{
		x: "candidates", y: "CPU time a candidate, ns", log: true, min: 10, max: 1e6,
		legend: -4.2 * vg.Centimeter, // between Extism and the rest
		curves: policyCurves(lines, func(f map[string]float64) float64 { return f["ns/candidate"] }),
	}
}

// ratios is how many times native the modules are. Extism is thousands of times
// off it, and left out.
func ratios(lines []line) panel {
	return panel{x: "candidates", y: "times native", max: 9, curves: policyCurves(lines, func(f map[string]float64) float64 {
		if f["x-native"] > 100 {
			return 0
		}
		return f["x-native"]
	})}
}
