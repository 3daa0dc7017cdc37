package main

import (
	"bytes"
	"fmt"
	"image/color"
	"os"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Colours that the colour-blind can tell apart.
var (
	black  = color.RGBA{A: 255}
	blue   = color.RGBA{R: 0, G: 114, B: 178, A: 255}
	green  = color.RGBA{R: 0, G: 158, B: 115, A: 255}
	orange = color.RGBA{R: 230, G: 159, B: 0, A: 255}
	purple = color.RGBA{R: 204, G: 121, B: 167, A: 255}
)

// panel is one of the plots that stand side by side. Its x axis is logarithmic
// and has a tick for each size that was measured.
type panel struct {
	x, y     string
	log      bool // the y axis too
	min, max float64
	legend   vg.Length // by how much the legend is off the top
	curves   []curve
}

// curve is what is drawn of a contender.
type curve struct {
	label  string
	color  color.Color
	dashed bool
	points plotter.XYs
}

// pointsOf are the values of a contender above 0, by size.
func pointsOf(lines []line, key string, value func(map[string]float64) float64) (points plotter.XYs) {
	for _, l := range lines {
		if v := value(l.Figures[key]); v > 0 {
			points = append(points, plotter.XY{X: float64(l.size), Y: v})
		}
	}
	return points
}

// save writes the panels side by side.
func save(panels []panel, file string) error {
	row := make([]*plot.Plot, len(panels))
	for i, p := range panels {
		var err error
		if row[i], err = p.plot(); err != nil {
			return fmt.Errorf("draw: %w", err)
		}
	}
	canvas := vgsvg.New(vg.Length(14*len(panels))*vg.Centimeter, 13*vg.Centimeter)
	tiles := draw.Tiles{Rows: 1, Cols: len(panels), PadX: vg.Centimeter, PadTop: 5, PadBottom: 5, PadLeft: 5, PadRight: 15}
	for i, c := range plot.Align([][]*plot.Plot{row}, tiles, draw.New(canvas))[0] {
		row[i].Draw(c)
	}
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return fmt.Errorf("draw: %w", err)
	}
	return os.WriteFile(file, b.Bytes(), 0o644)
}

// plot draws a curve a contender; one without values is left out.
func (p panel) plot() (*plot.Plot, error) {
	drawn := plot.New()
	drawn.X.Label.Text, drawn.Y.Label.Text = p.x, p.y
	drawn.X.Scale, drawn.X.Tick.Marker = plot.LogScale{}, p.ticks()
	drawn.Legend.Top, drawn.Legend.Padding, drawn.Legend.YOffs = true, 2, p.legend
	drawn.Y.Min, drawn.Y.Max = p.min, p.max // more where a curve needs it
	if p.log {
		drawn.Y.Scale, drawn.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	}
	drawn.Add(plotter.NewGrid())
	for _, c := range p.curves {
		if len(c.points) == 0 {
			continue
		}
		stroke, dots, err := plotter.NewLinePoints(c.points)
		if err != nil {
			return nil, err
		}
		stroke.Color, stroke.Width, dots.Color, dots.Shape = c.color, vg.Points(1.5), c.color, draw.CircleGlyph{}
		if c.dashed {
			stroke.Dashes = []vg.Length{vg.Points(4), vg.Points(3)}
		}
		drawn.Add(stroke, dots)
		drawn.Legend.Add(c.label, stroke, dots)
	}
	return drawn, nil
}

func (p panel) ticks() (ticks plot.ConstantTicks) {
	known := map[float64]bool{}
	for _, c := range p.curves {
		for _, at := range c.points {
			if !known[at.X] {
				known[at.X] = true
				ticks = append(ticks, plot.Tick{Value: at.X, Label: strconv.FormatFloat(at.X, 'f', -1, 64)})
			}
		}
	}
	return ticks
}
