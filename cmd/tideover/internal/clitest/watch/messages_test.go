//go:build unix

package watch_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/internal/testfile"
	"github.com/tideover/tideover/internal/testwait"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

// assistantCalled creates a fake assistant whose program has this name, and returns the path of the
// program.
func assistantCalled(t *testing.T, name string, answers ...string) (*watchEnv, string) {
	t.Helper()
	w := newWatchEnv(t, answers...)
	path := filepath.Join(w.dir, name)
	w.write(name, "#!/bin/sh\n"+fakeAssistant+"\n")
	return w, path
}

// A watch runs a fake assistant, which prints a message and exits. The watch selects the pack by
// the name of the program, and waits until the time in the message.
func TestWatchReadsTheMessagesOfTodaysAssistants(t *testing.T) {
	t.Parallel()
	day := time.Now().AddDate(0, 0, 3)
	midnight := time.Date(day.Year(), day.Month(), day.Day(), 0, 0, 0, 0, time.Local)
	for name, tc := range map[string]struct {
		program, said string
		until         time.Time     // a time of the calendar
		in            time.Duration // a time that passes
		reason        string
	}{
		"claude exits with 0":       {"claude", `echo "API Error: Rate limit reached"`, time.Time{}, 0, "rate-limit"},
		"claude fails by its event": {"claude", `echo '{"type":"result","is_error":true,"terminal_reason":"blocking_limit","result":"Stopped."}'`, time.Time{}, 0, "rate-limit"},
		"claude is throttled":       {"claude", `echo "API Error: Server is temporarily limiting requests (not your usage limit)"; exit 1`, time.Time{}, 0, "overloaded"},
		"agy":                       {"agy", `echo "Individual quota reached. Contact your administrator to enable overages. Resets in 143h32m18s."; exit 1`, time.Time{}, 143*time.Hour + 32*time.Minute + 18*time.Second, "rate-limit"},
		"copilot":                   {"copilot", `echo "Sorry, you've hit a rate limit that restricts the number of Copilot model requests you can make within a specific time period. Please try again in 58 hours. Please review our Terms."; exit 1`, time.Time{}, 58 * time.Hour, "rate-limit"},
		"cursor-agent":              {"cursor-agent", fmt.Sprintf(`echo "Error: You've hit your usage limit. Your usage limits will reset when your monthly cycle ends on %s"; exit 1`, midnight.Format("1/2/2006")), midnight, 0, "rate-limit"},
		"codex in a script":         {"run.sh", `echo "You've hit your usage limit. Upgrade to Pro or try again in 2 days 17 hours."`, time.Time{}, 65 * time.Hour, "rate-limit"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, path := assistantCalled(t, tc.program, tc.said)
			begin := time.Now()
			cmd, _ := clitest.Command(t, "watch", "--data", filepath.Join(w.dir, "state"), "--name", "night", "--policy", "fixed(1h) attempts=3 server-wait=8d server-slack=90s",
				"--resume", path+" resume {{.Session}}", "--", path, "start", "{{.Session}}")
			out := new(clitest.SyncBuffer)
			cmd.Dir, cmd.Stdout, cmd.Stderr = w.dir, out, out
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			testwait.Until(t, "a wait", func() bool { return strings.Contains(out.String(), "next at") })
			st := w.session()
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			next, err := time.Parse(time.RFC3339Nano, st.Next)
			if err != nil {
				t.Fatalf("%+v: %v; %s", st, err, out.String())
			}
			least, windows := begin.Add(time.Hour), 0
			if tc.in == 0 && tc.until.IsZero() && tc.reason == "rate-limit" {
				least = begin.Add(5 * time.Minute) // the first probe
			} else if tc.in > 0 {
				least, windows = begin.Add(tc.in+90*time.Second), 1
			} else if !tc.until.IsZero() {
				least, windows = tc.until.Add(90*time.Second), 1
			}
			// real clock: the bound grows with the time that the test takes.
			most := least.Add(time.Since(begin) + 31*time.Second)
			if st.State != "waiting" || st.Windows != windows || next.Before(least.Add(-time.Second)) || next.After(most) {
				t.Errorf("the session is %+v, want that it waits until %v at least, and at most %v; %s", st, least, most, out.String())
			}
			clitest.WantIn(t, "output", out.String(), tc.reason+", exit code ")
		})
	}
}

// A session gives up at once after a message that means that waiting does not help, also with exit
// code 0.
func TestWatchGivesUpOnAMessageThatIsFinal(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ program, flag, said string }{
		{"claude", "-p", `echo "Credit balance is too low"`},
		{"claude", "-p", `echo "Invalid API key"`},
		{"codex", "exec", `echo "You hit your spend cap set in your workspace. Increase your spend cap to continue."; exit 1`},
	} {
		w, path := assistantCalled(t, tc.program, tc.said, "echo again")
		cmd, _ := clitest.Command(t, "watch", "--data", filepath.Join(w.dir, "state"), "--name", "night", "--", path, tc.flag, "Work")
		got := clitest.Finish(t, cmd)
		clitest.WantCode(t, got, 1)
		clitest.WantIn(t, tc.said, got.Stderr, "terminal, exit code ")
		clitest.WantIn(t, tc.said, got.Stderr, "gave up")
		if calls := w.calls(); len(calls) != 1 {
			t.Errorf("%s was called with %q", tc.program, calls)
		}
	}
}

func TestWatchCompletesAnAnswerThatQuotesAMessage(t *testing.T) {
	t.Parallel()
	w, path := assistantCalled(t, "claude", `printf 'The log of the failed run:\n\n    API Error: Rate limit reached\n\nI retry after this line now.\n'`)
	cmd, _ := clitest.Command(t, "watch", "--data", filepath.Join(w.dir, "state"), "--", path, "-p", "Work")
	got := clitest.Finish(t, cmd)
	clitest.WantCode(t, got, 0)
	if calls := w.calls(); len(calls) != 1 {
		t.Errorf("claude was called with %q", calls)
	}
}

// The example in docs/detect.md is a valid configuration. Its pack recognises its own message and
// those of the pack that it extends.
func TestAPackThatExtendsABuiltInOne(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(testfile.Repository(t, "docs", "detect.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(text), "### A pack that extends a built-in one")
	_, rest, ok2 := strings.Cut(rest, "```yaml\n")
	example, _, _ := strings.Cut(rest, "```")
	if !ok || !ok2 {
		t.Fatal("docs/detect.md has no example of a pack that extends another")
	}
	for said, want := range map[string]string{
		"The budget of the team is spent, back in 3 hours.":   "rate-limit, exit code 1: The budget of the team is spent, back in 3 hours.; next at ",
		"You've hit your usage limit. Try again in 2 days.":   "rate-limit, exit code 1: You've hit your usage limit. Try again in 2 days.; next at ",
		"exceeded retry limit, last status: 429 Too Many ...": "overloaded, exit code 1: exceeded retry limit",
	} {
		w, path := assistantCalled(t, "codex", `echo "`+said+`"; exit 1`)
		w.write("tideover.yaml", example)
		if got := clitest.Run(t, "config", "check", filepath.Join(w.dir, "tideover.yaml")); got.Code != 0 {
			t.Fatalf("config check: %s%s", got.Out, got.Stderr)
		}
		cmd, out := w.command("--config", filepath.Join(w.dir, "tideover.yaml"), "--detect", "our-codex", "--account", "none", "--policy", "fixed(1h) attempts=3 server-wait=8d"), new(clitest.SyncBuffer)
		cmd.Args = append(cmd.Args[:len(cmd.Args)-3], path, "exec", "Work {{.Session}}")
		cmd.Stdout, cmd.Stderr = out, out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		testwait.Until(t, "a wait", func() bool { return strings.Contains(out.String(), "next at") })
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		clitest.WantIn(t, said, out.String(), want)
	}
}
