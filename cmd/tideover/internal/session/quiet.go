package session

import (
	"fmt"
	"strings"
	"time"
)

// Hours is a part of each day, from one time to another. It may span midnight.
type Hours struct {
	From string `json:"from"` // 15:04
	To   string `json:"to"`
	Zone string `json:"zone,omitempty"` // "" means the machine's zone
}

// ParseHours parses hours such as 23:00-07:00, optionally followed by a time zone.
func ParseHours(text string) (*Hours, error) {
	span, zone, _ := strings.Cut(strings.TrimSpace(text), " ")
	from, to, ok := strings.Cut(span, "-")
	h := &Hours{from, to, strings.TrimSpace(zone)}
	if !ok {
		return nil, fmt.Errorf("%q is not a range of hours: want one such as 23:00-07:00", text)
	}
	for _, t := range []string{from, to} {
		if _, err := time.Parse("15:04", t); err != nil {
			return nil, fmt.Errorf("%q in %q is not a time of day: want one such as 23:00", t, text)
		}
	}
	if clockOf(from).Equal(clockOf(to)) {
		return nil, fmt.Errorf("%q is empty: both times are the same", text)
	}
	if _, err := time.LoadLocation(h.Zone); err != nil {
		return nil, err
	}
	return h, nil
}

// String returns the hours in the format of ParseHours.
func (h *Hours) String() string { return strings.TrimSpace(h.From + "-" + h.To + " " + h.Zone) }

// location returns the zone of the hours; the machine's zone if Zone is "" or unknown.
func (h *Hours) location() *time.Location {
	if zone, err := time.LoadLocation(h.Zone); err == nil && h.Zone != "" {
		return zone
	}
	return time.Local
}

// Until returns the end of the hours, and whether now is within them. If a clock change skips all
// of the hours on a day, that day has none.
func (h *Hours) Until(now time.Time) (end time.Time, in bool) {
	if h == nil {
		return time.Time{}, false
	}
	local := now.In(h.location())
	over := 0 // 1 if the hours span midnight
	if from, to := clockOf(h.From), clockOf(h.To); to.Before(from) {
		over = 1
	}
	for _, day := range []int{-1, 0} {
		from, to := h.on(local, day, h.From), h.on(local, day+over, h.To) // empty if a clock change skips them
		if !now.Before(from) && now.Before(to) {
			return to, true
		}
	}
	return time.Time{}, false
}

// End returns the next end of the hours, whether or not now is within them.
func (h *Hours) End(now time.Time) time.Time {
	local := now.In(h.location())
	for day := 0; ; day++ {
		if t := h.on(local, day, h.To); t.After(now) {
			return t
		}
	}
}

// on returns the time of day clock on the date of t plus days.
func (h *Hours) on(t time.Time, days int, clock string) time.Time {
	c := clockOf(clock)
	return time.Date(t.Year(), t.Month(), t.Day()+days, c.Hour(), c.Minute(), 0, 0, t.Location())
}

// clockOf parses a time of day that ParseHours has checked.
func clockOf(text string) time.Time {
	c, _ := time.Parse("15:04", text)
	return c
}
