package plan

import (
	"math"
	"slices"
	"strings"
)

// glyphs are the characters of bars: sure fills the part up to the shortest delay, and band the
// range from which jitter draws. mark is the delay without jitter, and sample the sampled delay.
type glyphs struct {
	sure, band, mark, sample string
}

var (
	unicodeGlyphs = glyphs{sure: "━", band: "░", mark: "┃", sample: "◆"}
	asciiGlyphs   = glyphs{sure: "=", band: "-", mark: "|", sample: "o"}
)

// bar draws the bar of retry r of plan i: a solid part up to the shortest delay, a band for the
// jitter, a mark at the delay without jitter, and a symbol at the sample if there is one. width is
// the number of columns of the whole scale.
func (v *view) bar(p *Plan, i int, r Retry, width int) string {
	at := func(f float64) int { return int(math.Round(f * float64(width-1))) }
	low, high := at(v.scale.At(r.Low)), at(v.scale.At(r.High))
	mark, sample := at(v.scale.At(r.Delay)), at(v.scale.At(r.Sample))
	high = max(high, mark)

	var b strings.Builder
	emit := func(from, to int) { // draws the cells from from to to-1, which contain no mark or sample
		sure := min(max(low-from, 0), to-from)
		b.WriteString(v.paint.Colour(i, strings.Repeat(v.glyphs.sure, sure)))
		b.WriteString(v.paint.Faint(i, strings.Repeat(v.glyphs.band, to-from-sure)))
	}
	for cell := 0; cell <= high; {
		next := cell + 1
		switch {
		case p.Sampled && cell == sample:
			b.WriteString(v.paint.Bold(v.glyphs.sample))
		case cell == mark:
			b.WriteString(v.paint.Strong(i, v.glyphs.mark))
		default:
			for next <= high && next != mark && (next != sample || !p.Sampled) {
				next++
			}
			emit(cell, next)
		}
		cell = next
	}
	return b.String()
}

// crushed reports whether all bars of a policy are too short to see, because another policy has
// much longer delays.
func (v *view) crushed(plans []Plan, width int) bool {
	return slices.ContainsFunc(plans, func(p Plan) bool {
		n := len(p.Retries)
		return n > 0 && p.Retries[n-1].High > 0 && v.scale.At(p.Retries[n-1].High)*float64(width) < 2
	})
}
