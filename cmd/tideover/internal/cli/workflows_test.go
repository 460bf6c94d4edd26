package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/admin"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/console/control"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

func TestWorkflowsArePausedAndResumed(t *testing.T) {
	t.Parallel()
	s := newInProcessServer(t)
	for range 2 { // the second pause changes nothing
		clitest.WantIn(t, "workflows pause", s.mustRun("workflows", "pause", "echo"), "echo paused by cli:")
	}
	id := s.mustRun("run", "echo", "--input", "1")
	s.waitForEnd(s.mustRun("run", "two", "--input", "{}")) // other workflows go on
	clitest.WantIn(t, "status", s.mustRun("status"), "workflow echo is paused by cli:")
	clitest.WantIn(t, "workflows", s.mustRun("workflows"), "echo  paused by cli:")
	clitest.WantIn(t, "runs", s.mustRun("runs"), id+"  queued, workflow paused  echo")
	clitest.WantIn(t, "show", s.mustRun("show", id), "  waits       workflow paused by cli:")
	clitest.WantIn(t, "events", s.mustRun("events"), "Paused: workflow echo, by cli:")

	var info engine.Info
	if err := json.Unmarshal([]byte(s.mustRun("show", id, "--json")), &info); err != nil || info.WorkflowPaused == nil || info.State != engine.StateQueued || info.Attempts != 0 {
		t.Errorf("show --json: %+v, %v", info, err)
	}
	var status admin.Status
	if err := json.Unmarshal([]byte(s.mustRun("status", "--json")), &status); err != nil || !strings.Contains(s.mustRun("status", "--json"), `"paused":{"at":`) {
		t.Errorf("status --json: %+v, %v", status, err)
	}
	var w control.Workflow
	if err := json.Unmarshal([]byte(s.mustRun("workflows", "pause", "echo", "--json")), &w); err != nil || w.Name != "echo" || w.Paused == nil || !strings.HasPrefix(w.Paused.By, "cli:") {
		t.Errorf("workflows pause --json: %+v, %v", w, err)
	}
	for range 2 {
		clitest.WantIn(t, "workflows resume", s.mustRun("workflows", "resume", "echo"), "echo is not paused")
	}
	s.waitForEnd(id)
	if text := s.mustRun("show", id); strings.Contains(text, "waits") {
		t.Errorf("show of the end: %s", text)
	}
}

func TestPauseOfWorkflowsThatAreUnknown(t *testing.T) {
	t.Parallel()
	s := newInProcessServer(t)
	for _, verb := range []string{"pause", "resume"} {
		o := s.runCommand("workflows", verb, "ecko")
		clitest.WantCode(t, o, CodeUnknown)
		clitest.WantIn(t, verb, o.Stderr, `unknown workflow "ecko"; did you mean "echo"?`)
		o = s.runCommand("workflows", verb, "ecko", "--json")
		clitest.WantIn(t, verb, o.Stderr, `"code":"not-found"`)
		clitest.WantCode(t, s.runCommand("workflows", verb), CodeOwn)
		o = s.runCommand("workflows", verb, "notify.team")
		clitest.WantCode(t, o, CodeOwn)
		clitest.WantIn(t, verb, o.Stderr, "notify.team can't be paused or resumed: tideover starts its runs itself")
		clitest.WantIn(t, verb, s.runCommand("workflows", verb, "session.x").Stderr, "session.x is a session; use tideover sessions\n")
	}
}
