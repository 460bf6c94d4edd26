package detect

import (
	"strings"
	"testing"
	"time"
)

// utc returns a time in 2026.
func utc(month time.Month, day, hour, minute, second int) time.Time {
	return time.Date(2026, month, day, hour, minute, second, 0, time.UTC)
}

// in returns the time d after noon.
func in(d time.Duration) time.Time { return noon.Add(d) }

// messages has every format of the research page, with variants.
var messages = []struct {
	pack, output string
	reason       Reason
	until        time.Time
}{
	{"claude-code", `{"type":"rate_limit_event","uuid":"u","status":"rejected","resetsAt":1794747600}`, RateLimit, utc(11, 15, 13, 0, 0)},
	{"claude-code", `{"type":"rate_limit_event","rate_limit_info":{"status":"rejected","resetsAt":1794747600000}}`, RateLimit, utc(11, 15, 13, 0, 0)},
	{"claude-code", `{"type":"rate_limit_event","rate_limit_info":{"status":"rejected"}}`, RateLimit, time.Time{}},
	{"claude-code", `{"type":"result","is_error":true,"result":"You've hit your session limit · resets 4:20pm (Asia/Tbilisi)"}`, RateLimit, utc(11, 15, 12, 20, 0)},
	{"claude-code", `[{"type":"system"},{"type":"result","is_error":true,"result":"Prompt is too long"}]`, ContextFull, time.Time{}},
	{"claude-code", `{"type":"assistant","message":{"model":"<synthetic>","content":[{"type":"text","text":"5-hour limit reached · resets 2am (America/Toronto) · /upgrade to Max 20x"}]}}`, RateLimit, utc(11, 16, 7, 0, 0)},
	{"claude-code", "Claude AI usage limit reached|1794747600", RateLimit, utc(11, 15, 13, 0, 0)},
	{"claude-code", "5-hour limit reached ∙ resets 3am", RateLimit, utc(11, 16, 3, 0, 0)},
	{"claude-code", "5-hour limit reached • resets 3pm", RateLimit, utc(11, 15, 15, 0, 0)},
	{"claude-code", "You’ve hit your session limit · resets 4:20pm (Asia/Tbilisi)", RateLimit, utc(11, 15, 12, 20, 0)},
	{"claude-code", "You've hit your weekly limit · resets Sep 15 at 7pm", RateLimit, time.Time{}}, // a date in the past
	{"claude-code", "You've hit your weekly limit · resets Dec 15 at 7pm", RateLimit, utc(12, 15, 19, 0, 0)},
	{"claude-code", "You've hit your weekly limit · resets Monday", RateLimit, time.Time{}},
	{"claude-code", "You've hit your limit · resets 3pm (UTC)", RateLimit, utc(11, 15, 15, 0, 0)},
	{"claude-code", `{"type":"rate_limit_event","rate_limit_info":{"status":"rejected","resetsAt":"2026-11-15T13:00:00Z"}}`, RateLimit, utc(11, 15, 13, 0, 0)},
	{"claude-code", `{"type":"rate_limit_event","rate_limit_info":{"status":"rejected","resetsAt":1794747600,"overageStatus":"rejected","isUsingOverage":true}}`, RateLimit, utc(11, 15, 13, 0, 0)},
	{"claude-code", "Your limit will reset at 4 PM (UTC).", RateLimit, utc(11, 15, 16, 0, 0)},
	{"claude-code", "Your limit will reset at 4\u202fPM (UTC).", RateLimit, utc(11, 15, 16, 0, 0)},
	{"claude-code", "\x1b[31m⎿ \x1b[1m5-hour limit reached\x1b[0m ∙ resets 3pm\x1b[K", RateLimit, utc(11, 15, 15, 0, 0)},
	{"claude-code", "╭────╮\n│ 5-hour limit reached ∙ resets 3pm   │\n╰────╯", RateLimit, utc(11, 15, 15, 0, 0)},
	{"claude-code", "5-hour limit reached ∙ resets 3pm\n5-hour limit reached ∙ resets 3pm\n", RateLimit, utc(11, 15, 15, 0, 0)},
	{"claude-code", "⠋ Thinking\r⠙ Thinking\r5-hour limit reached ∙ resets 3pm\r\n", RateLimit, utc(11, 15, 15, 0, 0)},
	{"claude-code", "\x1b]0;claude\x07\x1b[2J\x1b[3;1Htitle\x1b[5;1H5-hour limit reached ∙ resets 3pm\x1b[7;1H> ", RateLimit, utc(11, 15, 15, 0, 0)},
	{"claude-code", "Opus weekly limit reached ∙ resets Nov 18, 10am", RateLimit, utc(11, 18, 10, 0, 0)},
	{"claude-code", "5-hour limit reached ∙ resets in 2h", RateLimit, in(2 * time.Hour)},
	{"claude-code", "You're out of extra usage · resets 3pm (America/New_York)", RateLimit, utc(11, 15, 20, 0, 0)},
	{"claude-code", "5-hour limit reached ∙ resets soonish", RateLimit, time.Time{}},
	{"claude-code", "│ 5-hour limit reached ∙ │\n│ resets 3pm             │", RateLimit, utc(11, 15, 15, 0, 0)}, // a narrow screen
	{"claude-code", "\x1b[?25l" + `{"type":"rate_limit_event","status":"rejected","resetsAt":1794747600}` + "\x1b[0m", RateLimit, utc(11, 15, 13, 0, 0)},
	{"claude-code", `data: {"type":"rate_limit_event","status":"rejected","resetsAt":1794747600}`, RateLimit, utc(11, 15, 13, 0, 0)},
	{"claude-code", "Prompt is too long", ContextFull, time.Time{}},
	{"claude-code", "Context limit reached · /compact or /clear to continue", ContextFull, time.Time{}},
	{"claude-code", "Credit balance is too low", Terminal, time.Time{}},
	{"claude-code", "Invalid API key · Please run /login", Terminal, time.Time{}},
	{"claude-code", `API Error: 529 {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`, Overloaded, time.Time{}},
	{"codex", `{"type":"usage_limit_reached","plan_type":"plus","resets_at":1794747600,"resets_in_seconds":529498}`, RateLimit, utc(11, 15, 13, 0, 0)},
	{"codex", `{"error":{"type":"usage_limit_reached","resets_in_seconds":529498}}`, RateLimit, in(529498 * time.Second)},
	{"codex", `stream error: {"error":{"type":"usage_limit_reached","resets_at":1794747600,"resets_in_seconds":1}}`, RateLimit, utc(11, 15, 13, 0, 0)},
	{"codex", `{"type":"turn.failed","error":{"message":"You've hit your usage limit. Try again in 2 days 17 hours 14 minutes."}}`, RateLimit, in(65*time.Hour + 14*time.Minute)},
	{"codex", "You've hit your usage limit. Upgrade to Pro or try again in 2 days 17 hours 14 minutes.", RateLimit, in(65*time.Hour + 14*time.Minute)},
	{"codex", "You've hit your usage limit. Upgrade to Pro (https://x) or try\nagain in 2 days 17 hours 14 minutes.", RateLimit, in(65*time.Hour + 14*time.Minute)},
	{"codex", "Error: Codex error: {\"type\":\"error\",\"error\":{\"type\":\"usage_limit_reached\",\"message\":\"The usage limit has been\n reached\",\"resets_at\":1794747600}}", RateLimit, utc(11, 15, 13, 0, 0)},
	{"codex", "■ You've hit your usage limit. Upgrade to Pro or try again at 3:07 PM.", RateLimit, utc(11, 15, 15, 7, 0)},
	{"codex", "ERROR: You've hit your usage limit. Try again at Nov 20th, 2026 11:52\u202fAM.", RateLimit, utc(11, 20, 11, 52, 0)},
	{"codex", "You've hit your usage limit. Try again at Jul 10th, 2026 11:52 AM.", RateLimit, time.Time{}}, // a date in the past
	{"codex", "You've hit your usage limit. Try again later.", RateLimit, time.Time{}},
	{"codex", "Your workspace is out of credits. Ask your owner.", Terminal, time.Time{}},
	{"codex", "You've hit your spend cap.", Terminal, time.Time{}},
	{"codex", "Please try again in 11.054s", RateLimit, in(11054 * time.Millisecond)},
	{"codex", "stream error: Rate limit reached for gpt-5 in organization org-x on tokens per min (TPM): Limit 30000. Please try again in 28ms. Visit https://x.", RateLimit, in(28 * time.Millisecond)},
	{"codex", "Please try again in 35 seconds", RateLimit, in(35 * time.Second)},
	{"gemini", "Please retry in 34.07s", RateLimit, in(34070 * time.Millisecond)},
	{"gemini", "  {\n    \"@type\": \"RetryInfo\",\n    \"retryDelay\":\"34s\"\n  }\n", RateLimit, in(34 * time.Second)},
	{"gemini", `{"error":{"code":429,"details":[{"retryDelay":"34s"}]}}`, RateLimit, in(34 * time.Second)},
	{"gemini", "✕ [API Error: You have exhausted your capacity on this model. Your quota will reset after 19h14m47s.]", RateLimit, in(19*time.Hour + 14*time.Minute + 47*time.Second)},
	{"gemini", `"message": "Your quota will reset after 19h14m47s.",`, RateLimit, in(19*time.Hour + 14*time.Minute + 47*time.Second)},
	{"gemini", "Access resets at 3:14 PM PDT.", RateLimit, utc(11, 15, 22, 14, 0)},
	{"gemini", `[API Error: {"error":{"code":429,"details":[{"violations":[{"quotaId": "GenerateRequestsPerMinutePerProjectPerModel"}]}]}}]`, RateLimit, in(time.Minute)},
	{"gemini", "\"@type\": \"type.googleapis.com/google.rpc.QuotaFailure\",\n\"violations\": [\n{\n\"quotaId\": \"GenerateRequestsPerMinutePerProjectPerModel\"\n}\n]", RateLimit, in(time.Minute)},
	{"gemini", "\"status\": \"RESOURCE_EXHAUSTED\"\n\"quotaId\": \"GenerateRequestsPerDayPerProjectPerModel-FreeTier\",\n\"retryDelay\": \"34s\"", RateLimit, time.Time{}},
	{"opencode", "limit will reset at 2026-11-15 20:30:24", RateLimit, utc(11, 15, 20, 30, 24)},
	{"opencode", "Usage limit reached. It will reset in 2 days 3 hours", RateLimit, in(51 * time.Hour)},
	{"opencode", "Free usage exceeded", RateLimit, time.Time{}},
	{"aider", "litellm.RateLimitError: OpenAIException - Rate limit reached. Please try again in 11.75s.", RateLimit, in(11750 * time.Millisecond)},
	{"aider", "litellm.RateLimitError", RateLimit, time.Time{}},
	{"generic", "retry after 3600s", RateLimit, in(time.Hour)},
	{"generic", "retry after 30", RateLimit, in(30 * time.Second)},
	{"generic", "try again in 1m30s", RateLimit, in(90 * time.Second)},
	{"generic", "Retry-After: 120", RateLimit, in(2 * time.Minute)},
	{"generic", "< retry-after: Sun, 15 Nov 2026 13:00:00 GMT\r\n", RateLimit, utc(11, 15, 13, 0, 0)},
	{"generic", "retry-after-ms: 1500\nHTTP 429 Too Many Requests", RateLimit, in(1500 * time.Millisecond)},
	{"generic", "retry after 99999999999999999999s", RateLimit, time.Time{}},
	{"generic", "503 Service Unavailable", Overloaded, time.Time{}},
}

func TestEveryMessageIsUnderstood(t *testing.T) {
	t.Parallel()
	for _, tc := range messages {
		got := stopOf(t, tc.pack, "Working on it.\n"+tc.output, 1)
		if got.Reason != tc.reason || !got.Until.Equal(tc.until) {
			t.Errorf("%s: %q\n got %s until %v, want %s until %v; %+v", tc.pack, tc.output, got.Reason, got.Until, tc.reason, tc.until, got)
		}
	}
}

func TestTerminalMeansNever(t *testing.T) {
	t.Parallel()
	for output, pack := range map[string]string{
		`"code": 429,` + "\n" + `"quotaId": "GenerateRequestsPerDayPerProject"` + "\n" + `"retryDelay": "34s"`: "gemini",
		"workspace is out of credits": "codex", "hit your spend cap": "codex", "Credit balance is too low": "claude-code",
	} {
		if got := stopOf(t, pack, output, 1); !got.Terminal || !got.Until.IsZero() {
			t.Errorf("%q: %+v, want terminal", output, got)
		}
	}
}

func TestDecoysAreLeftAlone(t *testing.T) {
	t.Parallel()
	for _, output := range []string{
		"error on line 429",
		"main.go:429: undefined: x",
		"HTTP 429 is documented in RFC 6585",
		"I implemented the rate limit handler; it now resets at 3pm in tests",
		"The test prints 5-hour limit reached ∙ resets 3am and passes.",
		"- `You've hit your usage limit. Try again at 3:07 PM.` is matched by the new rule",
		"+	{\"claude-code\", \"5-hour limit reached ∙ resets 3am\", RateLimit},",
		"-	return errors.New(\"too many requests\")",
		"if strings.Contains(line, \"rate limit exceeded\") { return Wait }",
		"	// Retry-After: 120 means two minutes",
		"the header Retry-After: 120 is honoured",
		"| `Retry-After: 120` | seconds |",
		"Clients that see too many requests should retry after 30 seconds, says the page.",
		"The prompt is too long in the fixture, so I shortened it.",
		"Context window exceeded errors are now handled in compact.go.",
		"Unauthorized requests now get a 401.",
		"Authentication required for admin routes is implemented.",
		"The overloaded constructor takes two arguments.",
		"Rate limit reached for the test user as expected",
		"Rate limit exceeded errors are retried; see the docs.",
		"Your limit will reset at 4 PM, says the banner in the mock.",
		"Done. The client honours Retry-After and waits until the limit resets at 3pm.",
		`{"type":"rate_limit_event","rate_limit_info":{"status":"allowed","resetsAt":1794747600}}`,
		`{"type":"rate_limit_event","rate_limit_info":{"status":"allowed_warning","resetsAt":1794747600}}`,
		`{"type":"user","message":{"content":[{"type":"tool_result","content":"5-hour limit reached ∙ resets 3am"}]}}`,
		`{"type":"assistant","message":{"model":"opus","content":[{"type":"text","text":"5-hour limit reached ∙ resets 3am"}]}}`,
		"Approaching usage limit · resets at 7pm",
		"The rate limit resets every minute.",
		"limit resets after the window",
		"Weekly usage resets Monday",
		"Current session usage resets 3pm",
		"Opus limit resets Nov 20, 9am",
		"-5-hour limit reached · resets 3am",
		"+5-hour limit reached · resets 3am",
		"- 5-hour limit reached · resets 3am",
		"• 5-hour limit reached · resets 3am",
		"> 5-hour limit reached · resets 3am",
		"Tests cover limit reached resets properly",
		"You've hit your usage limit handling code on the head.",
		"• 429 Too Many Requests",
		"• Wait for 10 seconds. Then rerun the tests.",
		"Wait for 30s before checking the pod",
		"    retryDelay: '5s', // between two tries",
		`  "retryDelay": "5s",`,
		`"quotaId": "GenerateRequestsPerDayPerProject"`,
		`{"type":"tool_use","parameters":{"config":{"retryDelay":"5s"}}}`,
		`{"type":"tool_use","parameters":{"quotaId":"XPerDay"}}`,
		`{"type":"item.completed","item":{"type":"mcp_tool_call","result":{"type":"usage_limit_reached"}}}`,
		`{"type":"result","is_error":false,"result":"429 Too Many Requests"}`,
		`{"type":"result","is_error":false,"result":"The server answers with\nRetry-After: 120"}`,
		`{"type":"result","is_error":false,"result":"5-hour limit reached · resets 3pm"}`,
		`[{"type":"system"},{"type":"result","is_error":false,"result":"Credit balance is too low"}]`,
		`const event = {"type":"rate_limit_event","status":"rejected","resetsAt":1794747600}`,
		`{"type":"rate_limit_event","status":"rejected","resetsAt":1794747600`, // no end
	} {
		for _, pack := range Names() {
			for code, want := range map[int]Reason{0: Completed, 1: Crashed, -1: Unknown} {
				if got := stopOf(t, pack, output+"\n", code); got.Reason != want {
					t.Errorf("%s, exit %d: %q is taken for %+v", pack, code, output, got)
				}
			}
		}
	}
}

func TestOnlyTheLastLinesCount(t *testing.T) {
	t.Parallel()
	limit := "5-hour limit reached ∙ resets 3pm\n"
	event := `{"type":"rate_limit_event","status":"rejected","resetsAt":1794747600}` + "\n"
	for name, tc := range map[string]struct {
		output string
		want   Reason
	}{
		"text among the last 20 lines":                 {limit + strings.Repeat("more\n", 19), RateLimit},
		"text before them":                             {limit + strings.Repeat("more\n", 20), Crashed},
		"blank lines and borders do not count":         {limit + strings.Repeat("\n \n╭───╮\n\x1b[K\n", 50), RateLimit},
		"an event with 20 lines after it":              {event + strings.Repeat("more\n", 20), RateLimit},
		"an event with more":                           {event + strings.Repeat("more\n", 21), Crashed},
		"an event that a later one takes back":         {event + `{"type":"rate_limit_event","status":"allowed"}`, Crashed},
		"an event before success":                      {event + `{"type":"result","is_error":false,"result":"Done."}`, Crashed},
		"an event after success":                       {`{"type":"result","is_error":false,"result":"Done."}` + "\n" + event, RateLimit},
		"a limit that the program then waits for":      {limit + "Retrying in 4s · attempt 1/10\n" + strings.Repeat("more\n", 6), Crashed},
		"a program that ends while it retries":         {"429 Too Many Requests\nRetrying in 4s · attempt 10/10\n", RateLimit},
		"an overload that it is still retrying":        {"529 Overloaded · Retrying in 4s · attempt 6/10\n", Overloaded},
		"the same long before the end":                 {"529 Overloaded · Retrying in 4s · attempt 6/10\n" + strings.Repeat("more\n", 6), Crashed},
		"a limit after retries":                        {"529 Overloaded · Retrying in 4s · attempt 6/10\n" + limit, RateLimit},
		"an event is trusted more than a later line":   {event + "Prompt is too long\n", RateLimit},
		"a header is trusted more than a later line":   {"Retry-After: 120\n503 Service Unavailable\n", RateLimit},
		"of two lines the later one":                   {limit + "Prompt is too long\n", ContextFull},
		"never is stronger than a later 429":           {"Credit balance is too low\n429 Too Many Requests\n", Terminal},
		"but not than a limit that is the program's":   {"Incorrect API key provided\n" + limit, RateLimit},
		"prose in the middle of the transcript":        {limit + strings.Repeat("and so on\n", 500), Crashed},
		"a title that does not end keeps the message":  {"\x1b]0;title " + "\x1b[m\n" + limit, RateLimit},
		"a spinner of megabytes, and then the message": {strings.Repeat("\r⠋ Thinking", 1<<17) + "\r" + limit, RateLimit},
	} {
		if got := stopOf(t, "claude-code", tc.output, 1); got.Reason != tc.want {
			t.Errorf("%s: %+v, want %s", name, got, tc.want)
		}
	}
}

func TestAliveIsNoStop(t *testing.T) {
	t.Parallel()
	for code, want := range map[int]Reason{0: Completed, 130: UserExit, -1: Unknown, 1: Overloaded} {
		got := stopOf(t, "claude-code", "529 Overloaded · Retrying in 4s · attempt 6/10", code)
		if got.Reason != want || !got.Until.IsZero() {
			t.Errorf("exit %d: %+v, want %s without a time", code, got, want)
		}
	}
}

func TestATimeMayStandOnAnotherLine(t *testing.T) {
	t.Parallel()
	got := stopOf(t, "generic", "try again in 35 seconds\n429 Too Many Requests\n", 1)
	if !got.Until.Equal(in(35*time.Second)) || got.Line != "429 Too Many Requests" || got.Number != 2 {
		t.Errorf("%+v, want 35 seconds and line 2", got)
	}
}

func TestExitCodes(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		pack string
		code int
		want Reason
	}{
		{"generic", 0, Completed}, {"generic", 1, Crashed}, {"generic", 129, UserExit}, {"generic", 130, UserExit},
		{"generic", 143, UserExit}, {"generic", 137, Crashed}, {"generic", -1, Unknown},
		{"gemini", 41, Terminal}, {"gemini", 53, Crashed}, {"gemini", 130, UserExit}, {"claude-code", 41, Crashed},
	} {
		d := New(builtin(t, tc.pack), Options{})
		if got := d.Stop(tc.code); got.Reason != tc.want || got.Terminal != (tc.want == Terminal) || got.Trust != ByExit {
			t.Errorf("%s: Stop(%d) = %+v, want %s", tc.pack, tc.code, got, tc.want)
		}
	}
}
