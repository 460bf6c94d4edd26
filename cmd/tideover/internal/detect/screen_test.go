package detect

import (
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/detecttest"
)

// box is the bottom of an assistant's screen, below its transcript.
const box = `

╭──────────────────────────────────────────────────────────╮
│ >                                                        │
╰──────────────────────────────────────────────────────────╯
  ? for shortcuts                            ⧉ In main.go`

func TestLimitsOnAScreen(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 15, 14, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct{ pack, screen, until string }{
		"under a prompt": {"claude-code", `
> work through TODO.md
  ⎿  5-hour limit reached ∙ resets 3pm
     /upgrade to increase your usage limit.` + box, "15:00"},
		"under an answer": {"claude-code", `
● I'll run the tests now:

  ⎿  You've hit your session limit · resets 4:20pm (UTC)

✻ Worked for 2m 3s` + box, "16:20"},
		"in a box": {"claude-code", `
   ╭────────────────────────────────────────────╮
   │ You've hit your session limit · resets 3pm │
   ╰────────────────────────────────────────────╯`, "15:00"},
		"in a box of ASCII, wrapped": {"claude-code", `
   +-----------------------------------+
   | You've hit your session limit ·   |
   | resets 4:20pm (UTC)               |
   +-----------------------------------+`, "16:20"},
		"on a narrow screen": {"codex", `
› fix the tests

■ You've hit your usage limit.
Upgrade to Pro (https://openai.com/
chatgpt/pricing) or try again in
2 hours 10 minutes.

› `, "16:10"},
		"without a stated end": {"claude-code", `
● You've reached your Fable 5 limit. Run /usage-credits to continue or switch models with /model` + box, "-"},
		"with a choice below": {"claude-code", `
  ⎿  5-hour limit reached ∙ resets 3pm

 What do you want to do?
 ❯ 1. Stop and wait for limit to reset
   2. Upgrade`, "15:00?"},
		"credits": {"codex", `
■ Your workspace is out of credits. Ask your workspace owner to refill.

› `, "never"},
		"of an assistant in a program that is unknown": {"generic", `
> go on
  ⎿  5-hour limit reached ∙ resets 3pm` + box, "15:00"},

		"prose": {"claude-code", `
● When the quota is used up, Claude Code prints that the 5-hour limit is
  reached. The pattern "5-hour limit reached ∙ resets 3pm" is anchored, so
  You've hit your session limit · resets 3pm
  is found only at the beginning of a line.` + box, ""},
		"announced by prose": {"claude-code", `
● The pack knows these messages:

  5-hour limit reached ∙ resets 3am
  You've hit your session limit · resets 4:20pm (Asia/Tbilisi)

  Both are anchored at the end of the line.` + box, ""},
		"an item of a list": {"claude-code", `
● Messages of the tool
  • 5-hour limit reached ∙ resets 3am
  - You've hit your session limit · resets 3am` + box, ""},
		"a block of code": {"claude-code", "\n● Like this.\n\n```\n5-hour limit reached ∙ resets 3pm\n```" + box, ""},
		"the output of a tool": {"claude-code", `
● Bash(cat testdata/limit.log)
  ⎿  5-hour limit reached ∙ resets 3pm` + box, ""},
		"typed by the user": {"claude-code", `

╭──────────────────────────────────────────────────────────╮
│ > 5-hour limit reached ∙ resets 3pm                      │
╰──────────────────────────────────────────────────────────╯`, ""},
		"before the user went on": {"claude-code", `
  ⎿  5-hour limit reached ∙ resets 3pm

> continue

● Next I run the tests.` + box, ""},
		"before an answer": {"claude-code", `
  ⎿  5-hour limit reached ∙ resets 3pm

● Next I run the tests, which take a while.
  They are in the folder of the package.
  Then I look at the documentation again.` + box, ""},
		"what any program says": {"claude-code", `
  ⎿  retry after 3600s
     Retry-After: 3600` + box, ""},
		"still retrying":        {"claude-code", "\n  ⎿  API Error: Rate limit reached\n  ⎿  529 Overloaded · Retrying in 4s · attempt 6/10" + box, ""},
		"an empty screen":       {"claude-code", "", ""},
		"nothing that is known": {"generic", "\n> make\nretry after 3600s\n> ", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pack, err := Builtin(test.pack)
			if err != nil {
				t.Fatal(err)
			}
			got, found := pack.FindOnScreen(strings.Split(test.screen, "\n"), at, time.UTC)
			until := ""
			switch {
			case !found:
			case got.Terminal:
				until = "never"
			case got.Until.IsZero():
				until = "-"
			default:
				until = got.Until.Format("15:04")
			}
			if got.Choice {
				until += "?"
			}
			if until != test.until {
				t.Errorf("the limit is %q, want %q: %+v on\n%s", until, test.until, got, test.screen)
			}
		})
	}
}

// The messages about limits are also recognised on a screen.
func TestMessagesAreReadFromAScreen(t *testing.T) {
	t.Parallel()
	for _, m := range detecttest.Messages {
		limit := m.Reason == "rate-limit" && m.Zero == "" || m.Final
		if !limit || strings.ContainsAny(m.Text, "\n\x1b{\"") || strings.HasPrefix(m.Text, "Please") {
			continue
		}
		got, found := builtin(t, m.Pack).FindOnScreen([]string{"> go on", "  ⎿  " + m.Text, "", "> "}, detecttest.Now, time.UTC)
		if until := m.UntilFrom(detecttest.Now, 1, time.UTC); !found || got.Terminal != m.Final || !got.Until.Equal(until) {
			t.Errorf("%s: %q is read from a screen as %+v, %v, want until %v", m.Pack, m.Text, got, found, until)
		}
	}
}
