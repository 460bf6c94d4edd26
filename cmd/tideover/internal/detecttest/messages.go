// Package detecttest has the messages that current assistants print, with their meanings. They are
// for the tests of the packages that parse them, and for the table in the documentation.
package detecttest

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"time"
)

// Now is when the messages of [Messages] were written.
var Now = time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)

// Message is what an assistant prints before it ends.
type Message struct {
	Tool   string // name of the program that prints the message
	Pack   string // detection pack of the tool
	Text   string
	Reason string // why the tool stopped, with exit code 1
	Zero   string // why it stopped, with exit code 0; "" means Reason
	Final  bool   // waiting does not help
	Until  until  // when the limit ends; nil if that is not stated
}

// until returns when a limit ends, given the time and the time zone in which its message is
// printed. It returns zero if the stated end is already over at that time.
type until func(at time.Time, zone *time.Location) time.Time

// ReasonAt returns why the tool stopped, given its exit code.
func (m *Message) ReasonAt(code int) string {
	if code == 0 && m.Zero != "" {
		return m.Zero
	}
	return m.Reason
}

// UntilFrom returns when the limit ends if the message is printed at the time at, given the exit code
// and the zone of the machine. It returns zero if the end is not stated, or if the tool did not stop
// because of a limit.
func (m *Message) UntilFrom(at time.Time, code int, zone *time.Location) time.Time {
	if m.Until == nil || m.ReasonAt(code) != "rate-limit" {
		return time.Time{}
	}
	return m.Until(at, zone)
}

// The results of [Message.FollowsFrom]: what a session does after a stop.
const (
	Completes     = "is completed"
	GivesUp       = "gives up at once"
	GivesUpTooFar = "gives up: the end is farther away than server-wait"
	WaitsUntil    = "waits until then plus 90 s; resumes"
	WaitsAtLeast  = "waits as the policy says, at least until then; resumes"
	Waits         = "waits as the policy says; resumes"
	Probes        = "probes the limit after 5 minutes; resumes"
	StartsAnew    = "waits as the policy says; starts a new session"
)

// FollowsFrom returns what a session with the default policy does if the message is printed at the
// time at.
func (m *Message) FollowsFrom(at time.Time, code int, zone *time.Location) string {
	left := m.UntilFrom(at, code, zone).Sub(at)
	switch {
	case m.ReasonAt(code) == "completed":
		return Completes
	case m.Final:
		return GivesUp
	case m.ReasonAt(code) == "context-full":
		return StartsAnew
	case left <= 0 && m.ReasonAt(code) == "rate-limit":
		return Probes
	case left <= 0:
		return Waits
	case left <= time.Minute:
		return WaitsAtLeast
	case left > 8*24*time.Hour:
		return GivesUpTooFar
	default:
		return WaitsUntil
	}
}

// in returns the end of a limit that is stated as a duration.
func in(d time.Duration) until {
	return func(at time.Time, _ *time.Location) time.Time { return at.Add(d) }
}

// calendar shifts the dates in messages by whole days and the times of day by whole hours, so that messages that are
// written later than [Now] do not state ends in the past.
type calendar struct{ days, hours int }

func calendarAt(now time.Time) calendar {
	later := now.Sub(Now)
	return calendar{int(math.Ceil(later.Hours() / 24)), int(math.Ceil(later.Hours()))}
}

// stated is the end of a limit as a message states it.
type stated struct {
	time.Time // date and time of day to print in the message
	until
}

// utc returns an end that a message states as a date and time in UTC.
func (c calendar) utc(month time.Month, day, hour, minute, second int) stated {
	t := time.Date(2026, month, day+c.days, hour, minute, second, 0, time.UTC)
	return stated{t, func(time.Time, *time.Location) time.Time { return t }}
}

// local returns an end that a message states as a date and time in the zone of the machine.
func (c calendar) local(month time.Month, day, hour, minute, second int) stated {
	return stated{time.Date(2026, month, day+c.days, hour, minute, second, 0, time.UTC), func(_ time.Time, zone *time.Location) time.Time {
		return time.Date(2026, month, day+c.days, hour, minute, second, 0, zone)
	}}
}

// daily returns an end that a message states as a time of day in a zone; nil means the zone of the
// machine. The limit ends at the next such time. If the time has passed within the last hour, the
// limit is over.
func (c calendar) daily(hour, minute int, where *time.Location) stated {
	hour = ((hour+c.hours)%24 + 24) % 24
	return stated{time.Date(2026, 11, 15, hour, minute, 0, 0, time.UTC), func(at time.Time, zone *time.Location) time.Time {
		return nextDaily(at.In(cmp.Or(where, zone)), hour, minute, time.Hour)
	}}
}

// nextDaily returns the next time of day hour:minute after at, in the zone of at. It returns zero if the last one was at
// most recent ago.
func nextDaily(at time.Time, hour, minute int, recent time.Duration) time.Time {
	t := time.Date(at.Year(), at.Month(), at.Day(), hour, minute, 0, 0, at.Location())
	switch passed := at.Sub(t); {
	case passed <= 0:
		return t
	case passed <= recent:
		return time.Time{}
	default:
		return time.Date(at.Year(), at.Month(), at.Day()+1, hour, minute, 0, 0, at.Location())
	}
}

// midnightInCalifornia returns when a daily quota of Gemini resets: at midnight Pacific time.
func midnightInCalifornia(at time.Time, _ *time.Location) time.Time {
	return nextDaily(at.In(place("America/Los_Angeles")), 0, 0, 0)
}

// place returns the time zone with that name.
func place(name string) *time.Location {
	zone, err := time.LoadLocation(name)
	if err != nil {
		panic(err)
	}
	return zone
}

// ordinal returns the day of the month with its ending, such as 20th.
func ordinal(day int) string {
	ending := "th"
	if day/10 != 1 && day%10 >= 1 && day%10 <= 3 {
		ending = []string{"st", "nd", "rd"}[day%10-1]
	}
	return strconv.Itoa(day) + ending
}

const copilotLimit = "Sorry, you've hit a rate limit that restricts the number of Copilot model requests you can make within a specific time period. "

// Messages are all known messages as they are written at [Now], in the order of the documentation.
var Messages = MessagesAt(Now)

// MessagesAt returns the messages as they are written at a time. Dates and times of day in them are after that time. A
// date is less than a day farther away than in [Messages], a time of day less than an hour.
func MessagesAt(now time.Time) []Message {
	c := calendarAt(now)
	var (
		reset     = c.utc(11, 15, 13, 0, 0)
		night     = c.daily(3, 0, nil)
		tbilisi   = c.daily(16, 20, place("Asia/Tbilisi"))
		inUTC     = c.daily(16, 0, time.UTC)
		pacific   = c.daily(15, 14, time.FixedZone("PDT", -7*60*60))
		afternoon = c.daily(15, 7, nil)
		weekly    = c.local(11, 20, 19, 0, 0)
		noon      = c.local(11, 20, 11, 52, 0)
		early     = c.local(11, 20, 2, 0, 0)
		monthly   = c.local(11, 20, 0, 0, 0)
		tooFar    = c.local(12, 2, 0, 0, 0)
		tomorrow  = c.local(11, 16, 20, 30, 24)
	)
	return []Message{
		{Tool: "Claude Code", Pack: "claude-code", Reason: "rate-limit", Until: reset.until,
			Text: fmt.Sprintf(`{"type":"rate_limit_event","rate_limit_info":{"status":"rejected","resetsAt":%d}}`, reset.Unix())},
		{Tool: "Claude Code", Pack: "claude-code", Reason: "rate-limit", Until: reset.until, Text: fmt.Sprintf("Claude AI usage limit reached|%d", reset.Unix())},
		{Tool: "Claude Code", Pack: "claude-code", Reason: "rate-limit", Until: night.until, Text: "5-hour limit reached ∙ resets " + night.Format("3pm")},
		{Tool: "Claude Code", Pack: "claude-code", Reason: "rate-limit", Until: tbilisi.until, Text: "You've hit your session limit · resets " + tbilisi.Format("3:04pm") + " (Asia/Tbilisi)"},
		{Tool: "Claude Code", Pack: "claude-code", Reason: "rate-limit", Until: weekly.until, Text: "You've hit your weekly limit · resets " + weekly.Format("Jan 2 at 3pm")},
		{Tool: "Claude Code", Pack: "claude-code", Reason: "rate-limit", Until: inUTC.until, Text: "Your limit will reset at " + inUTC.Format("3 PM (UTC).")},
		{Tool: "Claude Code", Pack: "claude-code", Reason: "rate-limit", Until: inUTC.until, Text: "drawn on the whole screen\x1b[?1049lYour limit will reset at " + inUTC.Format("3 PM (UTC).")},
		{Tool: "Claude Code", Pack: "claude-code", Reason: "rate-limit", Text: "You've reached your Fable 5 limit. Run /usage-credits to continue or switch models with /model"},
		{Tool: "Claude Code", Pack: "claude-code", Reason: "rate-limit", Text: "API Error: Rate limit reached"},
		{Tool: "Claude Code", Pack: "claude-code", Reason: "overloaded", Text: "API Error: Server is temporarily limiting requests (not your usage limit)"},
		{Tool: "Claude Code", Pack: "claude-code", Reason: "overloaded", Text: `API Error: 529 {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`},
		{Tool: "Claude Code", Pack: "claude-code", Reason: "overloaded", Text: "529 Overloaded"},
		{Tool: "Claude Code", Pack: "claude-code", Reason: "overloaded", Zero: "completed", Text: "529 Overloaded · Retrying in 4s · attempt 6/10"},
		{Tool: "Claude Code", Pack: "claude-code", Reason: "terminal", Final: true, Text: "Credit balance is too low"},
		{Tool: "Claude Code", Pack: "claude-code", Reason: "terminal", Final: true, Text: "Invalid API key"},
		{Tool: "Claude Code", Pack: "claude-code", Reason: "terminal", Final: true, Text: "Invalid API key · Fix external API key"},
		{Tool: "Claude Code", Pack: "claude-code", Reason: "context-full", Text: "Prompt is too long"},
		{Tool: "Claude Code", Pack: "claude-code", Reason: "rate-limit", Until: tbilisi.until,
			Text: `{"type":"result","subtype":"success","is_error":true,"result":"You've hit your session limit · resets ` + tbilisi.Format("3:04pm") + ` (Asia/Tbilisi)"}`},
		{Tool: "Claude Code", Pack: "claude-code", Reason: "rate-limit", Text: `{"type":"result","subtype":"success","is_error":true,"terminal_reason":"blocking_limit","result":"Stopped."}`},
		{Tool: "Claude Code", Pack: "claude-code", Reason: "crashed", Text: `{"type":"result","subtype":"error_during_execution","is_error":true,"errors":["Something broke."]}`},

		{Tool: "Codex", Pack: "codex", Reason: "rate-limit", Until: reset.until,
			Text: fmt.Sprintf(`{"error":{"type":"usage_limit_reached","message":"The usage limit has been reached","resets_at":%d,"resets_in_seconds":3600}}`, reset.Unix())},
		{Tool: "Codex", Pack: "codex", Reason: "rate-limit", Until: in(65*time.Hour + 14*time.Minute),
			Text: "You've hit your usage limit. Upgrade to Pro (https://openai.com/chatgpt/pricing) or try again in 2 days 17 hours 14 minutes."},
		{Tool: "Codex", Pack: "codex", Reason: "rate-limit", Until: afternoon.until, Text: "You've hit your usage limit. Upgrade to Pro or try again at " + afternoon.Format("3:04 PM.")},
		{Tool: "Codex", Pack: "codex", Reason: "rate-limit", Until: noon.until, Text: "You've hit your usage limit. Try again at " + noon.Format("Jan ") + ordinal(noon.Day()) + noon.Format(", 2006 3:04 PM.")},
		{Tool: "Codex", Pack: "codex", Reason: "rate-limit", Text: "You've hit your usage limit. Try again later."},
		{Tool: "Codex", Pack: "codex", Reason: "terminal", Final: true, Text: "Your workspace is out of credits. Ask your workspace owner to refill."},
		{Tool: "Codex", Pack: "codex", Reason: "terminal", Final: true, Text: "You've hit your spend cap. Increase it to continue."},
		{Tool: "Codex", Pack: "codex", Reason: "terminal", Final: true, Text: "You hit your spend cap set in your workspace. Increase your spend cap to continue."},
		{Tool: "Codex", Pack: "codex", Reason: "overloaded", Text: "exceeded retry limit, last status: 429 Too Many Requests, request id: 9a2f31c07b1d4e55-FRA"},
		{Tool: "Codex", Pack: "codex", Reason: "crashed", Zero: "completed", Text: `{"type":"thread.started","thread_id":"0199a213-81c0-7800-8aa1-bbab2a035a53"}`},
		{Tool: "Codex", Pack: "codex", Reason: "crashed", Text: `{"type":"turn.failed","error":{"message":"Something broke."}}`},

		{Tool: "OpenAI API", Pack: "codex", Reason: "rate-limit", Until: in(11054 * time.Millisecond), Text: "Rate limit reached for gpt-5 on tokens per min (TPM): Limit 30000. Please try again in 11.054s."},
		{Tool: "OpenAI API", Pack: "codex", Reason: "rate-limit", Until: in(28 * time.Millisecond), Text: "Please try again in 28ms"},
		{Tool: "OpenAI API", Pack: "codex", Reason: "rate-limit", Until: in(35 * time.Second), Text: "Please try again in 35 seconds"},

		{Tool: "Gemini CLI", Pack: "gemini", Reason: "rate-limit", Until: in(34070 * time.Millisecond), Text: "Please retry in 34.07s"},
		{Tool: "Gemini CLI", Pack: "gemini", Reason: "rate-limit", Until: in(34 * time.Second), Text: `"retryDelay": "34s"`},
		{Tool: "Gemini CLI", Pack: "gemini", Reason: "rate-limit", Until: in(34 * time.Second), Text: `{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","details":[{"retryDelay":"34s"}]}}`},
		{Tool: "Gemini CLI", Pack: "gemini", Reason: "rate-limit", Until: in(19*time.Hour + 14*time.Minute + 47*time.Second), Text: "[API Error: You have exhausted your capacity on this model. Your quota will reset after 19h14m47s.]"},
		{Tool: "Gemini CLI", Pack: "gemini", Reason: "rate-limit", Until: pacific.until, Text: "Access resets at " + pacific.Format("3:04 PM") + " PDT."},
		{Tool: "Gemini CLI", Pack: "gemini", Reason: "rate-limit", Until: midnightInCalifornia, Text: "[API Error: You have exhausted your daily quota on this model.]"},
		{Tool: "Gemini CLI", Pack: "gemini", Reason: "overloaded", Text: `[API Error: {"error":{"code":429,"message":"Resource has been exhausted (e.g. check quota).","status":"RESOURCE_EXHAUSTED"}}]`},
		{Tool: "Gemini CLI", Pack: "gemini", Reason: "rate-limit", Final: true, Text: `{"error":{"code":429,"details":[{"violations":[{"quotaId":"GenerateRequestsPerDayPerProjectPerModel-FreeTier"}]}]}}`},
		{Tool: "Gemini CLI", Pack: "gemini", Reason: "rate-limit", Until: in(time.Minute), Text: `{"error":{"code":429,"details":[{"violations":[{"quotaId":"GenerateRequestsPerMinutePerProjectPerModel"}]}]}}`},

		{Tool: "Antigravity CLI", Pack: "agy", Reason: "rate-limit", Until: in(108*time.Hour + 48*time.Minute),
			Text: `{ "error": { "code": 429, "message": "Individual quota reached. Contact your administrator. Resets in 108h48m9s.", "status": "RESOURCE_EXHAUSTED", "details": [{ "retryDelay": "391680s" }] } }`},
		{Tool: "Antigravity CLI", Pack: "agy", Reason: "rate-limit", Until: in(143*time.Hour + 32*time.Minute + 18*time.Second),
			Text: "Individual quota reached. Contact your administrator to enable overages. Resets in 143h32m18s."},

		{Tool: "Copilot CLI", Pack: "copilot-cli", Reason: "rate-limit", Until: in(58 * time.Hour), Text: copilotLimit + "Please try again in 58 hours. Please review our Terms of Service."},
		{Tool: "Copilot CLI", Pack: "copilot-cli", Reason: "rate-limit", Until: early.until,
			Text: "You've reached your weekly rate limit. Please wait for your limit to reset on " + early.Format("January 2, 2006 at 3:04 PM") + " or switch to auto model to continue."},
		{Tool: "Copilot CLI", Pack: "copilot-cli", Reason: "rate-limit", Text: `{"type":"session.error","data":{"errorType":"rate_limit","message":"Slow down."}}`},
		{Tool: "Copilot CLI", Pack: "copilot-cli", Reason: "rate-limit", Until: in(2733 * time.Second), Text: "Sorry, you've exceeded your 5 hour session limits. Please retry after 2733 seconds. (user_global_rate_limited:pro)"},

		{Tool: "Cursor", Pack: "cursor-agent", Reason: "rate-limit", Until: monthly.until,
			Text: "Error: You've hit your usage limit. Get Cursor Pro for more Agent usage. Your usage limits will reset when your monthly cycle ends on " + monthly.Format("1/2/2006")},
		{Tool: "Cursor", Pack: "cursor-agent", Reason: "rate-limit", Until: tooFar.until,
			Text: "Error: You've hit your usage limit. Get Cursor Pro for more Agent usage. Your usage limits will reset when your monthly cycle ends on " + tooFar.Format("1/2/2006")},
		{Tool: "Cursor", Pack: "cursor-agent", Reason: "rate-limit", Text: "Error: You've hit your usage limit"},

		{Tool: "Cursor", Pack: "cursor-agent", Reason: "rate-limit", Until: monthly.until,
			Text: "Error: You've hit your usage limit\n  Get Cursor Pro for more Agent usage, unlimited Tab, and more.\nspendLimitHit: false\n" +
				"chatMessage: *You've hit your free requests limit. [Upgrade to\nPro](https://cursor.com) for more usage,\nand more. Your usage limits will reset when your monthly cycle ends on " + monthly.Format("1/2/2006") + ".*\nspendLimits: [50,100,200]"},

		{Tool: "opencode", Pack: "opencode", Reason: "rate-limit", Zero: "completed", Text: "[retrying in 2m 22s attempt #8]"},
		{Tool: "opencode", Pack: "opencode", Reason: "rate-limit", Until: tomorrow.until, Text: "Usage limit reached for 5 hour. Your limit will reset at " + tomorrow.Format(time.DateTime)},
		{Tool: "opencode", Pack: "opencode", Reason: "rate-limit", Until: tomorrow.until, Text: "Your limit will reset at " + tomorrow.Format(time.DateTime) + " [retrying in 2m 22s #8]"},
		{Tool: "opencode", Pack: "opencode", Reason: "rate-limit", Until: in(51 * time.Hour), Text: "Weekly usage limit reached. It will reset in 2 days 3 hours"},
		{Tool: "opencode", Pack: "opencode", Reason: "rate-limit", Text: "Free usage exceeded"},

		{Tool: "aider", Pack: "aider", Reason: "rate-limit", Text: "litellm.RateLimitError"},
		{Tool: "aider", Pack: "aider", Reason: "rate-limit", Zero: "completed", Text: "litellm.RateLimitError: RateLimitError: OpenAIException\nRetrying in 0.2 seconds..."},

		{Tool: "any program", Pack: "generic", Reason: "rate-limit", Zero: "completed", Until: in(time.Hour), Text: "retry after 3600s"},
		{Tool: "any program", Pack: "generic", Reason: "rate-limit", Zero: "completed", Until: in(2 * time.Minute), Text: "Retry-After: 120"},
		{Tool: "any program", Pack: "generic", Reason: "rate-limit", Zero: "completed", Text: "429 Too Many Requests"},
	}
}

// Decoy is output that contains the words of a message but is not one.
type Decoy struct {
	Pack, Text string
	Zero       bool // it is recognised as a decoy only with exit code 0
}

// Decoys are outputs that must not be detected as limits or other failures.
var Decoys = []Decoy{
	{Pack: "claude-code", Text: "The client now shows API Error: Rate limit reached as a banner."},
	{Pack: "claude-code", Text: "I handle \"API Error: Rate limit reached\", 529 Overloaded and Credit balance is too low."},
	{Pack: "claude-code", Text: "- API Error: Rate limit reached\n- Credit balance is too low\n- Invalid API key"},
	{Pack: "claude-code", Text: "> API Error: Rate limit reached"},
	{Pack: "claude-code", Text: "`Invalid API key`"},
	{Pack: "claude-code", Text: "\"Credit balance is too low\""},
	{Pack: "claude-code", Text: "\treturn errors.New(\"API Error: Rate limit reached\")"},
	{Pack: "claude-code", Text: "log.txt:12: API Error: Rate limit reached"},
	{Pack: "claude-code", Text: "529 tests passed"},
	{Pack: "claude-code", Text: "529 Overloaded responses are retried now."},
	{Pack: "claude-code", Text: "Invalid API key errors are tested, too."},
	{Pack: "claude-code", Text: "Credit balance is too low to pay for the order in the fixture, so I raised it.", Zero: true},
	{Pack: "claude-code", Text: "The log of the failed run:\nAPI Error: Rate limit reached", Zero: true},
	{Pack: "claude-code", Text: "The log has this line:\n```\nAPI Error: Rate limit reached\n```", Zero: true},
	{Pack: "claude-code", Text: "```text\nCredit balance is too low\n```\nis what users see.", Zero: true},
	{Pack: "claude-code", Text: "The file ends with\n\n    Invalid API key\n", Zero: true},
	{Pack: "claude-code", Text: "API Error: Rate limit reached\nis the line that I added to the tests.", Zero: true},
	{Pack: "claude-code", Text: "API Error: Rate limit reached\nDone.", Zero: true},
	{Pack: "claude-code", Text: "--- PASS: TestBanner (0.00s)\nAPI Error: Rate limit reached\nPASS\nok  \texample.com/shop\t0.012s", Zero: true},
	{Pack: "claude-code", Text: "API Error: Rate limit reached\none\ntwo\nthree", Zero: true},
	{Pack: "claude-code", Text: `{"type":"result","subtype":"success","is_error":false,"result":"API Error: Rate limit reached"}`},
	{Pack: "claude-code", Text: `{"type":"result","subtype":"success","is_error":false,"terminal_reason":"completed","result":"Credit balance is too low"}`},
	{Pack: "claude-code", Text: `{"type":"assistant","message":{"model":"claude-opus-4-6","content":[{"type":"text","text":"API Error: Rate limit reached"}]}}`},
	{Pack: "claude-code", Text: `{"type":"user","message":{"content":[{"type":"tool_result","is_error":true,"content":"Invalid API key"}]}}`},
	{Pack: "claude-code", Text: `{"type":"result","is_error":true,"result":"API Error: Rate limit reached"}` + "\n" + `{"type":"result","subtype":"success","is_error":false,"result":"Done."}`},
	{Pack: "claude-code", Text: "API Error: Rate limit reached is now handled."},
	{Pack: "claude-code", Text: "API Error: Rate limit reached errors are retried, and 529 too."},
	{Pack: "claude-code", Text: "  Client\n    ✓ API Error: Rate limit reached (3 ms)\n    ✓ Invalid API key\n\n  2 passing (5ms)", Zero: true},
	{Pack: "claude-code", Text: "✓ Credit balance is too low", Zero: true},
	{Pack: "claude-code", Text: "API Error: Rate limit reached\n== 3 passed in 0.12s ==", Zero: true},
	{Pack: "claude-code", Text: `{"type":"result","subtype":"success","is_error":false,"result":"Done."}` + "\nInvalid API key", Zero: true},
	{Pack: "generic", Text: "Tests\n    ✗ 5-hour limit reached ∙ resets 3am\n1 failing"},
	{Pack: "codex", Text: "The spend cap is tested: you hit your spend cap, and the order fails."},
	{Pack: "codex", Text: `{"type":"item.completed","item":{"type":"agent_message","text":"You've hit your usage limit. Try again later."}}`},
	{Pack: "codex", Text: "The worker exceeded retry limit, last status: 429, in the old test."},
	{Pack: "gemini", Text: "RESOURCE_EXHAUSTED is mapped to 429 now."},
	{Pack: "gemini", Text: "I map the status RESOURCE_EXHAUSTED to 429."},
	{Pack: "gemini", Text: "{\n  \"retryDelay\": \"34s\"\n}", Zero: true},
	{Pack: "gemini", Text: "  \"retryDelay\": \"34s\","},
	{Pack: "agy", Text: "The banner Individual quota reached. Resets in 143h32m18s. is shown."},
	{Pack: "copilot-cli", Text: "It prints \"Sorry, you've hit a rate limit that restricts the number of Copilot model requests\" now."},
	{Pack: "copilot-cli", Text: `{"type":"assistant.message","data":{"content":"You've reached your weekly rate limit."}}`},
	{Pack: "cursor-agent", Text: "The text \"Your usage limits will reset when your monthly cycle ends on 11/20/2026\" is parsed."},
	{Pack: "opencode", Text: "The parser reads limit will reset at 2026-11-16 20:30:24 as a local time."},
	{Pack: "generic", Text: "The tests print API Error: Rate limit reached, and pass."},
	{Pack: "generic", Text: "It says:\nYou've hit your usage limit. Try again later."},
	{Pack: "generic", Text: "You've hit your usage limit. Try again later.\none\ntwo\nthree\nfour\nfive"},
	{Pack: "generic", Text: "5-hour limit reached ∙ resets 3am\n--- FAIL: TestBanner (0.00s)\nFAIL"},
	{Pack: "generic", Text: "```\n5-hour limit reached ∙ resets 3am\n```"},
	{Pack: "generic", Text: `{"type":"error","message":"Rate limit exceeded"}`},
	{Pack: "generic", Text: `{"type":"result","status":"ok","is_error":"no"}`},
}
