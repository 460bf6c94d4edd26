package detect

import (
	"strings"
	"testing"
	"time"
)

const (
	rejected  = `{"type":"rate_limit_event","rate_limit_info":{"status":"rejected","resetsAt":1794747600}}`
	overage   = `{"type":"rate_limit_event","rate_limit_info":{"status":"rejected","resetsAt":1794747600,"overageStatus":"allowed","isUsingOverage":true}}`
	answer    = `{"type":"assistant","message":{"model":"claude-opus-4-6","content":[{"type":"text","text":"Next."}]}}`
	synthetic = `{"type":"assistant","message":{"model":"<synthetic>","content":[{"type":"text","text":"You've hit your session limit · resets 3pm"}]}}`
	success   = `{"type":"result","subtype":"success","is_error":false,"result":"Done."}`
	until3pm  = "5-hour limit reached · resets 3pm"
	perDay    = `{"error":{"code":429,"details":[{"violations":[{"quotaId":"XPerDay"}]}]}}`
)

// Whether a message counts depends on its source and on the output after it.
func TestWhatIsBelieved(t *testing.T) {
	t.Parallel()
	ordinary := strings.Repeat("more\n", 6)
	at3pm, at1pm := utc(11, 15, 15, 0, 0), utc(11, 15, 13, 0, 0)
	for name, tc := range map[string]struct {
		pack   string
		code   int
		output string
		want   Reason
		until  time.Time
	}{
		// The exit code means success.
		"an answer that quotes a status is no limit":           {"claude-code", 0, `{"type":"result","is_error":false,"result":"It answers\n429 Too Many Requests"}`, Completed, time.Time{}},
		"an answer that quotes a header is none":               {"claude-code", 0, `{"type":"result","is_error":false,"result":"Retry-After: 120"}`, Completed, time.Time{}},
		"nor is one in a list of events":                       {"claude-code", 0, `[{"type":"system"},{"type":"result","is_error":false,"result":"Retry-After: 120"}]`, Completed, time.Time{}},
		"a list of statuses, and success":                      {"claude-code", 0, "• 401 Unauthorized: when the token is missing\n• 429 Too Many Requests\nDone.", Completed, time.Time{}},
		"what tests print about keys, and success":             {"generic", 0, "missing API key\nok 3 tests", Completed, time.Time{}},
		"a header of a good answer, and success":               {"generic", 0, "200 OK\nRetry-After: 3600\n\nbenchmark finished", Completed, time.Time{}},
		"a status in the output of tests, and success":         {"generic", 0, "429 Too Many Requests\nPASS", Completed, time.Time{}},
		"a status as the last word, and success":               {"generic", 0, "429 Too Many Requests", Completed, time.Time{}},
		"advice in a list, and success":                        {"generic", 0, "• Wait for 10 seconds. Then rerun the tests.", Completed, time.Time{}},
		"a setting in code, and success":                       {"gemini", 0, "    retryDelay: '5s', // between two tries\nDone", Completed, time.Time{}},
		"a setting in an event of a tool, and success":         {"gemini", 0, `{"type":"tool_use","parameters":{"config":{"retryDelay":"5s"}}}`, Completed, time.Time{}},
		"an error that was got over, and success":              {"opencode", 0, `{"type":"error","error":{"data":{"message":"Rate limit exceeded"}}}` + "\n" + `{"type":"text","part":{"text":"Done."}}` + "\n" + `{"type":"step_finish","part":{"reason":"stop"}}`, Completed, time.Time{}},
		"an error that ends it, and a code of success":         {"opencode", 0, `{"type":"error","error":{"data":{"message":"Rate limit exceeded"}}}`, RateLimit, time.Time{}},
		"a limit of the program as its last word, with code 0": {"claude-code", 0, "Working.\n" + until3pm + "\n", RateLimit, at3pm},
		"the same with two lines after it":                     {"claude-code", 0, until3pm + "\na\nb\n", RateLimit, at3pm},
		"the same with three":                                  {"claude-code", 0, until3pm + "\na\nb\nc\n", Completed, time.Time{}},
		"an event, with code 0":                                {"claude-code", 0, rejected + "\n" + ordinary, RateLimit, at1pm},

		// The program failed for another reason.
		"a setting before a panic is no limit":          {"gemini", 1, "retryDelay: \"30s\"\npanic: x", Crashed, time.Time{}},
		"advice before a panic is none":                 {"generic", 1, "Wait for 30s before checking the pod\npanic: x", Crashed, time.Time{}},
		"prose about retrying is no overload":           {"claude-code", 1, "I fixed the 503 case by retrying in the client.\npanic: x", Crashed, time.Time{}},
		"nor is a status that a test expects":           {"generic", 1, "Error: 503 Service Unavailable\nok 1 handled\npanic: x\ngoroutine 1 [running]:", Crashed, time.Time{}},
		"nor is one that it was retrying":               {"generic", 1, "529 Overloaded · Retrying in 4s · attempt 6/10\npanic: x", Crashed, time.Time{}},
		"a request that is too large is no context":     {"generic", 1, "Error: request too large", Crashed, time.Time{}},
		"a status eight lines up counts":                {"generic", 1, "429 Too Many Requests\n" + strings.Repeat("at frame\n", 7), RateLimit, time.Time{}},
		"a status nine lines up does not":               {"generic", 1, "429 Too Many Requests\n" + strings.Repeat("at frame\n", 8), Crashed, time.Time{}},
		"a limit of the program counts nine lines up":   {"claude-code", 1, until3pm + "\n" + strings.Repeat("hook\n", 8), RateLimit, at3pm},
		"and before a panic of something that it ran":   {"claude-code", 1, until3pm + "\npanic: x", RateLimit, at3pm},
		"a status in the text of an event counts there": {"codex", 1, `{"type":"error","message":"429 Too Many Requests"}` + "\n" + strings.Repeat("hook\n", 9), RateLimit, time.Time{}},

		// Later messages.
		"a status that tests print, long before a limit":   {"claude-code", 1, "ok login_test.go\n401 Unauthorized\nok rest of the suite\nNow I will fix the handler.\n" + until3pm, RateLimit, at3pm},
		"a status that tests print, just before a limit":   {"claude-code", 1, "401 Unauthorized\n" + until3pm, RateLimit, at3pm},
		"one just after a limit":                           {"claude-code", 1, until3pm + "\n401 Unauthorized", RateLimit, at3pm},
		"one long after it":                                {"claude-code", 1, until3pm + "\n" + ordinary + "401 Unauthorized", Terminal, time.Time{}},
		"a header of something else before a limit":        {"claude-code", 1, "< retry-after: 5\nfixed it\nNext I run the suite\n" + until3pm, RateLimit, at3pm},
		"a header beside a status":                         {"generic", 1, "< retry-after: 5\nx\ny\n503 Service Unavailable", RateLimit, in(5 * time.Second)},
		"a header far above a status":                      {"generic", 1, "< retry-after: 5\n" + ordinary + "503 Service Unavailable", Overloaded, time.Time{}},
		"no credits, far above a status":                   {"generic", 1, "Credit balance is too low\n" + ordinary + "429 Too Many Requests", RateLimit, time.Time{}},
		"a quota for the day beside a wait":                {"gemini", 1, "RESOURCE_EXHAUSTED\n\"quotaId\": \"XPerDay\"\nPlease retry in 34.07s", RateLimit, time.Time{}},
		"a quota for the day, far above a wait":            {"gemini", 1, "RESOURCE_EXHAUSTED\n\"quotaId\": \"XPerDay\"\n" + ordinary + "Please retry in 34.07s", RateLimit, in(34070 * time.Millisecond)},
		"a quota for the day by event, far above":          {"gemini", 1, perDay + "\n" + ordinary + `{"error":{"details":[{"retryDelay":"34s"}]}}`, RateLimit, in(34 * time.Second)},
		"a time that stands far above is of another story": {"aider", 1, "litellm.RateLimitError: try again in 5 minutes.\n" + ordinary + "litellm.RateLimitError", RateLimit, time.Time{}},

		// Signs of progress.
		"a rejection, and success in the same list":         {"claude-code", 1, "[" + rejected + "," + success + "]", Crashed, time.Time{}},
		"an error in its text, and success in the list":     {"claude-code", 1, "[" + synthetic + "," + success + "]", Crashed, time.Time{}},
		"success, and a rejection in the same list":         {"claude-code", 1, "[" + success + "," + rejected + "]", RateLimit, at1pm},
		"a rejection, an answer, success, in the list":      {"claude-code", 0, "[" + rejected + "," + answer + "," + success + "]", Completed, time.Time{}},
		"what is paid for extra is in use":                  {"claude-code", 1, overage, Crashed, time.Time{}},
		"the same, and then an answer":                      {"claude-code", 1, overage + "\n" + answer + "\npanic: x", Crashed, time.Time{}},
		"a rejection before that":                           {"claude-code", 1, rejected + "\n" + overage, Crashed, time.Time{}},
		"a rejection, and then an answer":                   {"claude-code", 1, rejected + "\n" + answer, Crashed, time.Time{}},
		"a rejection, and then what a tool says":            {"claude-code", 1, rejected + "\n" + `{"type":"user","message":{"content":[]}}`, Crashed, time.Time{}},
		"an answer, and then a rejection":                   {"claude-code", 1, answer + "\n" + rejected, RateLimit, at1pm},
		"a rejection, an answer, a rejection":               {"claude-code", 1, rejected + "\n" + answer + "\n" + rejected, RateLimit, at1pm},
		"a rejection that the program puts into words":      {"claude-code", 1, rejected + "\n" + synthetic, RateLimit, at1pm},
		"the words, and then an answer":                     {"claude-code", 1, synthetic + "\n" + answer, Crashed, time.Time{}},
		"an answer does not take back what is printed":      {"claude-code", 1, until3pm + "\n" + synthetic + "\n" + answer, RateLimit, at3pm},
		"an error of codex, and then work":                  {"codex", 1, `{"type":"error","message":"You've hit your usage limit."}` + "\n" + `{"type":"item.completed","item":{"type":"agent_message"}}`, Crashed, time.Time{}},
		"an error of codex, and then another":               {"codex", 1, `{"type":"error","message":"You've hit your usage limit."}` + "\n" + `{"type":"item.completed","item":{"type":"error"}}`, RateLimit, time.Time{}},
		"an error of gemini, and then work":                 {"gemini", 1, `{"type":"error","message":"Please retry in 34s"}` + "\n" + `{"type":"tool_use"}`, Crashed, time.Time{}},
		"codex tries again by itself":                       {"codex", 0, "stream error: Rate limit reached. Please try again in 28ms.; retrying 1/5 in 200ms...\nDone.", Completed, time.Time{}},
		"something else that retries, after a limit":        {"claude-code", 1, until3pm + "\nhook: upload failed, retrying in 2s\nhook: uploaded", RateLimit, at3pm},
		"the same on a line of its own":                     {"claude-code", 1, until3pm + "\nupload failed\nRetrying in 2s...\nuploaded", RateLimit, at3pm},
		"a retry that is followed by much":                  {"claude-code", 1, until3pm + "\nRetrying in 2s...\n" + ordinary, Crashed, time.Time{}},
		"a retry by line does not take back an event":       {"claude-code", 1, rejected + "\nRetrying in 2s...\n" + ordinary, RateLimit, at1pm},
		"a retry that says why takes back the limit before": {"claude-code", 1, until3pm + "\n529 Overloaded · Retrying in 4s · attempt 6/10\n", Overloaded, time.Time{}},
	} {
		got := stopOf(t, tc.pack, tc.output, tc.code)
		if got.Reason != tc.want || !got.Until.Equal(tc.until) {
			t.Errorf("%s: exit %d of %s with %q\n got %+v\nwant %s until %v", name, tc.code, tc.pack, tc.output, got, tc.want, tc.until)
		}
	}
}

// A limit that continues after its stated end is reported again with the same time, which is then
// in the past.
func TestAResetThatDoesNotCome(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		output string
		at     time.Time
		until  time.Time
	}{
		"a date that is ahead":                     {"You've hit your weekly limit · resets Nov 15 at 7pm", noon, utc(11, 15, 19, 0, 0)},
		"a date a minute ago is now":               {"You've hit your weekly limit · resets Nov 15 at 7pm", utc(11, 15, 19, 1, 0), utc(11, 15, 19, 0, 0)},
		"a date three minutes ago is not a year":   {"You've hit your weekly limit · resets Nov 15 at 7pm", utc(11, 15, 19, 3, 0), time.Time{}},
		"nor is one of last week":                  {"You've hit your weekly limit · resets Nov 8 at 7pm", noon, time.Time{}},
		"a time of day that passed is not a day":   {"5-hour limit reached · resets 9:34am", utc(11, 15, 9, 36, 54), time.Time{}},
		"a time of day that passed long ago is":    {"5-hour limit reached · resets 9:34am", noon, utc(11, 16, 9, 34, 0)},
		"a weekday that passed is not a week away": {"You've hit your weekly limit · resets Sun 11am", noon, time.Time{}},
	} {
		d := New(builtin(t, "claude-code"), Options{Location: time.UTC, At: tc.at})
		_, _ = d.Stream().Write([]byte(tc.output + "\n"))
		got := d.Stop(1)
		if got.Reason != RateLimit || !got.Until.Equal(tc.until) || got.Until.IsZero() != strings.Contains(got.Note, "in the past") {
			t.Errorf("%s: %q at %v gives %+v, want until %v", name, tc.output, tc.at, got, tc.until)
		}
	}
}

// Every pack recognises limits in plain words, and none reacts to prose about them.
func TestLimitsInPlainWords(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)
	for line, want := range map[string]string{
		"You have hit your usage limit. It resets at 23:58 UTC.":                 "2026-11-15T23:58:00Z",
		"Usage limit reached. Resets at 3pm.":                                    "2026-11-15T15:00:00Z",
		"Rate limit reached, try again at 14:30":                                 "2026-11-15T14:30:00Z",
		"Error 429: quota exceeded, retry after 90 seconds":                      "2026-11-15T12:01:30Z",
		"Quota exhausted until 2026-11-16T03:00:00Z":                             "2026-11-16T03:00:00Z",
		"The quota of the disk is checked until 3pm.":                            "",
		"When the usage limit is reached, the tool waits until it resets at 3pm": "",
		"I changed the rate limit, try again at 14:30":                           "",
		"test that a rate limit is reached and resets at 3pm passes":             "",
		"You have reached the limit of this list at 3pm":                         "",
	} {
		pack, err := Builtin("generic")
		if err != nil {
			t.Fatal(err)
		}
		d := New(pack, Options{At: at, Location: time.UTC})
		_, _ = d.Stream().Write([]byte("working\n" + line + "\n"))
		stop, got := d.Stop(1), ""
		if stop.Reason == RateLimit {
			got = stop.Until.UTC().Format(time.RFC3339)
		}
		if got != want {
			t.Errorf("%q is a limit until %q, want %q", line, got, want)
		}
	}
}

func TestWordsOfALimitThatNoRuleKnows(t *testing.T) {
	t.Parallel()
	crash := Stop{Reason: Crashed}
	for line, want := range map[string]string{
		"sorry, the rate-limit of your plan": NotUnderstood, "come back later, limit reached": NotUnderstood, "quota!": NotUnderstood,
		"segmentation fault": "", "limits of functions": "",
	} {
		if got := crash.Misread([]string{"working", line}); got != want {
			t.Errorf("Misread(%q) = %q, want %q", line, got, want)
		}
	}
	if known := (&Stop{Reason: Crashed, Rule: "other"}).Misread([]string{"quota"}); known != "" {
		t.Errorf("a stop with a rule: %q", known)
	}
}
