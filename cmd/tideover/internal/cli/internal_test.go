//go:build unix

package cli

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/console/control"
	"github.com/tideover/tideover/internal/testwait"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

// startInternal starts a run of an internal workflow with each name, and waits until it is dead.
func (s *inProcessServer) startInternal(names ...string) {
	s.t.Helper()
	for _, name := range names {
		w, err := engine.NewWorkflow(name, engine.Step("do", fails, engine.Policy("fixed(0s) attempts=1")))
		if err != nil {
			s.t.Fatal(err)
		}
		if err := s.engine.Register(w); err != nil {
			s.t.Fatal(err)
		}
		run, err := s.engine.Start(s.t.Context(), w, json.RawMessage(`{"fail":"panic: gone\n\ngoroutine 1 [running]:\n\tmain.go:1"}`))
		if err != nil {
			s.t.Fatal(err)
		}
		if s.waitForEnd(run.ID) != "dead" {
			s.t.Fatalf("a run of %s did not die", name)
		}
	}
}

func TestRunsOfOurOwnAreNotInTheWay(t *testing.T) {
	t.Parallel()
	s := newInProcessServer(t)
	s.startInternal("session.night", "notify.phone", "notify.phone", "fails.on-give-up", "user")
	testwait.Until(t, "lists have them", func() bool { return strings.Count(s.mustRun("dead", "--internal"), "dead ") == 5 })
	for _, args := range [][]string{{"runs"}, {"dead"}, {"dead", "--groups"}} {
		text := s.mustRun(args...)
		if !strings.Contains(text, "user") || strings.Contains(text, "session.") || strings.Contains(text, "notify.") || strings.Contains(text, "fails.on") {
			t.Errorf("%q:\n%s", args, text)
		}
		if !strings.Contains(text, "panic: gone …") || strings.Contains(text, "goroutine") {
			t.Errorf("%q has more than the first line of an error:\n%s", args, text)
		}
	}
	for _, args := range [][]string{{"dead"}, {"dead", "--groups"}, {"status"}} {
		clitest.WantIn(t, args[0], s.mustRun(args...), "2 messages could not be sent: tideover dead --internal\n1 run started by on-give-up failed")
	}
	clitest.WantIn(t, "on request", s.mustRun("runs", "--internal"), "session.night")
	clitest.WantIn(t, "by name", s.mustRun("runs", "--workflow", "notify.phone"), "notify.phone")
	if text := s.mustRun("workflows"); strings.Contains(text, "notify.") || !strings.Contains(text, "echo") {
		t.Errorf("workflows:\n%s", text)
	}
	clitest.WantIn(t, "retry", s.mustRun("retry", "--dead", "--yes"), "retried 1 of 1 run")
}

func TestWhatIsNotThereIsNamed(t *testing.T) {
	t.Parallel()
	s := newInProcessServer(t)
	s.startInternal("session.night")
	for _, tt := range []struct {
		name string
		args []string
		code int
		want string
	}{
		{"an unknown workflow", []string{"run", "ech"}, CodeUnknown, `workflow: unknown workflow "ech"; did you mean "echo"?`},
		{"a session as a workflow", []string{"run", "session.night"}, CodeOwn, "session.night is a session; use tideover sessions"},
		{"runs of no workflow", []string{"runs", "--workflow", "nope"}, CodeUnknown, `unknown workflow "nope"`},
		{"dead runs of no workflow", []string{"dead", "--workflow", "nope"}, CodeUnknown, `unknown workflow "nope"`},
		{"a retry of no workflow", []string{"retry", "--dead", "--workflow", "nope", "--yes"}, CodeUnknown, `unknown workflow "nope"`},
		{"show nothing", []string{"show"}, CodeOwn, "show: no run given"},
		{"show two", []string{"show", "a", "b"}, CodeOwn, `show: too many arguments: want one run, and "b" is a second`},
		{"wake nothing", []string{"wake"}, CodeOwn, "wake: no run given"},
		{"run nothing", []string{"run"}, CodeOwn, "run: no workflow given"},
		{"too much", []string{"runs", "x"}, CodeOwn, `runs: unexpected argument "x"`},
	} {
		got := s.runCommand(tt.args...)
		clitest.WantCode(t, got, tt.code)
		clitest.WantIn(t, tt.name, got.Stderr, tt.want)
	}
}

func TestListsAreObjects(t *testing.T) {
	t.Parallel()
	s := newInProcessServer(t)
	clitest.WantIn(t, "workflows", s.mustRun("workflows", "--json"), `{"workflows":[{"name":"echo"`)
	clitest.WantIn(t, "schedules", s.mustRun("schedules", "--json"), `{"schedules":[`)
}

func TestAGroupOfSeveralLinesHasAnEllipsis(t *testing.T) {
	t.Parallel()
	sc := &screen{now: time.Now(), zone: time.UTC}
	group := control.Group{Error: "panic: x\ny", Pattern: "panic: x", Count: 1}
	if lines := renderGroups([]control.Group{group}, sc); !strings.HasSuffix(lines[1], "panic: x …") {
		t.Errorf("a group: %q", lines)
	}
}
