package steps

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/tideover/tideover/internal/textfmt"
	"github.com/tideover/tideover/retry"
)

// Schedule is when a workflow starts by itself.
type Schedule struct {
	Cron     string // five fields, or @daily and the like; the interval of @every is in the form of Go
	TimeZone string // as in the time zone database; empty means the machine's
	Missed   string // what to do about times at which the server was not running: "once" or "skip"

	next func(time.Time) time.Time
	loc  *time.Location // nil means the machine's
}

// Next returns the first time after t at which the schedule is due, in the
// schedule's zone. A time that the clocks skip in spring is skipped with them.
func (s *Schedule) Next(t time.Time) time.Time { return s.next(t.In(s.Location())) }

// Location returns the schedule's time zone.
func (s *Schedule) Location() *time.Location { return cmp.Or(s.loc, time.Local) }

// SetTimeZone sets the time zone.
func (s *Schedule) SetTimeZone(name string) error {
	loc, err := time.LoadLocation(name)
	if err != nil || name == "" {
		return fmt.Errorf("%q is not a time zone such as Europe/Berlin or UTC", name)
	}
	s.TimeZone, s.loc = name, loc
	return nil
}

// SetCron parses the expression, which is tried out in the time zone. It handles some
// texts before the library, which panics on a zone without a space after it, accepts an
// empty item as an empty set, and an interval of less than a second as a second.
func (s *Schedule) SetCron(text string) error {
	s.Cron = text
	if every, ok := strings.CutPrefix(text, "@every "); ok {
		return s.every(strings.TrimSpace(every))
	}
	switch fields := strings.Fields(text); {
	case strings.Contains(text, "TZ="):
		return fmt.Errorf("the zone is given twice, or not as TZ=Europe/Berlin in front of the fields; use the key time-zone")
	case strings.HasPrefix(text, "@"):
	case len(fields) != 5:
		return fmt.Errorf("it has %d fields; want 5: minute, hour, day of month, month, day of week", len(fields))
	case strings.Contains(" "+strings.Join(fields, " ")+" ", " ,"), strings.Contains(strings.Join(fields, " ")+" ", ", "), strings.Contains(text, ",,"):
		return fmt.Errorf("there is nothing beside a comma")
	}
	parsed, err := cron.ParseStandard(text)
	if err != nil {
		return err
	}
	s.next = parsed.Next
	if parsed.Next(time.Date(2024, 1, 1, 0, 0, 0, 0, s.Location())).IsZero() {
		return fmt.Errorf("there is no such day")
	}
	return nil
}

// every is for intervals. They start at round times, so that a restart does not
// shift them.
func (s *Schedule) every(text string) error {
	d, err := retry.ParseDuration(text)
	if err != nil {
		return err
	}
	if d < time.Second {
		return fmt.Errorf("the interval is less than a second")
	}
	if d%time.Second != 0 {
		return fmt.Errorf("the interval is not a whole number of seconds")
	}
	s.Cron = "@every " + textfmt.CompactDuration(d)
	s.next = func(t time.Time) time.Time { return t.Truncate(d).Add(d) }
	return nil
}
