package account

import "time"

// moment is a time by two clocks: one that can be set, and one that cannot.
type moment struct {
	At     time.Time     `json:"at"`
	Uptime time.Duration `json:"uptime_ns,omitempty"` // time since the boot, sleep included
	Boot   string        `json:"boot,omitempty"`      // which boot; "" if unknown
}

// elapsed returns how much time has passed from m to now. Without a boot in common there is only the clock that
// can be set; time does not go back.
func (m moment) elapsed(now moment) time.Duration {
	if m.sameBoot(now) {
		return now.Uptime - m.Uptime
	}
	return max(now.At.Sub(m.At), 0)
}

func (m moment) sameBoot(now moment) bool {
	return m.Boot != "" && m.Boot == now.Boot && now.Uptime >= m.Uptime
}

// rebase moves a moment that is in the future to now, because the clock was set back, and reports whether it did.
// Without that, the wait that began then would last until the clock is there again.
func (m *moment) rebase(now moment) bool {
	if m.sameBoot(now) || !now.At.Before(m.At) {
		return false
	}
	*m = now
	return true
}
