package web

import (
	"fmt"
	"time"

	pen "github.com/tideover/tideover/cmd/tideover/internal/chart"
	"github.com/tideover/tideover/cmd/tideover/internal/plan"
	"github.com/tideover/tideover/internal/console/pages"
	"github.com/tideover/tideover/internal/textfmt"
)

// plot shows the delay before each retry, with the range of its jitter, and the waits of runs as
// dots. All positions are in percent.
type plot struct {
	Ticks   []tick // labels of the vertical axis
	Columns []tick // labels of the horizontal axis
	Bands   []band
	Dots    []dot
	Left    int    // number of waits before retries beyond the last column
	Said    string // the plot in words
	Legend  []string
}

type tick struct{ At, Label string }

// band is the range of the delay before a retry. Positions and sizes are in percent.
type band struct {
	X, W, Y, H string
	Line       string // vertical position of the delay without jitter
	End        string // right end of the line for that delay
	Never      bool   // the retry never happens: the total timeout ends the call before it
	Title      string
}

type dot struct{ X, Y, Class, Title string }

// shownDots limits the number of dots.
const shownDots = 300

// newPlot returns the plot of a policy's plan and of the waits of runs. It returns nil if the policy
// never waits.
func newPlot(p *plan.Plan, waits []used) *plot {
	waits = waits[:min(len(waits), shownDots)]
	columns := len(p.Retries)
	if columns == 0 {
		return nil
	}
	s := scaleOf(p, waits)
	v := &plot{Said: fmt.Sprintf("delays before %d retries, and %d actual waits", columns, len(waits))}
	up := func(d time.Duration) float64 { return 100 - 96*s.At(d) }
	wide := 100 / float64(columns)
	for _, t := range s.Ticks(5) {
		v.Ticks = append(v.Ticks, tick{pages.Percent(up(t)), pages.Round(t)})
	}
	every := (columns + 9) / 10
	for i := range p.Retries {
		r := &p.Retries[i]
		x := float64(i) * wide
		if i%every == 0 {
			v.Columns = append(v.Columns, tick{pages.Percent(x + wide/2), fmt.Sprint(r.N)})
		}
		top := min(up(r.High), up(r.Low)-1)
		v.Bands = append(v.Bands, band{
			X: pages.Percent(x + wide*0.15), W: pages.Percent(wide * 0.7), Y: pages.Percent(top), H: pages.Percent(up(r.Low) - top),
			Line: pages.Percent(up(r.Delay)), End: pages.Percent(x + wide*0.85), Never: r.Never, Title: bandTitle(r),
		})
	}
	v.addDots(waits, columns, wide, up)
	return v
}

// scaleOf returns a scale for all waits. It is logarithmic if short waits would not be visible on a
// linear one.
func scaleOf(p *plan.Plan, waits []used) pen.Scale {
	var s pen.Scale
	for i := range p.Retries {
		s.Include(p.Retries[i].Delay, p.Retries[i].High)
	}
	for _, w := range waits {
		if w.Retry <= len(p.Retries) {
			s.Include(w.Delay)
		}
	}
	s.Log = s.Low > 0 && s.High/s.Low > 40
	return s
}

func bandTitle(r *plan.Retry) string {
	t := fmt.Sprintf("retry %d: %s", r.N, textfmt.ShortDuration(r.Delay))
	if r.Low != r.High {
		t += fmt.Sprintf(", by jitter from %s to %s", textfmt.ShortDuration(r.Low), textfmt.ShortDuration(r.High))
	}
	if r.Never {
		t += "; the total timeout ends the call before it"
	}
	return t
}

// addDots adds the waits of runs as dots. It spreads the dots of the same retry over its column.
func (v *plot) addDots(waits []used, columns int, wide float64, up func(time.Duration) float64) {
	count, legend := map[int]int{}, map[string]bool{}
	for _, w := range waits {
		if w.Retry > columns {
			v.Left++
			continue
		}
		n := count[w.Retry]
		count[w.Retry]++
		by := pages.WaitSetter(w.By)
		aside := (float64(n*37%100)/100 - 0.5) * 0.5 // spread over the column; not random, so that the plot does not change
		v.Dots = append(v.Dots, dot{pages.Percent((float64(w.Retry) - 0.5 + aside) * wide), pages.Percent(up(w.Delay)), "by-" + by, w.Title})
		if !legend[by] {
			legend[by] = true
			v.Legend = append(v.Legend, by)
		}
	}
}
