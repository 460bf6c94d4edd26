package detect

import (
	"strings"
	"testing"
	"time"
)

func place(t testing.TB, name string) *time.Location {
	t.Helper()
	loc, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return loc
}

func TestDates(t *testing.T) {
	t.Parallel()
	berlin := place(t, "Europe/Berlin")
	for _, tc := range []struct {
		text string
		at   time.Time
		want string // RFC 3339 in UTC, or what the note says
	}{
		{"12/2/2026", noon, "2026-12-01T23:00:00Z"},
		{"2026-12-02", noon, "2026-12-01T23:00:00Z"},
		{"7/1/2027", noon, "2027-06-30T22:00:00Z"},   // in summer
		{"11/15/2026", noon, "2026-11-15T23:00:00Z"}, // the day has begun, so its end is meant
		{"11/14/2026", noon, "in the past"},
		{"13/1/2026", noon, "is not a date"},
		{"2/30/2027", noon, "is not a date"},
		{"12/2/2028", noon, "more than 366 days away"},
	} {
		got := read(tc.text, "date", tc.at, berlin)
		if text := got.until.UTC().Format(time.RFC3339); text != tc.want && (got.note == "" || !strings.Contains(got.note, tc.want)) {
			t.Errorf("%s is %s, %q; want %s", tc.text, text, got.note, tc.want)
		}
	}
}

// A limit that ends at a time of day ends at the next one, even if the last was just over.
func TestTheTimeOfDayOfARule(t *testing.T) {
	t.Parallel()
	const line = "[API Error: You have exhausted your daily quota on this model.]"
	for at, want := range map[time.Time]time.Time{
		noon:                  utc(11, 16, 8, 0, 0),
		utc(11, 16, 8, 0, 0):  utc(11, 17, 8, 0, 0),
		utc(11, 16, 8, 30, 0): utc(11, 17, 8, 0, 0),
		utc(11, 1, 6, 59, 0):  utc(11, 1, 7, 0, 0), // the clocks are set back two hours later
		utc(11, 1, 7, 1, 0):   utc(11, 2, 8, 0, 0),
		time.Date(2027, 3, 14, 9, 0, 0, 0, time.UTC): time.Date(2027, 3, 15, 7, 0, 0, 0, time.UTC),
	} {
		d := New(builtin(t, "gemini"), Options{Location: time.UTC, At: at})
		_, _ = d.Stream().Write([]byte(line))
		if got := d.Stop(1); !got.Until.Equal(want) || got.As != asRuleTime {
			t.Errorf("at %v the quota ends at %v as %s, want %v", at, got.Until, got.As, want)
		}
	}
}

func TestMoments(t *testing.T) {
	t.Parallel()
	berlin, york := place(t, "Europe/Berlin"), place(t, "America/New_York")
	for _, tc := range []struct {
		text string
		at   time.Time
		zone *time.Location
		want string // RFC 3339 in UTC, or what the error says
	}{
		{"3pm", noon, time.UTC, "2026-11-15T15:00:00Z"},
		{"3am", noon, time.UTC, "2026-11-16T03:00:00Z"},
		{"12am", noon, time.UTC, "2026-11-16T00:00:00Z"},
		{"12pm", noon, time.UTC, "2026-11-15T12:00:00Z"},
		{"3 p.m.", noon, time.UTC, "2026-11-15T15:00:00Z"},
		{"15:04", noon, time.UTC, "2026-11-15T15:04:00Z"},
		{"3pm", noon, berlin, "2026-11-15T14:00:00Z"},
		{"11:59am", noon, time.UTC, "2026-11-15T11:59:00Z"}, // a minute ago is now
		{"11:57am", noon, time.UTC, "in the past"},          // three minutes ago is the past, and does not mean tomorrow
		{"11am", noon, time.UTC, "in the past"},
		{"10:59am", noon, time.UTC, "2026-11-16T10:59:00Z"}, // more than an hour ago means tomorrow
		{"9:34am", utc(11, 15, 9, 36, 54), time.UTC, "in the past"},
		{"11:30pm", utc(11, 16, 0, 15, 0), time.UTC, "in the past"}, // yesterday's
		{"11:59pm", utc(11, 16, 0, 1, 0), time.UTC, "2026-11-15T23:59:00Z"},
		{"4:20pm (Asia/Tbilisi)", noon, time.UTC, "2026-11-15T12:20:00Z"},
		{"4 PM (UTC)", noon, berlin, "2026-11-15T16:00:00Z"},
		{"3:14 PM PDT", noon, berlin, "2026-11-15T22:14:00Z"},
		{"3:14 PM PT", noon, berlin, "2026-11-15T23:14:00Z"},
		{"9:00 CET", noon, york, "2026-11-16T08:00:00Z"},
		{"13:00 America/New_York", noon, berlin, "2026-11-15T18:00:00Z"}, // and not 13:00 am
		{"April 20, 2027 at 2:00 AM", noon, time.UTC, "2027-04-20T02:00:00Z"},
		{"9:00 UTC+5:30", noon, york, "2026-11-16T03:30:00Z"},
		{"tomorrow at 3pm", noon, time.UTC, "2026-11-16T15:00:00Z"},
		{"today at 3pm", noon, time.UTC, "2026-11-15T15:00:00Z"},
		{"Mon 7:30pm", noon, time.UTC, "2026-11-16T19:30:00Z"},
		{"Sunday at 11am", noon, time.UTC, "in the past"}, // today
		{"Sat 1pm", noon, time.UTC, "in the past"},
		{"Sat 11am", noon, time.UTC, "2026-11-21T11:00:00Z"}, // more than a day ago
		{"Sep 15 at 7pm", noon, time.UTC, "in the past"},
		{"Nov 15 at 11:57am", noon, time.UTC, "in the past"},
		{"May 20 at 7pm", noon, time.UTC, "in the past"},          // 179 days ago
		{"May 10 at 7pm", noon, time.UTC, "2027-05-10T19:00:00Z"}, // 189
		{"Dec 30 at 7pm", time.Date(2027, 1, 2, 0, 0, 0, 0, time.UTC), time.UTC, "in the past"},
		{"Feb 29 at 7pm", time.Date(2028, 1, 2, 0, 0, 0, 0, time.UTC), time.UTC, "2028-02-29T19:00:00Z"},
		{"Dec 1, 7pm", noon, time.UTC, "2026-12-01T19:00:00Z"},
		{"1 December 19:00", noon, time.UTC, "2026-12-01T19:00:00Z"},
		{"Nov 15, 11:59am", noon, time.UTC, "2026-11-15T11:59:00Z"},
		{"Dec 31 at 11:59pm", time.Date(2027, 1, 1, 0, 1, 0, 0, time.UTC), time.UTC, "2026-12-31T23:59:00Z"},
		{"Jul 10th, 2026 11:52 AM", utc(7, 9, 0, 0, 0), time.UTC, "2026-07-10T11:52:00Z"},
		{"2026-04-11 20:30:24", utc(4, 11, 0, 0, 0), berlin, "2026-04-11T18:30:24Z"},
		{"2026-04-11T20:30:24Z", utc(4, 11, 0, 0, 0), berlin, "2026-04-11T20:30:24Z"},
		{"2026-04-11T20:30:24+02:00", utc(4, 11, 0, 0, 0), york, "2026-04-11T18:30:24Z"},
		// The clocks of New York skip 2:30 on 8 March and show 1:30 twice on 1
		// November; in between, 3pm is in daylight saving time.
		{"2:30am", utc(3, 8, 5, 0, 0), york, "2026-03-08T07:30:00Z"},
		{"1:30am", utc(11, 1, 4, 0, 0), york, "2026-11-01T05:30:00Z"},
		{"1:30am", utc(11, 1, 5, 45, 0), york, "2026-11-01T06:30:00Z"}, // the first has passed
		{"1:30am", utc(11, 1, 6, 45, 0), york, "in the past"},
		{"1:30am", utc(11, 1, 7, 45, 0), york, "2026-11-02T06:30:00Z"},
		{"3pm", utc(3, 8, 5, 0, 0), york, "2026-03-08T19:00:00Z"},
		{"3pm", utc(3, 7, 21, 30, 0), york, "2026-03-08T19:00:00Z"}, // 21 hours and a half away
		{"2:30am", utc(3, 28, 12, 0, 0), berlin, "2026-03-29T01:30:00Z"},

		{"3", noon, time.UTC, "alone is ambiguous"},
		{"25:00", noon, time.UTC, "is not a time of day"},
		{"13pm", noon, time.UTC, "is not a time of day"},
		{"3pm (Mars/Olympus)", noon, time.UTC, `zone "Mars/Olympus" is unknown`},
		{"3pm XYZ", noon, time.UTC, `zone "XYZ" is unknown`},
		{"soon", noon, time.UTC, "is not a time"},
		{"Feb 30 at 3pm", noon, time.UTC, "not a date of the calendar"},
		{"Jul 10th, 2026 11:52 AM", noon, time.UTC, "in the past"},
		{"2029-01-01 00:00:00", noon, time.UTC, "more than 366 days"},
		{"today at 3am", noon, time.UTC, "in the past"},
	} {
		wantReading(t, tc.text, "moment", tc.at, tc.zone, tc.want)
	}
}

func wantReading(t *testing.T, text, as string, at time.Time, zone *time.Location, want string) {
	t.Helper()
	got := read(text, as, at, zone)
	if when, err := time.Parse(time.RFC3339Nano, want); err == nil {
		if !got.until.Equal(when) {
			t.Errorf("read(%q, %s) at %v = %+v, want %v", text, as, at, got, when)
		}
	} else if !got.until.IsZero() || !strings.Contains(got.note, want) {
		t.Errorf("read(%q, %s) at %v = %+v, want a note with %q", text, as, at, got, want)
	}
}

func TestOtherFormsOfTime(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ text, as, want string }{
		{"11.75s", "duration", "2026-11-15T12:00:11.75Z"},
		{"28ms", "duration", "2026-11-15T12:00:00.028Z"},
		{"35 seconds", "duration", "2026-11-15T12:00:35Z"},
		{"1m30s", "duration", "2026-11-15T12:01:30Z"},
		{"2m 22s", "duration", "2026-11-15T12:02:22Z"},
		{"19h14m47s", "duration", "2026-11-16T07:14:47Z"},
		{"2 days 17 hours 14 minutes", "duration", "2026-11-18T05:14:00Z"},
		{"1 hour and 5 minutes", "duration", "2026-11-15T13:05:00Z"},
		{"1 hour, 5 minutes", "duration", "2026-11-15T13:05:00Z"},
		{"0s", "duration", "2026-11-15T12:00:00Z"},
		{"366 days", "duration", "2027-11-16T12:00:00Z"},
		{"120", "seconds", "2026-11-15T12:02:00Z"},
		{"0.5", "seconds", "2026-11-15T12:00:00.5Z"},
		{"1500", "milliseconds", "2026-11-15T12:00:01.5Z"},
		{"1794747600", "epoch", "2026-11-15T13:00:00Z"},
		{"1794747600000", "epoch", "2026-11-15T13:00:00Z"},
		{"1794743940", "epoch", "2026-11-15T11:59:00Z"},
		{"2026-11-15T13:00:00Z", "epoch", "2026-11-15T13:00:00Z"},
		{"2026-11-15T14:00:00.250+01:00", "epoch", "2026-11-15T13:00:00Z"},
		{"120", "retry-after", "2026-11-15T12:02:00Z"},
		{"Sun, 15 Nov 2026 13:00:00 GMT", "retry-after", "2026-11-15T13:00:00Z"},

		{"367 days", "duration", "more than 366 days"},
		{"-5s", "duration", "is not a duration"},
		{"5 months", "duration", `unknown unit "months"`},
		{"20s 35s", "duration", "is more than one duration"},
		{"3 hours 2 days", "duration", "is more than one duration"},
		{"", "duration", "is not a duration"},
		{strings.Repeat("9", 400) + "s", "duration", "is not a duration"}, // cut
		{strings.Repeat("9", 90) + "s", "duration", "more than 366 days"},
		{"-1", "seconds", "is not a number of seconds"},
		{"1e300", "seconds", "is not a number"},
		{"1751234567", "epoch", "in the past"},
		{"9999999999", "epoch", "more than 366 days"},
		{strings.Repeat("9", 50), "epoch", "more than 366 days"},
		{"soon", "epoch", "is not a number"},
		{"3pm", "epoch", "is not a number"},
		{"2026-11-14T13:00:00Z", "epoch", "in the past"},
		{"later", "retry-after", "neither a number of seconds nor a date"},
	} {
		wantReading(t, tc.text, tc.as, noon, time.UTC, tc.want)
	}
}

func FuzzRead(f *testing.F) {
	for _, text := range []string{"3pm", "4:20pm (Asia/Tbilisi)", "Sep 15 at 7pm", "Jul 10th, 2026 11:52 AM", "2026-04-11 20:30:24", "1m30s", "120", "1794747600", "2:30am (America/New_York)"} {
		f.Add(text, int64(0))
	}
	f.Fuzz(func(t *testing.T, text string, later int64) {
		at := noon.Add(time.Duration(later % int64(20*longest)))
		for as := range forms {
			for _, zone := range []*time.Location{time.UTC, time.FixedZone("x", -9000)} {
				got := read(text, as, at, zone)
				if got.until.IsZero() == (got.note == "") {
					t.Fatalf("read(%q, %s) = %+v, want either a time or a note", text, as, got)
				}
				if !got.until.IsZero() && (got.until.Before(at.Add(-tolerance)) || got.until.After(at.Add(longest))) {
					t.Fatalf("read(%q, %s) = %v, which is out of bounds at %v", text, as, got.until, at)
				}
			}
		}
	})
}
