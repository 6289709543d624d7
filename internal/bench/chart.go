package bench

import (
	"fmt"
	"image/color"
	"strings"

	"github.com/dustin/go-humanize"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

// colors are those of Okabe and Ito, which people who see few colors can tell
// apart.
var colors = []color.Color{
	color.RGBA{R: 213, G: 94, B: 0, A: 255},
	color.RGBA{R: 230, G: 159, B: 0, A: 255},
	color.RGBA{R: 0, G: 114, B: 178, A: 255},
	color.RGBA{R: 0, G: 158, B: 115, A: 255},
}

// The size of a chart.
const (
	chartWidth  = 16 * vg.Centimeter
	chartHeight = 9 * vg.Centimeter
)

func newPlot(title, y string) *plot.Plot {
	p := plot.New()
	p.Title.Text, p.Y.Label.Text = title, y
	p.Title.Padding = 3 * vg.Millimeter
	p.Add(plotter.NewGrid())
	p.Legend.Top = true
	return p
}

// logarithmic gives an axis powers of ten. Its values must be above 0.
func logarithmic(a *plot.Axis) {
	a.Scale = plot.LogScale{}
	a.Tick.Marker = plot.TickerFunc(func(low, high float64) []plot.Tick {
		ticks := plot.LogTicks{Prec: -1}.Ticks(low, high)
		for i := range ticks {
			if ticks[i].Label != "" {
				ticks[i].Label = short(ticks[i].Value)
			}
		}
		return ticks
	})
}

// short writes a number in few letters.
func short(v float64) string {
	if v >= 1000 {
		return strings.ReplaceAll(humanize.SIWithDigits(v, 1, ""), " ", "")
	}
	return humanize.Ftoa(v)
}

// bars are groups of bars side by side; the values of a series are in the order
// of names.
type bars struct {
	names  []string
	series []series
}

type series struct {
	name   string
	values []float64
}

func (b *bars) draw(p *plot.Plot, low float64) error {
	const width = 16 * vg.Millimeter
	each := width / vg.Length(len(b.series))
	// Bars stand on a base that is not drawn: on a logarithmic axis there is no 0.
	base := make(plotter.Values, len(b.names))
	for i := range base {
		base[i] = low
	}
	ground, err := plotter.NewBarChart(base, each)
	if err != nil {
		return err
	}
	for i, s := range b.series {
		values := make(plotter.Values, len(s.values))
		for j, v := range s.values {
			values[j] = max(v-low, 0)
		}
		chart, err := plotter.NewBarChart(values, each)
		if err != nil {
			return err
		}
		chart.StackOn(ground)
		chart.LineStyle.Width = 0
		chart.Color = colors[i%len(colors)]
		chart.Offset = each * vg.Length(2*i-len(b.series)+1) / 2
		p.Add(chart)
		if s.name != "" {
			p.Legend.Add(s.name, chart)
		}
		if err := b.label(p, s.values, chart.Offset); err != nil {
			return err
		}
	}
	p.NominalX(b.names...)
	p.X.Min, p.X.Max = -0.5, float64(len(b.names))-0.5
	p.Y.Min = low
	return nil
}

// label writes each value above its bar.
func (b *bars) label(p *plot.Plot, values []float64, offset vg.Length) error {
	l := plotter.XYLabels{}
	for i, v := range values {
		if v > 0 {
			l.XYs = append(l.XYs, plotter.XY{X: float64(i), Y: v})
			l.Labels = append(l.Labels, short(rounded(v)))
		}
	}
	labels, err := plotter.NewLabels(l)
	if err != nil {
		return err
	}
	labels.Offset.X, labels.Offset.Y = offset-3*vg.Millimeter, vg.Millimeter
	p.Add(labels)
	return nil
}

// rounded keeps three digits.
func rounded(v float64) float64 {
	var r float64
	fmt.Sscanf(fmt.Sprintf("%.3g", v), "%g", &r)
	return r
}

// Chart draws the seconds of each variant, and those of the report, into a file
// whose ending says the format, such as .svg or .png.
func (r *SeedResult) Chart(file string) error {
	p := newPlot("seconds for one document, 35 characters at a time", "seconds")
	logarithmic(&p.Y)
	b := bars{}
	all := [][]Variant{Report(), r.Variants}
	for _, name := range []string{VariantAppend, VariantWrite, VariantLobsink} {
		s := series{name: name}
		for _, variants := range all {
			for _, v := range variants {
				if v.Name == name {
					s.values = append(s.values, v.Seconds)
				}
			}
		}
		b.series = append(b.series, s)
	}
	for i, variants := range all {
		for _, v := range variants {
			if v.Name == VariantLobsink {
				b.names = append(b.names, []string{"report", r.Store}[i]+", "+short(float64(v.Appends)))
			}
		}
	}
	if err := b.draw(p, b.lowest()/4); err != nil {
		return err
	}
	return p.Save(chartWidth, chartHeight, file)
}

func (b *bars) lowest() float64 {
	low := b.series[0].values[0]
	for _, s := range b.series {
		for _, v := range s.values {
			low = min(low, v)
		}
	}
	return low
}

// Chart draws what was reached beside what reading and writing alone reach.
func (r *Result) Chart(file string) error {
	p := newPlot(fmt.Sprintf("%s: %s fragments of %d bytes, %s documents, %d partitions", r.Store,
		short(float64(r.Fragments)), r.Size, short(float64(r.Documents)), r.Partitions), "fragments/s")
	value := func(v *float64) float64 {
		if v == nil {
			return 0
		}
		return *v
	}
	b := bars{names: []string{"nats.go alone", "read only", "write only", "lobsink"}}
	read, write := value(r.ReadOnlyPerSecond), value(r.WriteOnlyPerSecond)
	b.series = []series{{values: []float64{value(r.NATSOnlyPerSecond), read, write, value(r.FragmentsPerSecond)}}}
	if read > 0 && write > 0 {
		b.names = append(b.names, "one after the other")
		b.series[0].values = append(b.series[0].values, 1/(1/read+1/write))
	}
	p.Y.Tick.Marker = plot.TickerFunc(func(low, high float64) []plot.Tick {
		ticks := plot.DefaultTicks{}.Ticks(low, high)
		for i := range ticks {
			if ticks[i].Label != "" {
				ticks[i].Label = short(ticks[i].Value)
			}
		}
		return ticks
	})
	if err := b.draw(p, 0); err != nil {
		return err
	}
	return p.Save(chartWidth, chartHeight, file)
}

// Line is a line of a chart.
type Line struct {
	Name string
	// X and Y are the points, above 0 where the axis is logarithmic.
	X, Y []float64
}

// Lines draws lines over a logarithmic x axis.
func Lines(file, title, x, y string, lines []Line) error {
	p := newPlot(title, y)
	p.X.Label.Text = x
	logarithmic(&p.X)
	p.Y.Min = 0
	for i, l := range lines {
		points := make(plotter.XYs, len(l.X))
		for j := range l.X {
			points[j].X, points[j].Y = l.X[j], l.Y[j]
			p.Y.Max = max(p.Y.Max, 1.2*l.Y[j])
		}
		line, dots, err := plotter.NewLinePoints(points)
		if err != nil {
			return err
		}
		line.Color, dots.Color = colors[i%len(colors)], colors[i%len(colors)]
		line.Width = vg.Points(1.5)
		p.Add(line, dots)
		p.Legend.Add(l.Name, line, dots)
	}
	return p.Save(chartWidth, chartHeight, file)
}
