package detect

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/detecttest"
	"github.com/tideover/tideover/internal/textfmt"
)

// stopByAny returns the verdict of [Detector.StopByAny] on the output of a command.
func stopByAny(t testing.TB, pack, output string, code int, zone *time.Location) Stop {
	t.Helper()
	d := New(builtin(t, pack), Options{Location: zone, At: detecttest.Now})
	_, _ = d.Stream().Write([]byte(output + "\n"))
	return d.StopByAny(code)
}

func checkMessage(t *testing.T, m *detecttest.Message, how string, got Stop, code int, zone *time.Location) {
	t.Helper()
	want, until := m.ReasonAt(code), m.UntilFrom(detecttest.Now, code, zone)
	if got.Reason.String() != want || !got.Until.Equal(until) || want != "completed" && got.Terminal != m.Final {
		t.Errorf("%s, exit code %d, %s: %q\n got %+v\nwant %s until %v, final %v", m.Tool, code, how, m.Text, got, want, until, m.Final)
	}
}

func TestMessagesOfTodaysAssistants(t *testing.T) {
	t.Parallel()
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	for i := range detecttest.Messages {
		m := &detecttest.Messages[i]
		for _, code := range []int{0, 1} {
			for _, zone := range []*time.Location{time.UTC, berlin} {
				checkMessage(t, m, "alone", stopByAny(t, m.Pack, m.Text, code, zone), code, zone)
				checkMessage(t, m, "after work", stopByAny(t, m.Pack, "I read the code.\nNow I run the tests.\n"+m.Text, code, zone), code, zone)
			}
		}
	}
}

// Messages are recognised at any time of the year, in any zone, including those of
// detecttest.MessagesAt.
func TestMessagesAtAnyTime(t *testing.T) {
	t.Parallel()
	zones := []*time.Location{time.UTC, time.FixedZone("", 14*60*60), time.FixedZone("", -12*60*60)}
	for n := range 40 {
		now := detecttest.Now.Add(time.Duration(n) * (9*24*time.Hour + 7*time.Hour + 13*time.Minute + 17*time.Second))
		messages, zone := detecttest.MessagesAt(now), zones[n%len(zones)]
		for i := range messages {
			m := &messages[i]
			d := New(builtin(t, m.Pack), Options{Location: zone, At: now})
			_, _ = d.Stream().Write([]byte(m.Text + "\n"))
			got, until := d.StopByAny(1), m.UntilFrom(now, 1, zone)
			if got.Reason.String() != m.Reason || !got.Until.Equal(until) || !until.IsZero() && !until.After(now) {
				t.Errorf("at %v in %v: %q\n got %+v\nwant %s until %v", now, zone, m.Text, got, m.Reason, until)
			}
			if zone == time.UTC && m.FollowsFrom(now, 1, zone) != detecttest.Messages[i].FollowsFrom(detecttest.Now, 1, zone) {
				t.Errorf("at %v: %q %s, want as always: %s", now, m.Text, m.FollowsFrom(now, 1, zone), detecttest.Messages[i].FollowsFrom(detecttest.Now, 1, zone))
			}
		}
	}
}

// A shell that runs an assistant has no pack of its own.
func TestMessagesOfAnAssistantThatAShellRuns(t *testing.T) {
	t.Parallel()
	for i := range detecttest.Messages {
		m := &detecttest.Messages[i]
		for _, code := range []int{0, 1} {
			got := stopByAny(t, "generic", m.Text, code, time.UTC)
			checkMessage(t, m, "by a shell", got, code, time.UTC)
			if got.Rule != "" && got.Pack != "generic" && !strings.Contains(got.Note, "by the pack "+got.Pack) {
				t.Errorf("%q: the note %q does not name the pack %s", m.Text, got.Note, got.Pack)
			}
		}
	}
}

func TestDecoysOfTodaysMessages(t *testing.T) {
	t.Parallel()
	for _, decoy := range detecttest.Decoys {
		for code, want := range map[int]Reason{0: Completed, 1: Crashed} {
			if code == 1 && decoy.Zero {
				continue
			}
			for _, pack := range []string{decoy.Pack, "generic"} {
				if got := stopByAny(t, pack, decoy.Text, code, time.UTC); got.Reason != want {
					t.Errorf("%s, exit code %d: %q is taken for %+v", pack, code, decoy.Text, got)
				}
			}
		}
	}
}

// inTable formats a message as a table cell.
func inTable(message string) string {
	return "`" + strings.NewReplacer("\x1b", "ESC", "\n", " ⏎ ", "|", `\|`).Replace(textfmt.TruncateWithin(message, 160, "...")) + "`"
}

// goneRows renders the messages about a missing session.
func goneRows(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for _, name := range Names() {
		tool := name
		if first := slices.IndexFunc(detecttest.Messages, func(m detecttest.Message) bool { return m.Pack == name }); first >= 0 {
			tool = detecttest.Messages[first].Tool
		}
		for _, gone := range builtin(t, name).Spec().Session.Gone {
			for _, example := range gone.Examples {
				fmt.Fprintf(&b, "| %s | %s | crashed |  | after a resume: starts a new session at once with the first prompt; gives up the second time |\n", tool, inTable(example))
			}
		}
	}
	return b.String()
}

// messageTable renders the messages as in the documentation.
func messageTable(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("\n| tool | message | reason | until | what follows |\n| --- | --- | --- | --- | --- |\n")
	for i := range detecttest.Messages {
		m := &detecttest.Messages[i]
		until := "not stated"
		if t := m.UntilFrom(detecttest.Now, 1, time.UTC); !t.IsZero() {
			until = t.UTC().Format("Jan 2 15:04:05")
			if left := t.Sub(detecttest.Now); left <= time.Minute {
				until = "in " + left.String()
			}
		}
		if m.Reason != "rate-limit" || m.Final {
			until = ""
		}
		follows := m.FollowsFrom(detecttest.Now, 1, time.UTC)
		if m.Zero != "" {
			follows += "; with exit code 0: " + m.FollowsFrom(detecttest.Now, 0, time.UTC)
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", m.Tool, inTable(m.Text), m.Reason, until, follows)
	}
	return b.String() + goneRows(t) + "\n"
}

// Another pack is used only for stops that no rule of the command's pack explains.
func TestAnotherPackIsAskedLast(t *testing.T) {
	t.Parallel()
	const codexLimit = "You've hit your usage limit. Upgrade to Pro or try again in 2 days."
	for name, tc := range map[string]struct {
		pack, output string
		code         int
		want         Reason
		by           string // the pack that the note names
	}{
		"a shell that fails":                  {"generic", codexLimit, 1, RateLimit, ""},
		"a shell that exits with 0":           {"generic", codexLimit, 0, RateLimit, ""},
		"a shell that its user ends":          {"generic", codexLimit, 130, UserExit, ""},
		"an assistant that runs another":      {"aider", codexLimit, 1, RateLimit, ""},
		"one that runs another, and succeeds": {"aider", codexLimit + "\nI have told it to wait.", 0, Completed, ""},
		"a rule of the command's own":         {"aider", codexLimit + strings.Repeat("\nmore", 6) + "\nlitellm.AuthenticationError: no", 1, Terminal, ""},
		"a rule that any program has":         {"generic", codexLimit + strings.Repeat("\nmore", 6) + "\n503 Service Unavailable", 1, Overloaded, ""},
		"an exit code that the pack knows":    {"gemini", "more", 41, Terminal, ""},
		"an event":                            {"generic", `{"type":"rate_limit_event","status":"rejected","resetsAt":1794747600}`, 0, RateLimit, "claude-code"},
		"an event, and success":               {"generic", rejected + "\n" + `{"type":"result","is_error":false,"result":"` + strings.Repeat("x", 2*maxKept) + `"}`, 0, Completed, ""},
	} {
		got := stopByAny(t, tc.pack, tc.output, tc.code, time.UTC)
		if got.Reason != tc.want || (tc.by != "") != strings.Contains(got.Note, "by the pack "+tc.by) {
			t.Errorf("%s: exit %d of %s gives %+v, want %s by the pack %q", name, tc.code, tc.pack, got, tc.want, tc.by)
		}
	}
}
