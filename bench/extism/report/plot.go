package main

import (
	"fmt"
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// curve is how a form is drawn.
type curve struct {
	key, label string
	color      color.Color
	dashed     bool
}

// curves are in colours that the colour-blind can tell apart; what is dashed is
// not metered.
func curves() []curve {
	black, blue, green := color.RGBA{A: 255}, color.RGBA{R: 0, G: 114, B: 178, A: 255}, color.RGBA{R: 0, G: 158, B: 115, A: 255}
	orange, purple := color.RGBA{R: 230, G: 159, B: 0, A: 255}, color.RGBA{R: 204, G: 121, B: 167, A: 255}
	return []curve{
		{"extism-json", "Go, Extism, JSON", purple, false},
		{"go", "Go, metered", orange, false},
		{"go-unmetered", "Go, bare and unmetered", orange, true},
		{"scalar", "C scalar, metered", green, false},
		{"scalar-unmetered", "C scalar, bare and unmetered", green, true},
		{"simd", "C SIMD, metered", blue, false},
		{"simd-unmetered", "C SIMD, bare and unmetered", blue, true},
		{"native", "native", black, false},
	}
}

// save writes the plot.
func save(lines []line, file string) error {
	p, err := chart(lines)
	if err == nil {
		err = p.Save(20*vg.Centimeter, 14*vg.Centimeter, file)
	}
	if err != nil {
		return fmt.Errorf("draw: %w", err)
	}
	return nil
}

// chart is CPU time a candidate over candidates, both logarithmic.
func chart(lines []line) (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text = "One decision by kv-aware"
	p.X.Label.Text, p.Y.Label.Text = "candidates", "CPU time a candidate, ns"
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	var ticks plot.ConstantTicks
	for _, l := range lines {
		ticks = append(ticks, plot.Tick{Value: float64(l.candidates), Label: fmt.Sprint(l.candidates)})
	}
	p.X.Tick.Marker, p.Y.Tick.Marker = ticks, plot.LogTicks{Prec: -1}
	p.Y.Min, p.Y.Max = 10, 1e6
	p.Legend.Top = true
	p.Add(plotter.NewGrid())
	for _, c := range curves() {
		var points plotter.XYs
		for _, l := range lines {
			if f, ok := l.Figures[c.key]; ok {
				points = append(points, plotter.XY{X: float64(l.candidates), Y: f["ns/candidate"]})
			}
		}
		if len(points) == 0 {
			continue
		}
		stroke, dots, err := plotter.NewLinePoints(points)
		if err != nil {
			return nil, err
		}
		stroke.Color, stroke.Width, dots.Color, dots.Shape = c.color, vg.Points(1.5), c.color, draw.CircleGlyph{}
		if c.dashed {
			stroke.Dashes = []vg.Length{vg.Points(4), vg.Points(3)}
		}
		p.Add(stroke, dots)
		p.Legend.Add(c.label, stroke, dots)
	}
	return p, nil
}
