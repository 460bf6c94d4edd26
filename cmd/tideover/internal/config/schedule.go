package config

import (
	"fmt"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/robfig/cron/v3"

	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
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

// readSchedule reads a schedule as text or as a map.
func readSchedule(at strictyaml.Place) *Schedule {
	n := at.Node
	if !at.IsMap() {
		text, ok := at.Text()
		if !ok {
			return nil
		}
		n = &strictyaml.Node{Kind: strictyaml.KindMap, Line: n.Line, Column: n.Column}
		n.Set("cron", at.Node)
		if zone, rest, ok := strings.Cut(text, " "); ok && strings.HasPrefix(zone, "TZ=") {
			split := func(s string) *strictyaml.Node { c := *at.Node; c.Text = s; return &c }
			n.Set("cron", split(strings.TrimSpace(rest)))
			n.Set("time-zone", split(strings.TrimPrefix(zone, "TZ=")))
		}
	}
	s := &Schedule{loc: time.Local}
	before := at.Document().Problems()
	strictyaml.Object(struct{}{}, at.WithNode(n), scheduleKeys, s)
	if at.Document().Problems() > before {
		return nil
	}
	return s
}

// scheduleKeys has the zone first: the expression is tried out in it.
var scheduleKeys = []strictyaml.Key[struct{}, Schedule]{
	{
		Name: "time-zone", Doc: "Zone in which the expression is meant, such as Europe/Berlin; the machine's unless said.", Schema: strictyaml.TextSchema,
		Set: func(_ struct{}, at strictyaml.Place, s *Schedule) {
			name, ok := at.Text()
			if !ok {
				return
			}
			loc, err := time.LoadLocation(name)
			if err != nil || name == "" {
				at.Bad("%q is not a time zone such as Europe/Berlin or UTC", name)
				return
			}
			s.TimeZone, s.loc = name, loc
			at.Record(name)
		},
	},
	{
		Name: "cron", Required: true, Doc: "Five fields (minute, hour, day of month, month, day of week), @hourly, @daily, @weekly, @monthly, @yearly, or @every 90m.", Schema: strictyaml.TextSchema,
		Set: func(_ struct{}, at strictyaml.Place, s *Schedule) {
			text, ok := at.Text()
			if !ok {
				return
			}
			if err := s.parse(text); err != nil {
				at.Bad("%q is not a schedule: %v", text, err)
				return
			}
			at.Record(text)
		},
	},
	{
		Name: "missed", Default: "once", Doc: "What to do when the server was not running at the time: one run for all missed times, or none.",
		Schema: func() *jsonschema.Schema { return strictyaml.WordSchema("once", "skip") },
		Set: func(_ struct{}, at strictyaml.Place, s *Schedule) {
			s.Missed = strictyaml.ReadWord(at, "once", "skip")
		},
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
	return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{strictyaml.TextSchema(), strictyaml.Describe(scheduleKeys)}}
}
