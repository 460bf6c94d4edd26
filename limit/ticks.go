package limit

import (
	"math/bits"
	"time"
)

// ticks is a unit of time in which the interval between two events is a whole
// number. Three events per second are a third of a second apart, which is not a
// whole number of nanoseconds; rounding it would make the rate drift. The
// interval is therefore divided into as many ticks as it has nanoseconds,
// rounded up. A tick is a nanosecond if that divides evenly, else a little
// shorter, and always longer than half of one.
//
// Times are converted from the origin each time, so errors do not accumulate.
type ticks struct {
	step     int64  // ticks between two events
	num, den uint64 // ticks per nanosecond
}

// newTicks returns the unit for a valid frequency.
func newTicks(f Frequency) ticks {
	events, per := int64(f.Events), int64(f.Per)
	step := (per + events - 1) / events
	return ticks{step: step, num: uint64(events * step), den: uint64(per)}
}

// floorCeil returns the last tick that is not after d and the first that is not
// before it.
func (t *ticks) floorCeil(d time.Duration) (floor, ceil int64) {
	d = max(d, 0)
	if t.num == t.den {
		return int64(d), int64(d)
	}
	return t.convert(d)
}

// convert is floorCeil for ticks that are not nanoseconds.
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
