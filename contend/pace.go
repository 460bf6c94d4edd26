package contend

import "time"

// Pace is how long an attempt takes, smoothed: an eighth of each new reading,
// as TCP smooths its round trips. It reads no clock. The zero Pace knows
// nothing yet.
type Pace struct {
	smoothed time.Duration
}

// Observe adds how long an attempt took that was answered. An attempt
// that was not answered measures the caller's timeout, not the distance.
func (p *Pace) Observe(took time.Duration) {
	switch took = max(took, 1); p.smoothed {
	case 0:
		p.smoothed = took
	default:
		p.smoothed += (took - p.smoothed) / 8
	}
}

// Attempt returns how long an attempt takes, 0 when none was observed.
func (p *Pace) Attempt() time.Duration { return p.smoothed }
