package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/tideover/tideover/engine"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

// The words of the page and of the API control a schedule on the command line too.
func TestSchedulesArePausedResumedAndRun(t *testing.T) {
	t.Parallel()
	s := newInProcessServer(t)
	if err := s.engine.SetSchedules(t.Context(), []engine.Schedule{{Name: "nightly", Workflow: "echo", Cron: "0 3 * * *", Input: json.RawMessage(`{"a":1}`)}}); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second pause changes nothing
		clitest.WantIn(t, "schedules pause", s.mustRun("schedules", "pause", "nightly"), "nightly paused by cli:")
	}
	text := s.mustRun("schedules")
	clitest.WantIn(t, "the list", text, "nightly  echo      0 3 * * *  paused  -")
	clitest.WantIn(t, "the list", text, "nightly: paused by cli:")
	id := s.mustRun("schedules", "run", "nightly") // a paused schedule can be run by hand
	s.waitForEnd(id)
	clitest.WantIn(t, "the run", s.mustRun("show", id, "--json"), `"input":{"a":1}`)
	var one engine.Schedule
	if err := json.Unmarshal([]byte(s.mustRun("schedules", "pause", "nightly", "--json")), &one); err != nil || one.Paused == nil || !strings.HasPrefix(one.Paused.By, "cli:") {
		t.Errorf("schedules pause --json: %+v, %v", one, err)
	}
	for range 2 {
		clitest.WantIn(t, "schedules resume", s.mustRun("schedules", "resume", "nightly"), "nightly next start ")
	}
	one = engine.Schedule{}
	if err := json.Unmarshal([]byte(s.mustRun("schedules", "resume", "nightly", "--json")), &one); err != nil || one.Paused != nil || one.Next.IsZero() {
		t.Errorf("schedules resume --json: %+v, %v", one, err)
	}
	var run struct{ ID string }
	if err := json.Unmarshal([]byte(s.mustRun("schedules", "run", "nightly", "--json")), &run); err != nil || run.ID == "" {
		t.Errorf("schedules run --json: %+v, %v", run, err)
	}
	s.waitForEnd(run.ID)
}

func TestSchedulesThatAreUnknown(t *testing.T) {
	t.Parallel()
	s := newInProcessServer(t)
	if err := s.engine.SetSchedules(t.Context(), []engine.Schedule{{Name: "nightly", Workflow: "echo", Cron: "0 3 * * *"}}); err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"pause", "resume", "run"} {
		o := s.runCommand("schedules", verb, "nighly")
		clitest.WantCode(t, o, CodeUnknown)
		clitest.WantIn(t, verb, o.Stderr, `there is no schedule "nighly"; did you mean "nightly"?`)
		clitest.WantCode(t, s.runCommand("schedules", verb), CodeOwn)
	}
	clitest.WantCode(t, s.runCommand("schedules", "stop", "nightly"), CodeOwn)
}
