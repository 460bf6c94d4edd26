package chaos

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/tideover/tideover/internal/textfmt"
)

// Delay is a time that is drawn. The zero value is none.
type Delay struct {
	Low, High time.Duration // the same if it is fixed
	Lognormal bool          // Low is the median then, and High what one in a hundred exceeds
}

// z99 is the 99th percentile of the standard normal distribution.
const z99 = 2.3263478740408408

// pick returns a delay. u is uniform in [0,1), z is normal.
func (d Delay) pick(u, z float64) time.Duration {
	if !d.Lognormal {
		return d.Low + time.Duration(u*float64(d.High-d.Low))
	}
	spread := math.Log(float64(d.High)/float64(d.Low)) / z99
	// The tail is unbounded; a delay of days is of no use.
	return time.Duration(min(float64(d.Low)*math.Exp(spread*z), 10*float64(d.High)))
}

// parseDelay reads 50ms, 50ms..200ms or p50:50ms..p99:2s.
func parseDelay(text string) (d Delay, err error) {
	low, high, ranged := strings.Cut(text, "..")
	median, logLow := strings.CutPrefix(low, "p50:")
	tail, logHigh := strings.CutPrefix(high, "p99:")
	if logLow != logHigh {
		return d, fmt.Errorf("%q is not a delay; want 50ms, 50ms..200ms or p50:50ms..p99:2s", text)
	}
	if d.Low, err = parseDuration(median); err != nil {
		return d, err
	}
	d.High, d.Lognormal = d.Low, logLow
	if ranged {
		if d.High, err = parseDuration(tail); err != nil {
			return d, err
		}
	}
	return d, d.check()
}

// check says what is wrong with a delay that is given.
func (d Delay) check() error {
	switch {
	case d.High == 0:
		return fmt.Errorf("%s is no delay", d.text())
	case d.Low < 0 || d.High < d.Low || d.High > maxDuration:
		return fmt.Errorf("%s does not go from less to more", d.text())
	case d.Lognormal && d.Low == 0:
		return fmt.Errorf("%s has no median above zero", d.text())
	}
	return nil
}

func (d Delay) text() string {
	low, high := textfmt.PolicyDuration(d.Low), textfmt.PolicyDuration(d.High)
	switch {
	case d.Lognormal:
		return "p50:" + low + "..p99:" + high
	case d.Low == d.High:
		return low
	}
	return low + ".." + high
}

// String returns the delay as a spec has it.
func (d Delay) String() string {
	if d == (Delay{}) {
		return ""
	}
	return d.text()
}
