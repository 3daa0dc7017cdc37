package main

import (
	"bytes"
	"fmt"
	"image/color"
	"os"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
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

// save writes both panels side by side.
func save(lines []line, file string) error {
	costs, err := costs(lines)
	if err != nil {
		return fmt.Errorf("draw: %w", err)
	}
	ratios, err := ratios(lines)
	if err != nil {
		return fmt.Errorf("draw: %w", err)
	}
	canvas := vgsvg.New(28*vg.Centimeter, 13*vg.Centimeter)
	tiles := draw.Tiles{Rows: 1, Cols: 2, PadX: vg.Centimeter, PadTop: 5, PadBottom: 5, PadLeft: 5, PadRight: 15}
	panels := [][]*plot.Plot{{costs, ratios}}
	for i, c := range plot.Align(panels, tiles, draw.New(canvas))[0] {
		panels[0][i].Draw(c)
	}
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return fmt.Errorf("draw: %w", err)
	}
	return os.WriteFile(file, b.Bytes(), 0o644)
}

// costs is CPU time a candidate, both axes logarithmic.
func costs(lines []line) (*plot.Plot, error) {
	p := panel(lines, "CPU time a candidate, ns")
	p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	p.Y.Min, p.Y.Max = 10, 1e6
	p.Legend.YOffs = -4.2 * vg.Centimeter // between Extism and the rest
	return p, add(p, lines, func(f map[string]float64) float64 { return f["ns/candidate"] })
}

// ratios is how many times native the modules are. Extism is thousands of times
// off it, and left out.
func ratios(lines []line) (*plot.Plot, error) {
	p := panel(lines, "times native")
	p.Y.Min, p.Y.Max = 0, 9
	err := add(p, lines, func(f map[string]float64) float64 {
		if f["x-native"] > 100 {
			return 0
		}
		return f["x-native"]
	})
	return p, err
}

func panel(lines []line, label string) *plot.Plot {
	p := plot.New()
	p.X.Label.Text, p.Y.Label.Text = "candidates", label
	p.X.Scale = plot.LogScale{}
	var ticks plot.ConstantTicks
	for _, l := range lines {
		ticks = append(ticks, plot.Tick{Value: float64(l.candidates), Label: fmt.Sprint(l.candidates)})
	}
	p.X.Tick.Marker = ticks
	p.Legend.Top, p.Legend.Padding = true, 2
	p.Add(plotter.NewGrid())
	return p
}

// add draws a curve a form; one without values is left out.
func add(p *plot.Plot, lines []line, value func(map[string]float64) float64) error {
	for _, c := range curves() {
		var points plotter.XYs
		for _, l := range lines {
			if v := value(l.Figures[c.key]); v > 0 {
				points = append(points, plotter.XY{X: float64(l.candidates), Y: v})
			}
		}
		if len(points) == 0 {
			continue
		}
		stroke, dots, err := plotter.NewLinePoints(points)
		if err != nil {
			return err
		}
		stroke.Color, stroke.Width, dots.Color, dots.Shape = c.color, vg.Points(1.5), c.color, draw.CircleGlyph{}
		if c.dashed {
			stroke.Dashes = []vg.Length{vg.Points(4), vg.Points(3)}
		}
		p.Add(stroke, dots)
		p.Legend.Add(c.label, stroke, dots)
	}
	return nil
}
