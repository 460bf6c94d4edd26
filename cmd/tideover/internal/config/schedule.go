package config

import (
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/tideover/tideover/cmd/tideover/internal/steps"
	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
)

// readSchedule reads a schedule that is a text or a map. It returns nil if it is invalid.
func readSchedule(at place) *steps.Schedule {
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
	s := new(steps.Schedule)
	before := at.Document().Problems()
	strictyaml.Object(at.WithNode(n), scheduleKeys(s))
	if at.Document().Problems() > before {
		return nil
	}
	return s
}

// scheduleKeys are the keys of a schedule.
func scheduleKeys(s *steps.Schedule) []key {
	return []key{
		strictyaml.Func("time-zone", "", strictyaml.TextSchema, func(at place) {
			if err := s.SetTimeZone(strictyaml.ReadText(at)); err != nil && at.Node.IsScalar() {
				at.Bad("%v", err)
			}
		}, "Time zone of the expression, such as Europe/Berlin. Default: that of the machine."),
		strictyaml.Required(strictyaml.Func("cron", "", strictyaml.TextSchema, func(at place) {
			text := strictyaml.ReadText(at)
			if err := s.SetCron(text); err != nil && at.Node.IsScalar() {
				at.Bad("%q is not a schedule: %v", text, err)
			}
		}, "Five fields (minute, hour, day of month, month, day of week), @hourly, @daily, @weekly, @monthly, @yearly, or @every 90m.")),
		strictyaml.Word(&s.Missed, "missed", "once", []string{"once", "skip"},
			"What to do if the server was not running at a scheduled time: start one run for all missed times, or none."),
	}
}

// scheduleSchema accepts both forms of a schedule, a text and a map.
func scheduleSchema() *jsonschema.Schema {
	return anyOf(strictyaml.TextSchema(), strictyaml.Describe(scheduleKeys(new(steps.Schedule))))
}
