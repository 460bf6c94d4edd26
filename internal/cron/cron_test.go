package cron

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

func mustParse(t testing.TB, text string) Schedule {
	t.Helper()
	s, err := Parse(text, false)
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return s
}

func TestNext(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, after, want string }{
		{"TZ=UTC * * * * *", "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"},
		{"TZ=UTC * * * * *", "2026-01-01T00:00:59.9Z", "2026-01-01T00:01:00Z"},
		{"TZ=UTC 0 9 * * Mon-FRI", "2026-10-03T00:00:00Z", "2026-10-05T09:00:00Z"},
		{"TZ=UTC 5/20 8 * * ?", "2026-01-01T08:25:00Z", "2026-01-01T08:45:00Z"},
		{"CRON_TZ=UTC 0 0 13 * 5", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"}, // the 13th or a Friday
		{"TZ=UTC 0 0 13 * */2", "2026-01-01T00:00:00Z", "2026-01-03T00:00:00Z"},    // the 13th or every other day
		{"TZ=UTC 0 0 13 * */1", "2026-01-01T00:00:00Z", "2026-01-13T00:00:00Z"},
		{"TZ=UTC 0 0 29 2 *", "2096-03-01T00:00:00Z", "2104-02-29T00:00:00Z"},
		{"TZ=UTC 0 0 31 apr,may *", "2026-06-01T00:00:00Z", "2027-05-31T00:00:00Z"},
		{"TZ=Europe/Berlin @yearly", "2026-06-01T00:00:00Z", "2026-12-31T23:00:00Z"},
		{"TZ=UTC @monthly", "2026-06-01T00:00:00Z", "2026-07-01T00:00:00Z"},
		{"TZ=UTC @weekly", "2026-06-01T00:00:00Z", "2026-06-07T00:00:00Z"},
		{"@every 90m", "2026-06-01T00:00:00.5Z", "2026-06-01T01:30:00Z"},
		{"  0  3 * * *\t", "2026-06-01T00:00:00+02:00", "2026-06-01T03:00:00+02:00"}, // without a zone: that of the given time

		// A stored schedule may have these.
		{"TZ=UTC 0,,30, 3 * * *", "2026-01-01T03:00:00Z", "2026-01-01T03:30:00Z"},
		{"TZ=UTC *-3 3 * * *", "2026-01-01T03:04:00Z", "2026-01-01T03:05:00Z"},
		{"TZ=UTC 5/9223372036854775807 3 * * *", "2026-01-01T03:00:00Z", "2026-01-01T03:05:00Z"},
		{"TZ= +5 03 * * *", "2026-01-01T03:00:00Z", "2026-01-01T03:05:00Z"},
		{"@every 1500ms", "2026-06-01T00:00:00Z", "2026-06-01T00:00:01Z"},
		{"@every -5m", "2026-06-01T00:00:00Z", "2026-06-01T00:00:01Z"},

		// The clock skips 2:00 to 3:00.
		{"TZ=Europe/Berlin 30 2 * * *", "2026-03-29T00:00:00Z", "2026-03-29T01:00:00Z"},
		{"TZ=Europe/Berlin 30 2 * * *", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"},
		{"TZ=Europe/Berlin 0,30 2,3 * * *", "2026-03-29T01:00:00Z", "2026-03-29T01:30:00Z"},
		{"TZ=Europe/Berlin */20 2 * * *", "2026-03-29T00:00:00Z", "2026-03-30T00:00:00Z"},
		{"TZ=Europe/Berlin 30 * * * *", "2026-03-29T00:30:00Z", "2026-03-29T01:30:00Z"},
		{"TZ=America/Sao_Paulo @daily", "2018-11-03T12:00:00Z", "2018-11-04T03:00:00Z"},  // skips midnight
		{"TZ=Pacific/Apia 0 12 30 12 *", "2011-12-30T00:00:00Z", "2011-12-30T10:00:00Z"}, // skips 30 December
		// It shows 2:00 to 3:00 twice.
		{"TZ=Europe/Berlin 30 2 * * *", "2026-10-25T00:00:00Z", "2026-10-25T00:30:00Z"},
		{"TZ=Europe/Berlin 30 2 * * *", "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"},
		{"TZ=Europe/Berlin 30 2 * * *", "2026-10-25T01:00:00Z", "2026-10-26T01:30:00Z"},
		{"TZ=Europe/Berlin 30 * * * *", "2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z"},
		{"TZ=America/Havana @daily", "2025-11-02T04:00:00Z", "2025-11-03T05:00:00Z"},
		{"TZ=Australia/Lord_Howe 45 1 * * *", "2026-04-04T14:45:00Z", "2026-04-05T15:15:00Z"}, // half an hour
		{"TZ=Australia/Lord_Howe 0 * * * *", "2026-04-04T14:45:00Z", "2026-04-04T15:30:00Z"},
		{"TZ=Australia/Lord_Howe * 0 * * *", "2038-01-18T15:35:00Z", "2038-01-19T13:00:00Z"}, // a table of the zone ends
	} {
		after, err := time.Parse(time.RFC3339, c.after)
		if err != nil {
			t.Fatal(err)
		}
		s := mustParse(t, c.text)
		got := s.Next(after)
		if want, _ := time.Parse(time.RFC3339, c.want); !got.Equal(want) || got.Location() != after.Location() {
			t.Errorf("%q after %s: %s, want %s", c.text, c.after, got, c.want)
		}
	}
}

func TestErrorsNameTheField(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text, want string
		strict     bool
	}{
		{text: "61 * * * *", want: "minute 61 is not in 0 to 59"},
		{text: "0 -1 * * *", want: `hour "" is not a number`},
		{text: "0 0 0 * *", want: "day of month 0 is not in 1 to 31"},
		{text: "0 0 1 month *", want: `month "month" is not a number`},
		{text: "0 0 1 * 7", want: "day of week 7 is not in 0 to 6"},
		{text: "5-3 * * * *", want: `minute "5-3" ends before it begins`},
		{text: "1-2-3 * * * *", want: `minute "2-3" is not a number`},
		{text: "*/0 * * * *", want: `minute "*/0" has a step that is not a number above zero`},
		{text: "1/2/3 * * * *", want: `minute "1/2/3" has a step that is not a number above zero`},
		{text: "0 0 30 2 *", want: "it is never due"},
		{text: "0 , * * *", want: "it is never due"},
		{text: "", want: "it has 0 fields; want 5: minute, hour, day of month, month, day of week"},
		{text: "TZ=UTC", want: "it has 0 fields; want 5: minute, hour, day of month, month, day of week"},
		{text: "TZ=Europe/Atlantis * * * * *", want: `"Europe/Atlantis" is not a time zone such as Europe/Berlin or UTC`},
		{text: "@sometimes", want: `"@sometimes" is not one of @hourly, @daily, @weekly, @monthly, @yearly, and @every with a duration`},
		{text: "@every", want: `"@every" is not one of @hourly, @daily, @weekly, @monthly, @yearly, and @every with a duration`},
		{text: "@every soon", want: `interval "soon" is not whole seconds above zero, such as 90s or 1h30m`},
		{text: "0,,1 * * * *", strict: true, want: "minute has an empty item"},
		{text: "0 *-5 * * *", strict: true, want: `hour "*-5" is a range that begins with no number`},
		{text: "@every 1500ms", strict: true, want: `interval "1500ms" is not whole seconds above zero, such as 90s or 1h30m`},
	} {
		if _, err := Parse(c.text, c.strict); err == nil || err.Error() != c.want {
			t.Errorf("Parse(%q, %v): %v, want %s", c.text, c.strict, err, c.want)
		}
		if _, err := Parse(c.text, false); c.strict && err != nil {
			t.Errorf("Parse(%q, false): %v", c.text, err)
		}
	}
}

// randomField returns the text of a field, and the numbers that it allows.
func randomField(r *rand.Rand, low, high int) (text string, allowed []int) {
	for i := range 1 + r.IntN(3) {
		first, last, step := low, high, 1
		item := "*"
		switch r.IntN(4) {
		case 0:
			first = low + r.IntN(high-low+1)
			last = first + r.IntN(high-first+1)
			item = fmt.Sprintf("%d-%d", first, last)
		case 1, 2:
			first = low + r.IntN(high-low+1)
			last, item = first, fmt.Sprint(first)
		}
		if r.IntN(3) == 0 {
			step = 1 + r.IntN(high)
			if item == fmt.Sprint(first) {
				last = high
			}
			item += fmt.Sprintf("/%d", step)
		}
		if i > 0 {
			text += ","
		}
		text += item
		for n := first; n <= last; n += step {
			allowed = append(allowed, n)
		}
	}
	return text, allowed
}

// A search minute by minute, which knows a clock only by what it shows, finds the same times.
func TestNextMatchesASearch(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	zones := strings.Fields("UTC Europe/Berlin America/New_York America/St_Johns America/Sao_Paulo America/Havana America/Asuncion " +
		"Africa/Casablanca Asia/Kathmandu Asia/Tehran Australia/Lord_Howe Pacific/Apia Antarctica/Troll Atlantic/Azores")
	found := 0
	for range 600 {
		minute, minutes := randomField(r, 0, 59)
		hour, hours := randomField(r, 0, 23)
		if r.IntN(2) == 0 { // at night, when clocks are set
			hours = []int{r.IntN(4)}
			hour = fmt.Sprint(hours[0])
		}
		name := zones[r.IntN(len(zones))]
		zone, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		day, days, weekday, weekdays := "*", []int(nil), "*", []int(nil)
		switch r.IntN(4) {
		case 0:
			days = []int{1 + r.IntN(31), 1 + r.IntN(31)}
			day = fmt.Sprintf("%d,%d", days[0], days[1])
		case 1:
			weekdays = []int{r.IntN(7)}
			weekday = fmt.Sprint(weekdays[0])
		}
		shows := func(w time.Time) bool { // the schedule has the time
			return slices.Contains(minutes, w.Minute()) && slices.Contains(hours, w.Hour()) &&
				(days == nil || slices.Contains(days, w.Day())) && (weekdays == nil || slices.Contains(weekdays, int(w.Weekday())))
		}
		after := time.Unix(10*365*86400+r.Int64N(75*365*86400), 0).In(zone)
		if _, set := after.ZoneBounds(); !set.IsZero() && r.IntN(4) > 0 {
			after = set.Add(time.Duration(r.Int64N(int64(36*time.Hour))) - 30*time.Hour)
		}
		text := strings.Join([]string{"TZ=" + name, minute, hour, day, "*", weekday}, " ")
		s := mustParse(t, text)
		want, ok := search(after, strings.Contains(minute+hour, "*"), shows)
		got := s.Next(after)
		if ok && !got.Equal(want) || !ok && !got.After(after.Add(searched)) {
			t.Errorf("%q after %s: %s, want %s", text, after, got.In(zone), want)
		}
		if ok {
			found++
		}
	}
	if found < 300 {
		t.Errorf("the search found only %d times", found)
	}
}

// searched is how far search looks ahead.
const searched = 60 * time.Hour

// search returns the first minute after the given time at which a schedule is due. byClock is whether it
// is due at each time that the clock shows, and shows whether it has a time.
func search(after time.Time, byClock bool, shows func(time.Time) bool) (time.Time, bool) {
	reads := func(t time.Time) time.Time { // what the clock shows, as a time in UTC
		_, offset := t.Zone()
		return t.UTC().Add(time.Duration(offset) * time.Second)
	}
	t := after.Truncate(time.Minute).Add(-26 * time.Hour)
	for latest := reads(t); t.Before(after.Add(searched)); {
		t = t.Add(time.Minute)
		due := byClock && shows(reads(t))
		for latest.Before(reads(t)) {
			latest = latest.Add(time.Minute)
			due = due || !byClock && shows(latest)
		}
		if due && t.After(after) {
			return t, true
		}
	}
	return t, false
}

// On 31 December of a leap year, ZoneBounds says that the period has ended.
func TestNextOnTheLastDayOfALeapYear(t *testing.T) {
	t.Parallel()
	zone := time.FixedZone("", 0)
	for _, name := range []string{"America/New_York", "Australia/Sydney", "Europe/Berlin"} {
		if loaded, err := time.LoadLocation(name); err == nil {
			zone = loaded
		}
		for _, text := range []string{"0 12 * * *", "0 * * * *"} {
			s := mustParse(t, text)
			at := time.Date(2040, 12, 30, 0, 0, 0, 0, zone)
			for at.Year() < 2041 || at.Day() < 3 {
				next := s.Next(at)
				if next.Hour() != 12 && text == "0 12 * * *" || next.Minute() != 0 || !next.After(at) || next.Sub(at) > 24*time.Hour {
					t.Fatalf("%s: %q after %s: %s", name, text, at, next)
				}
				at = next
			}
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{"TZ=Europe/Berlin */5 0-6,12 1,15 jan-mar mon-fri", "CRON_TZ= 0 0 29 2 ?", "@every 90m", "TZ=UTC @weekly", "TZ=", "*-3,,+5/9 3/99999999999999999 * * *"} {
		f.Add(text, int64(1_800_000_000))
	}
	f.Fuzz(func(t *testing.T, text string, seconds int64) {
		_, strict := Parse(text, true)
		s, err := Parse(text, false)
		if err != nil {
			if strict == nil {
				t.Errorf("Parse(%q): only strict accepts it: %v", text, err)
			}
			return
		}
		at := time.Unix(seconds%(200*365*86400), 0)
		if next := s.Next(at); !next.After(at) || s.every == 0 && next.Sub(at) > 9*366*24*time.Hour {
			t.Errorf("%q after %s: %s", text, at, next)
		}
	})
}

func BenchmarkNext(b *testing.B) {
	at := time.Date(2026, 5, 17, 10, 20, 30, 0, time.UTC)
	for _, text := range []string{"*/5 * * * *", "TZ=America/New_York 30 4 1,15 * 5", "0 0 29 2 *"} {
		b.Run(text, func(b *testing.B) {
			s := mustParse(b, text)
			for b.Loop() {
				s.Next(at)
			}
		})
	}
}
