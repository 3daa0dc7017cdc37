package main

import "image/color"

// indexPanels are what is drawn; what is dashed is the second fleet.
func indexPanels(fleets []fleet) []panel {
	return []panel{
		{x: "blocks of a prompt", y: "CPU time of a find, µs", log: true, min: 0.1, max: 1000, curves: indexCurves(fleets, "find-cpu-us")},
		{x: "blocks of a prompt", y: "CPU time of a stored block, 16 an event, ns", max: 600, curves: indexCurves(fleets, "store16-cpu-ns/block")},
		{x: "blocks of a prompt", y: "bytes of a worker's block, 16 an event", max: 200, curves: indexCurves(fleets, "bytes16/block")},
	}
}

func indexCurves(fleets []fleet, unit string) (all []curve) {
	colors := map[string]color.Color{"exact": blue, "crtc": orange, "radix": green}
	for i, f := range fleets {
		for _, c := range contenders() {
			all = append(all, curve{
				label: c.label + ", " + thousands(f.workers) + " workers", color: colors[c.key], dashed: i > 0,
				points: pointsOf(f.lines, c.key, func(told map[string]float64) float64 { return told[unit] }),
			})
		}
	}
	return all
}
