package detect

import (
	"strings"
	"testing"
	"time"
)

func TestAMessageMayBeWrapped(t *testing.T) {
	t.Parallel()
	long := in(65*time.Hour + 14*time.Minute)
	for name, tc := range map[string]struct {
		pack, output string
		want         Reason
		until        time.Time
	}{
		"within a duration":                   {"codex", "You've hit your usage limit. Upgrade or try again in 2 days\n17 hours 14 minutes.", RateLimit, long},
		"within a duration, twice":            {"codex", "You've hit your usage limit. Upgrade or try again in 2 days\n17 hours\n14 minutes.", RateLimit, long},
		"before a duration":                   {"codex", "You've hit your usage limit. Upgrade or try again in\n2 days 17 hours 14 minutes.", RateLimit, long},
		"before and within it":                {"codex", "You've hit your usage limit. Upgrade or try again\nin 2 days 17\nhours 14 minutes.", RateLimit, long},
		"at and":                              {"codex", "You've hit your usage limit. Try again in 2 days and\n17 hours and 14 minutes.", RateLimit, long},
		"a duration of another program":       {"opencode", "It will reset in 2 days\n3 hours", RateLimit, in(51 * time.Hour)},
		"before a time, at 40 columns":        {"claude-code", "You've hit your session limit · resets\n4:20pm (Asia/Tbilisi)", RateLimit, utc(11, 15, 12, 20, 0)},
		"before a zone":                       {"claude-code", "You've hit your session limit · resets 4:20pm\n(Asia/Tbilisi)", RateLimit, utc(11, 15, 12, 20, 0)},
		"in a frame":                          {"claude-code", "│ You've hit your session │\n│ limit · resets 4:20pm   │\n│ (Asia/Tbilisi)          │", RateLimit, utc(11, 15, 12, 20, 0)},
		"within the date":                     {"claude-code", "You've hit your weekly limit · resets Nov\n20 at 7pm", RateLimit, utc(11, 20, 19, 0, 0)},
		"before the time of a date":           {"claude-code", "You've hit your weekly limit · resets Nov 20\nat 7pm", RateLimit, utc(11, 20, 19, 0, 0)},
		"within the words that are looked at": {"claude-code", "Your limit will\nreset at 4 PM (UTC).", RateLimit, utc(11, 15, 16, 0, 0)},
		"within the text of an event":         {"codex", `{"type":"error","message":"You've hit your usage limit. Try again in 2 days\n17 hours 14 minutes."}`, RateLimit, long},
		"what any program says, with a time":  {"generic", "Please try again\nin 35 seconds", RateLimit, in(35 * time.Second)},
		"what any says, without one":          {"generic", "Too many\nrequests", Crashed, time.Time{}},
		"a line that follows, and no part":    {"generic", "Please try again in 20s\n35 seconds", RateLimit, in(20 * time.Second)},
		"a line that needs no beginning":      {"claude-code", "API Error:\n" + until3pm, RateLimit, utc(11, 15, 15, 0, 0)},
		"an event between":                    {"opencode", "It will reset in 2 days\n{\"a\":1}\n3 hours", RateLimit, in(48 * time.Hour)},
		"the text of another event":           {"opencode", `{"type":"error","error":{"data":{"message":"It will reset in 2 days"}}}` + "\n3 hours", RateLimit, in(48 * time.Hour)},
		"a zone that is none":                 {"claude-code", until3pm + "\nok", RateLimit, utc(11, 15, 15, 0, 0)},
	} {
		got := stopOf(t, tc.pack, "Working on it.\n"+tc.output+"\n", 1)
		if got.Reason != tc.want || !got.Until.Equal(tc.until) {
			t.Errorf("%s: %s: %q\n got %+v\nwant %s until %v", name, tc.pack, tc.output, got, tc.want, tc.until)
		}
	}
	got := stopOf(t, "opencode", "It will reset in 2 days\n3 hours\n", 1)
	if got.Number != 1 || got.Line != "It will reset in 2 days 3 hours" {
		t.Errorf("%+v, want line 1 and all of the message", got)
	}
}

func TestWordsOfTimeEndWhereTheyEnd(t *testing.T) {
	t.Parallel()
	for output, want := range map[string]Reason{
		"Please try again in 5 months":                                      Crashed,
		"Please try again in 5 msgs":                                        Crashed,
		"litellm.RateLimitError: please try again in 5 months.":             RateLimit,
		"You've hit your usage limit. Try again in 5 months.":               RateLimit,
		"litellm.RateLimitError: please try again in 5 minutesandsomething": RateLimit,
	} {
		if got := stopOf(t, "aider", output, 1); got.Reason != want || !got.Until.IsZero() {
			t.Errorf("%q: %+v, want %s without a time", output, got, want)
		}
	}
}

func TestALineMayNeedItsContext(t *testing.T) {
	t.Parallel()
	above := `"@type": "type.googleapis.com/google.rpc.QuotaFailure",` + "\n"
	line := `"quotaId": "GenerateRequestsPerMinutePerProject"` + "\n"
	for name, tc := range map[string]struct {
		output string
		want   Reason
	}{
		"on the line above":                      {above + line, RateLimit},
		"eight lines above":                      {above + strings.Repeat("{\n", 7) + line, RateLimit},
		"nine lines above":                       {above + strings.Repeat("{\n", 8) + line, Crashed},
		"on the line":                            {`[API Error: {"error":{"code":429,"details":[{"quotaId":"XPerMinute"}]}}]`, RateLimit},
		"below":                                  {line + above, Crashed},
		"nowhere":                                {line, Crashed},
		"above the first of the last lines":      {strings.Repeat(".\n", 30) + above + line + strings.Repeat("}\n", 19), RateLimit},
		"above a line that is not of the last":   {strings.Repeat(".\n", 30) + above + line + strings.Repeat("}\n", 20), Crashed},
		"in an event":                            {`{"status":"QUOTAFAILURE"}` + "\n" + line, RateLimit},
		"in capitals, with another form of keys": {"'@TYPE': 'QUOTAFAILURE',\nquotaId: 'XPerMinute'", RateLimit},
	} {
		for _, explain := range []bool{false, true} {
			d := New(builtin(t, "gemini"), Options{Location: time.UTC, At: noon, Explain: explain})
			_, _ = d.Stream().Write([]byte(tc.output))
			if got, _ := d.Explain(1); got.Reason != tc.want {
				t.Errorf("%s: %q with explain %v gives %+v, want %s", name, tc.output, explain, got, tc.want)
			}
		}
	}
}
