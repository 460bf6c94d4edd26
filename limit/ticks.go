package limit

import (
	"math/bits"
	"time"
)

// ticks is a unit of time of which the interval between two events is a whole
// number. Three events per second are a third of a second apart, which no number
// of nanoseconds is; rounding it would make the rate drift. The interval is
// therefore cut into as many ticks as it has nanoseconds, rounded up. A tick is
// a nanosecond where that comes out even, else a little shorter, never half.
//
// Times are converted from the origin each time, so errors do not add up.
type ticks struct {
	step     int64  // ticks between two events
	num, den uint64 // ticks per nanosecond
}

func newTicks(f Frequency) ticks {
	events, per := int64(f.Events), int64(f.Per)
	step := (per + events - 1) / events
	return ticks{step: step, num: uint64(events * step), den: uint64(per)}
}

// at returns the last tick not after d and the first not before it.
func (t *ticks) at(d time.Duration) (floor, ceil int64) {
	d = max(d, 0)
	if t.num == t.den {
		return int64(d), int64(d)
	}
	return t.convert(d)
}

// convert is at where ticks are not nanoseconds.
func (t *ticks) convert(d time.Duration) (floor, ceil int64) {
	// num is at most twice den, so the quotient fits.
	hi, lo := bits.Mul64(uint64(d), t.num)
	q, rem := bits.Div64(hi, lo, t.den)
	if rem > 0 {
		return int64(q), int64(q) + 1
	}
	return int64(q), int64(q)
}

// time returns the first nanosecond that is not before the tick.
func (t *ticks) time(tick int64) time.Duration {
	if t.num == t.den {
		return time.Duration(tick)
	}
	hi, lo := bits.Mul64(uint64(tick), t.den)
	q, rem := bits.Div64(hi, lo, t.num)
	if rem > 0 {
		q++
	}
	return time.Duration(q)
}
