package config

import (
	"fmt"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/robfig/cron/v3"

	"github.com/tideover/tideover/internal/textfmt"
	"github.com/tideover/tideover/retry"
)

// Schedule says when a workflow starts by itself.
type Schedule struct {
	Cron     string // five fields, or @daily and the like; the interval of @every is in Go's spelling
	TimeZone string // as in the time zone database; empty means the machine's
	Missed   string // what to do about times at which the server was not running: "once" or "skip"

	next func(time.Time) time.Time
	loc  *time.Location
}

// Next returns the first time after t at which the schedule is due, in the
// schedule's zone. A time that the clocks skip in spring is skipped with them.
func (s *Schedule) Next(t time.Time) time.Time { return s.next(t.In(s.loc)) }

// Location returns the schedule's time zone.
func (s *Schedule) Location() *time.Location { return s.loc }

// schedule reads a schedule as text or as a map.
func (l *loader) schedule(at place) *Schedule {
	n := at.node
	if n.kind != mapKind {
		text, ok := l.scalar(at)
		if !ok {
			return nil
		}
		n = &node{kind: mapKind, line: n.line, col: n.col, pairs: []pair{{given("cron", ""), n}}}
		if zone, rest, ok := strings.Cut(text, " "); ok && strings.HasPrefix(zone, "TZ=") {
			split := func(s string) *node { c := *at.node; c.text = s; return &c }
			n.pairs = []pair{
				{given("cron", ""), split(strings.TrimSpace(rest))},
				{given("time-zone", ""), split(strings.TrimPrefix(zone, "TZ="))},
			}
		}
	}
	s := &Schedule{loc: time.Local}
	before := len(l.problems)
	object(l, place{at.path, n}, scheduleKeys, s)
	if len(l.problems) > before {
		return nil
	}
	return s
}

// scheduleKeys has the zone first: the expression is tried out in it.
var scheduleKeys = []key[Schedule]{
	{
		name: "time-zone", doc: "Zone in which the expression is meant, such as Europe/Berlin; the machine's unless said.", schema: textSchema,
		set: func(l *loader, at place, s *Schedule) {
			name, ok := l.scalar(at)
			if !ok {
				return
			}
			loc, err := time.LoadLocation(name)
			if err != nil || name == "" {
				l.bad(at, "%q is not a time zone such as Europe/Berlin or UTC", name)
				return
			}
			s.TimeZone, s.loc = name, loc
			l.value(at, name)
		},
	},
	{
		name: "cron", required: true, doc: "Five fields (minute, hour, day of month, month, day of week), @hourly, @daily, @weekly, @monthly, @yearly, or @every 90m.", schema: textSchema,
		set: func(l *loader, at place, s *Schedule) {
			text, ok := l.scalar(at)
			if !ok {
				return
			}
			if err := s.parse(text); err != nil {
				l.bad(at, "%q is not a schedule: %v", text, err)
				return
			}
			l.value(at, text)
		},
	},
	{
		name: "missed", def: "once", doc: "What to do when the server was not running at the time: one run for all missed times, or none.",
		schema: func() *jsonschema.Schema { return enum("once", "skip") },
		set:    func(l *loader, at place, s *Schedule) { s.Missed = l.word(at, "once", "skip") },
	},
}

// parse reads the expression. The library is kept away from what it does not
// bear: it panics on a zone without a space after it, takes an empty item for a
// set of nothing, and an interval of less than a second for a second.
func (s *Schedule) parse(text string) error {
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
	if parsed.Next(time.Date(2024, 1, 1, 0, 0, 0, 0, s.loc)).IsZero() {
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

// scheduleSchema accepts the text and the map.
func scheduleSchema() *jsonschema.Schema {
	return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{textSchema(), describe(scheduleKeys)}}
}
