package web

import (
	"fmt"
	"time"

	pen "github.com/tideover/tideover/cmd/tideover/internal/draw"
	"github.com/tideover/tideover/cmd/tideover/internal/plan"
	"github.com/tideover/tideover/internal/textfmt"
)

// plot shows the delay before each retry, with the band that jitter spreads it
// over, and the waits that were really used as dots on top. All places are in
// percent.
type plot struct {
	Ticks   []tick // up the side
	Columns []tick // along the bottom
	Bands   []band
	Dots    []dot
	Left    int    // waits of retries beyond the last column
	Said    string // the drawing in words
	Legend  []string
}

type tick struct{ At, Label string }

// band is what a retry may wait.
type band struct {
	X, W, Y, H string
	Line       string // where it is without jitter
	End        string // of the line
	Never      bool   // the total timeout has always ended the call by then
	Title      string
}

type dot struct{ X, Y, Class, Title string }

// shownDots bounds what is drawn.
const shownDots = 300

// newPlot draws a plan and the waits that were used. It is nil if nothing ever
// waits.
func newPlot(p *plan.Plan, waits []used) *plot {
	waits = waits[:min(len(waits), shownDots)]
	columns := len(p.Retries)
	if columns == 0 {
		return nil
	}
	s := scaleOf(p, waits)
	v := &plot{Said: fmt.Sprintf("delays before %d retries, and %d waits that were used", columns, len(waits))}
	up := func(d time.Duration) float64 { return 100 - 96*s.At(d) }
	wide := 100 / float64(columns)
	for _, t := range s.Ticks(5) {
		v.Ticks = append(v.Ticks, tick{percent(up(t)), textfmt.ShortDuration(t)})
	}
	every := (columns + 9) / 10
	for i := range p.Retries {
		r := &p.Retries[i]
		x := float64(i) * wide
		if i%every == 0 {
			v.Columns = append(v.Columns, tick{percent(x + wide/2), fmt.Sprint(r.N)})
		}
		top := min(up(r.High), up(r.Low)-1)
		v.Bands = append(v.Bands, band{
			X: percent(x + wide*0.15), W: percent(wide * 0.7), Y: percent(top), H: percent(up(r.Low) - top),
			Line: percent(up(r.Delay)), End: percent(x + wide*0.85), Never: r.Never, Title: bandTitle(r),
		})
	}
	v.addDots(waits, columns, wide, up)
	return v
}

// scaleOf returns a scale that has room for all. It is logarithmic if a linear one
// would press the short ones to the ground.
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
		t += "; the total timeout ends it before"
	}
	return t
}

// addDots puts the waits on top. Those of one retry stand beside each other.
func (v *plot) addDots(waits []used, columns int, wide float64, up func(time.Duration) float64) {
	count, legend := map[int]int{}, map[string]bool{}
	for _, w := range waits {
		if w.Retry > columns {
			v.Left++
			continue
		}
		n := count[w.Retry]
		count[w.Retry]++
		by := waitSetter(w.By)
		aside := (float64(n*37%100)/100 - 0.5) * 0.5 // spread, and the same whenever it is drawn
		v.Dots = append(v.Dots, dot{percent((float64(w.Retry) - 0.5 + aside) * wide), percent(up(w.Delay)), "by-" + by, w.Title})
		if !legend[by] {
			legend[by] = true
			v.Legend = append(v.Legend, by)
		}
	}
}
