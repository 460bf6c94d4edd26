package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/control"
	"github.com/tideover/tideover/engine"
)

func TestWorkflowsArePausedAndResumed(t *testing.T) {
	t.Parallel()
	s := newInProcessServer(t)
	for range 2 { // the second pause changes nothing
		wantIn(t, "workflows pause", s.mustRun("workflows", "pause", "echo"), "echo paused by cli:")
	}
	id := s.mustRun("run", "echo", "--input", "1")
	s.waitForEnd(s.mustRun("run", "two", "--input", "{}")) // other workflows go on
	wantIn(t, "status", s.mustRun("status"), "workflow echo is paused by cli:")
	wantIn(t, "workflows", s.mustRun("workflows"), "echo  paused by cli:")
	wantIn(t, "runs", s.mustRun("runs"), id+"  queued, workflow paused  echo")
	wantIn(t, "show", s.mustRun("show", id), "  waits       workflow paused by cli:")
	wantIn(t, "events", s.mustRun("events"), "Paused: workflow echo, by cli:")

	var info engine.Info
	if err := json.Unmarshal([]byte(s.mustRun("show", id, "--json")), &info); err != nil || info.WorkflowPaused == nil || info.State != engine.StateQueued || info.Attempts != 0 {
		t.Errorf("show --json: %+v, %v", info, err)
	}
	var status control.Status
	if err := json.Unmarshal([]byte(s.mustRun("status", "--json")), &status); err != nil || !strings.Contains(s.mustRun("status", "--json"), `"paused":{"at":`) {
		t.Errorf("status --json: %+v, %v", status, err)
	}
	var w control.Workflow
	if err := json.Unmarshal([]byte(s.mustRun("workflows", "pause", "echo", "--json")), &w); err != nil || w.Name != "echo" || w.Paused == nil || !strings.HasPrefix(w.Paused.By, "cli:") {
		t.Errorf("workflows pause --json: %+v, %v", w, err)
	}
	for range 2 {
		wantIn(t, "workflows resume", s.mustRun("workflows", "resume", "echo"), "echo is not paused")
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
		wantCode(t, o, codeNoRun)
		wantIn(t, verb, o.stderr, `unknown workflow "ecko"; did you mean "echo"?`)
		o = s.runCommand("workflows", verb, "ecko", "--json")
		wantIn(t, verb, o.stderr, `"code":"not-found"`)
		wantCode(t, s.runCommand("workflows", verb), codeOwn)
		o = s.runCommand("workflows", verb, "notify.team")
		wantCode(t, o, codeOwn)
		wantIn(t, verb, o.stderr, "notify.team can't be paused or resumed: tideover starts its runs itself")
		wantIn(t, verb, s.runCommand("workflows", verb, "session.x").stderr, "session.x is a session; use tideover sessions\n")
	}
}
