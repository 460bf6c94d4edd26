package config_test

import (
	"cmp"
	"testing"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/steps"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/secret"
)

func TestSchedules(t *testing.T) {
	for _, c := range []struct{ schedule, after, want string }{
		{`"0 3 * * *"`, "", ""},
		{`TZ=Europe/Berlin 0 3 * * *`, "2026-01-01T00:00:00Z", "2026-01-01T02:00:00Z"},
		{`TZ=Europe/Berlin 0 3 * * *`, "2026-07-01T00:00:00Z", "2026-07-01T01:00:00Z"},
		{`TZ=Europe/Berlin 30 2 * * *`, "2026-03-29T00:00:00Z", "2026-03-29T01:00:00Z"}, // there is no 2:30 on that day
		{`{cron: "@daily", time-zone: UTC, missed: skip}`, "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"},
		{`TZ=UTC 0 9 * * mon-fri`, "2026-10-03T00:00:00Z", "2026-10-05T09:00:00Z"},
		{`TZ=UTC 0 0 29 2 *`, "2026-01-01T00:00:00Z", "2028-02-29T00:00:00Z"},
		{`"TZ=UTC @every 90m"`, "2026-10-03T00:10:00Z", "2026-10-03T01:40:00Z"},
		{`"TZ=UTC @every 1d"`, "2026-10-03T00:10:00Z", "2026-10-04T00:10:00Z"},
	} {
		w := load(t, "    schedule: "+c.schedule+"\n    steps: [{id: a, run: [x]}]\n")
		_, made, err := steps.Workflows([]*steps.Workflow{w}, secret.Resolver{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if c.after == "" {
			if next, err := engine.ParseCron(made[0].Cron, time.Now()); err != nil || w.Schedule.Location() != time.Local || next.Hour() != 3 {
				t.Errorf("%s is not in the machine's zone: %s, %v", c.schedule, next, err)
			}
			continue
		}
		after, err := time.Parse(time.RFC3339, c.after)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := engine.ParseCron(made[0].Cron, after); err != nil || got.Format(time.RFC3339) != c.want {
			t.Errorf("%s after %s: %s, %v, want %s", c.schedule, c.after, got, err, c.want)
		}
	}
}

func TestTheEngineUnderstandsWhatIsAccepted(t *testing.T) {
	for _, c := range []struct{ schedule, cron string }{
		{`"0 3 * * *"`, "0 3 * * *"},
		{`"*/5 0-6,12 1,15 jan-mar mon-fri"`, "*/5 0-6,12 1,15 jan-mar mon-fri"},
		{`"  0 3  * * *  "`, "  0 3  * * *  "},
		{`"0 0 29 2 ?"`, "0 0 29 2 ?"},
		{`"@hourly"`, "@hourly"},
		{`"@daily"`, "@daily"},
		{`"@midnight"`, "@midnight"},
		{`"@weekly"`, "@weekly"},
		{`"@monthly"`, "@monthly"},
		{`"@yearly"`, "@yearly"},
		{`"@annually"`, "@annually"},
		{`TZ=Europe/Berlin 30 2 * * *`, "30 2 * * *"},
		{`{cron: "@daily", time-zone: Local}`, "@daily"},
		{`"@every 1s"`, "@every 1s"},
		{`"@every  90m"`, "@every 1h30m"},
		{`"@every 1500000ms"`, "@every 25m"},
		{`"@every 2d"`, "@every 48h"},
		{`"@every 1d1s"`, "@every 24h0m1s"},
		{`"@every 10h10m10s"`, "@every 10h10m10s"},
		{`"@every 20m"`, "@every 20m"},
		{`TZ=UTC @every 1.5d`, "@every 36h"},
	} {
		s := load(t, "    schedule: "+c.schedule+"\n    steps: [{id: a, run: [x]}]\n").Schedule
		if s.Cron != c.cron {
			t.Errorf("%s: Cron = %q, want %q", c.schedule, s.Cron, c.cron)
		}
		for _, text := range []string{s.Cron, "TZ=" + cmp.Or(s.TimeZone, "UTC") + " " + s.Cron} {
			if _, err := engine.ParseCron(text, time.Now()); err != nil {
				t.Errorf("%s: the engine refuses it: %v", c.schedule, err)
			}
		}
	}
}
