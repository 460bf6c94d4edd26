package plan

import (
	"math"
	"strings"
)

// glyphs draw bars.
type glyphs struct {
	sure, band, mark, sample string
}

var (
	unicodeGlyphs = glyphs{sure: "━", band: "░", mark: "┃", sample: "◆"}
	asciiGlyphs   = glyphs{sure: "=", band: "-", mark: "|", sample: "o"}
)

// bar draws one retry: the part of the wait that is sure, the band around the
// delay without jitter, and the sample if there is one.
func (v *view) bar(p *Plan, i int, r Retry, width int) string {
	at := func(f float64) int { return int(math.Round(f * float64(width-1))) }
	low, high := at(v.scale.at(r.Low)), at(v.scale.at(r.High))
	mark, sample := at(v.scale.at(r.Delay)), at(v.scale.at(r.Sample))
	high = max(high, mark)

	var b strings.Builder
	emit := func(from, to int) { // all cells but the marks
		sure := min(max(low-from, 0), to-from)
		b.WriteString(v.paint.colour(i, strings.Repeat(v.glyphs.sure, sure)))
		b.WriteString(v.paint.faint(i, strings.Repeat(v.glyphs.band, to-from-sure)))
	}
	for cell := 0; cell <= high; {
		next := high + 1
		switch {
		case p.Sampled && cell == sample:
			b.WriteString(v.paint.bold(v.glyphs.sample))
			cell++
			continue
		case cell == mark:
			b.WriteString(v.paint.strong(i, v.glyphs.mark))
			cell++
			continue
		}
		for _, stop := range []int{mark, sample} {
			if stop > cell && (stop == mark || p.Sampled) {
				next = min(next, stop)
			}
		}
		emit(cell, next)
		cell = next
	}
	return b.String()
}

// crushed reports whether some policy's longest bar has no length to speak of.
func (v *view) crushed(plans []Plan, width int) bool {
	for _, p := range plans {
		if n := len(p.Retries); n > 0 && p.Retries[n-1].High > 0 && v.scale.at(p.Retries[n-1].High)*float64(width) < 2 {
			return true
		}
	}
	return false
}
