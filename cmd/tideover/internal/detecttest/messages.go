// Package detecttest has the messages of today's assistants, with what they mean, for
// the tests of the packages that read them and for the table of the documentation.
package detecttest

import (
	"fmt"
	"time"
)

// Now is when the messages were written.
var Now = time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)

// Message is what an assistant prints before it ends.
type Message struct {
	Tool   string // that prints it
	Pack   string // of the tool
	Text   string
	Reason string                              // why the tool stopped, with exit code 1
	Zero   string                              // the same with exit code 0; "" means Reason
	Final  bool                                // no wait helps
	Until  func(zone *time.Location) time.Time // when the limit ends; nil if that is not stated
}

// ReasonAt returns why the tool stopped, given its exit code.
func (m *Message) ReasonAt(code int) string {
	if code == 0 && m.Zero != "" {
		return m.Zero
	}
	return m.Reason
}

// UntilAt returns when the limit ends, given the exit code and the zone of the machine.
// It is zero if that is not stated, or if the tool did not stop because of it.
func (m *Message) UntilAt(code int, zone *time.Location) time.Time {
	if m.Until == nil || m.ReasonAt(code) != "rate-limit" {
		return time.Time{}
	}
	return m.Until(zone)
}

// What a session does after a stop.
const (
	Completes     = "is completed"
	GivesUp       = "gives up at once"
	GivesUpTooFar = "gives up: that is farther away than server-wait"
	WaitsUntil    = "waits until then, and 90 s; resumes"
	WaitsAtLeast  = "waits as the policy says, at least until then; resumes"
	Waits         = "waits as the policy says; resumes"
	StartsAnew    = "waits as the policy says; starts a new session"
)

// Follows returns what a session with the default policy does.
func (m *Message) Follows(code int, zone *time.Location) string {
	left := m.UntilAt(code, zone).Sub(Now)
	switch {
	case m.ReasonAt(code) == "completed":
		return Completes
	case m.Final:
		return GivesUp
	case m.ReasonAt(code) == "context-full":
		return StartsAnew
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

// in returns a time that passes.
func in(d time.Duration) func(*time.Location) time.Time {
	return func(*time.Location) time.Time { return Now.Add(d) }
}

// utc returns a time of the calendar.
func utc(month time.Month, day, hour, minute, second int) func(*time.Location) time.Time {
	return func(*time.Location) time.Time { return time.Date(2026, month, day, hour, minute, second, 0, time.UTC) }
}

// local returns a time of the calendar in the zone of the machine.
func local(month time.Month, day, hour, minute, second int) func(*time.Location) time.Time {
	return func(zone *time.Location) time.Time { return time.Date(2026, month, day, hour, minute, second, 0, zone) }
}

// nextLocal returns the next time of day in the zone of the machine. A time that has
// passed within the hour is past, and states nothing.
func nextLocal(hour, minute int) func(*time.Location) time.Time {
	return func(zone *time.Location) time.Time {
		now := Now.In(zone)
		t := time.Date(now.Year(), now.Month(), now.Day(), hour, minute, 0, 0, zone)
		switch passed := now.Sub(t); {
		case passed <= 0:
			return t
		case passed <= time.Hour:
			return time.Time{}
		default:
			return t.AddDate(0, 0, 1)
		}
	}
}

const (
	copilotLimit = "Sorry, you've hit a rate limit that restricts the number of Copilot model requests you can make within a specific time period. "
	epoch        = 1794747600 // 2026-11-15 13:00:00 UTC
)

// Messages are those that are known, in the order of the documentation.
var Messages = []Message{
	{Tool: "Claude Code", Pack: "claude-code", Reason: "rate-limit", Until: utc(11, 15, 13, 0, 0),
		Text: fmt.Sprintf(`{"type":"rate_limit_event","rate_limit_info":{"status":"rejected","resetsAt":%d}}`, epoch)},
	{Tool: "Claude Code", Pack: "claude-code", Reason: "rate-limit", Until: utc(11, 15, 13, 0, 0), Text: fmt.Sprintf("Claude AI usage limit reached|%d", epoch)},
	{Tool: "Claude Code", Pack: "claude-code", Reason: "rate-limit", Until: nextLocal(3, 0), Text: "5-hour limit reached ∙ resets 3am"},
	{Tool: "Claude Code", Pack: "claude-code", Reason: "rate-limit", Until: utc(11, 15, 12, 20, 0), Text: "You've hit your session limit · resets 4:20pm (Asia/Tbilisi)"},
	{Tool: "Claude Code", Pack: "claude-code", Reason: "rate-limit", Until: local(11, 20, 19, 0, 0), Text: "You've hit your weekly limit · resets Nov 20 at 7pm"},
	{Tool: "Claude Code", Pack: "claude-code", Reason: "rate-limit", Until: utc(11, 15, 16, 0, 0), Text: "Your limit will reset at 4 PM (UTC)."},
	{Tool: "Claude Code", Pack: "claude-code", Reason: "rate-limit", Until: utc(11, 15, 16, 0, 0), Text: "drawn on the whole screen\x1b[?1049lYour limit will reset at 4 PM (UTC)."},
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
	{Tool: "Claude Code", Pack: "claude-code", Reason: "rate-limit", Until: utc(11, 15, 12, 20, 0),
		Text: `{"type":"result","subtype":"success","is_error":true,"result":"You've hit your session limit · resets 4:20pm (Asia/Tbilisi)"}`},
	{Tool: "Claude Code", Pack: "claude-code", Reason: "rate-limit", Text: `{"type":"result","subtype":"success","is_error":true,"terminal_reason":"blocking_limit","result":"Stopped."}`},
	{Tool: "Claude Code", Pack: "claude-code", Reason: "crashed", Text: `{"type":"result","subtype":"error_during_execution","is_error":true,"errors":["Something broke."]}`},

	{Tool: "Codex", Pack: "codex", Reason: "rate-limit", Until: utc(11, 15, 13, 0, 0),
		Text: fmt.Sprintf(`{"error":{"type":"usage_limit_reached","message":"The usage limit has been reached","resets_at":%d,"resets_in_seconds":3600}}`, epoch)},
	{Tool: "Codex", Pack: "codex", Reason: "rate-limit", Until: in(65*time.Hour + 14*time.Minute),
		Text: "You've hit your usage limit. Upgrade to Pro (https://openai.com/chatgpt/pricing) or try again in 2 days 17 hours 14 minutes."},
	{Tool: "Codex", Pack: "codex", Reason: "rate-limit", Until: nextLocal(15, 7), Text: "You've hit your usage limit. Upgrade to Pro or try again at 3:07 PM."},
	{Tool: "Codex", Pack: "codex", Reason: "rate-limit", Until: local(11, 20, 11, 52, 0), Text: "You've hit your usage limit. Try again at Nov 20th, 2026 11:52 AM."},
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
	{Tool: "Gemini CLI", Pack: "gemini", Reason: "rate-limit", Until: utc(11, 15, 22, 14, 0), Text: "Access resets at 3:14 PM PDT."},
	{Tool: "Gemini CLI", Pack: "gemini", Reason: "rate-limit", Until: utc(11, 16, 8, 0, 0), Text: "[API Error: You have exhausted your daily quota on this model.]"}, // midnight in California
	{Tool: "Gemini CLI", Pack: "gemini", Reason: "overloaded", Text: `[API Error: {"error":{"code":429,"message":"Resource has been exhausted (e.g. check quota).","status":"RESOURCE_EXHAUSTED"}}]`},
	{Tool: "Gemini CLI", Pack: "gemini", Reason: "rate-limit", Final: true, Text: `{"error":{"code":429,"details":[{"violations":[{"quotaId":"GenerateRequestsPerDayPerProjectPerModel-FreeTier"}]}]}}`},
	{Tool: "Gemini CLI", Pack: "gemini", Reason: "rate-limit", Until: in(time.Minute), Text: `{"error":{"code":429,"details":[{"violations":[{"quotaId":"GenerateRequestsPerMinutePerProjectPerModel"}]}]}}`},

	{Tool: "Antigravity CLI", Pack: "agy", Reason: "rate-limit", Until: in(108*time.Hour + 48*time.Minute),
		Text: `{ "error": { "code": 429, "message": "Individual quota reached. Contact your administrator. Resets in 108h48m9s.", "status": "RESOURCE_EXHAUSTED", "details": [{ "retryDelay": "391680s" }] } }`},
	{Tool: "Antigravity CLI", Pack: "agy", Reason: "rate-limit", Until: in(143*time.Hour + 32*time.Minute + 18*time.Second),
		Text: "Individual quota reached. Contact your administrator to enable overages. Resets in 143h32m18s."},

	{Tool: "Copilot CLI", Pack: "copilot-cli", Reason: "rate-limit", Until: in(58 * time.Hour), Text: copilotLimit + "Please try again in 58 hours. Please review our Terms of Service."},
	{Tool: "Copilot CLI", Pack: "copilot-cli", Reason: "rate-limit", Until: local(11, 20, 2, 0, 0),
		Text: "You've reached your weekly rate limit. Please wait for your limit to reset on November 20, 2026 at 2:00 AM or switch to auto model to continue."},
	{Tool: "Copilot CLI", Pack: "copilot-cli", Reason: "rate-limit", Text: `{"type":"session.error","data":{"errorType":"rate_limit","message":"Slow down."}}`},
	{Tool: "Copilot CLI", Pack: "copilot-cli", Reason: "rate-limit", Until: in(2733 * time.Second), Text: "Sorry, you've exceeded your 5 hour session limits. Please retry after 2733 seconds. (user_global_rate_limited:pro)"},

	{Tool: "Cursor", Pack: "cursor-agent", Reason: "rate-limit", Until: local(11, 20, 0, 0, 0),
		Text: "Error: You've hit your usage limit. Get Cursor Pro for more Agent usage. Your usage limits will reset when your monthly cycle ends on 11/20/2026"},
	{Tool: "Cursor", Pack: "cursor-agent", Reason: "rate-limit", Until: local(12, 2, 0, 0, 0),
		Text: "Error: You've hit your usage limit. Get Cursor Pro for more Agent usage. Your usage limits will reset when your monthly cycle ends on 12/2/2026"},
	{Tool: "Cursor", Pack: "cursor-agent", Reason: "rate-limit", Text: "Error: You've hit your usage limit"},

	{Tool: "Cursor", Pack: "cursor-agent", Reason: "rate-limit", Until: local(11, 20, 0, 0, 0),
		Text: "Error: You've hit your usage limit\n  Get Cursor Pro for more Agent usage, unlimited Tab, and more.\nspendLimitHit: false\n" +
			"chatMessage: *You've hit your free requests limit. [Upgrade to\nPro](https://cursor.com) for more usage,\nand more. Your usage limits will reset when your monthly cycle ends on 11/20/2026.*\nspendLimits: [50,100,200]"},

	{Tool: "opencode", Pack: "opencode", Reason: "rate-limit", Zero: "completed", Text: "[retrying in 2m 22s attempt #8]"},
	{Tool: "opencode", Pack: "opencode", Reason: "rate-limit", Until: local(11, 16, 20, 30, 24), Text: "Usage limit reached for 5 hour. Your limit will reset at 2026-11-16 20:30:24"},
	{Tool: "opencode", Pack: "opencode", Reason: "rate-limit", Until: local(11, 16, 20, 30, 24), Text: "Your limit will reset at 2026-11-16 20:30:24 [retrying in 2m 22s #8]"},
	{Tool: "opencode", Pack: "opencode", Reason: "rate-limit", Until: in(51 * time.Hour), Text: "Weekly usage limit reached. It will reset in 2 days 3 hours"},
	{Tool: "opencode", Pack: "opencode", Reason: "rate-limit", Text: "Free usage exceeded"},

	{Tool: "aider", Pack: "aider", Reason: "rate-limit", Text: "litellm.RateLimitError"},
	{Tool: "aider", Pack: "aider", Reason: "rate-limit", Zero: "completed", Text: "litellm.RateLimitError: RateLimitError: OpenAIException\nRetrying in 0.2 seconds..."},

	{Tool: "any program", Pack: "generic", Reason: "rate-limit", Zero: "completed", Until: in(time.Hour), Text: "retry after 3600s"},
	{Tool: "any program", Pack: "generic", Reason: "rate-limit", Zero: "completed", Until: in(2 * time.Minute), Text: "Retry-After: 120"},
	{Tool: "any program", Pack: "generic", Reason: "rate-limit", Zero: "completed", Text: "429 Too Many Requests"},
}

// Decoy is output that has the words of a message and is none.
type Decoy struct {
	Pack, Text string
	Zero       bool // it is told apart with exit code 0 only
}

// Decoys are to be left alone.
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
