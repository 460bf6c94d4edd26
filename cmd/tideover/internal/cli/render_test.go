package cli

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/admin"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/console/control"
	"github.com/tideover/tideover/internal/testfile"
)

// noon is the current time in the golden files.
var noon = time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)

// golden compares a text with the file of this name in testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	testfile.Golden(t, "testdata/"+name, got)
}

// goldenLines compares lines with the file of this name in testdata.
func goldenLines(t *testing.T, name string, lines []string) {
	t.Helper()
	golden(t, name, strings.Join(lines, "\n")+"\n")
}

func at(d time.Duration) time.Time { return noon.Add(d) }

func later(d time.Duration) *time.Time { t := at(d); return &t }

// hostile is an error that contains escape sequences and a second line.
const hostile = "connection refused\x1b[2J\x1b]0;owned\x07\nall is well\u202e"

func exampleRun() *engine.Info {
	return &engine.Info{
		ID: "01k9v3q0h2f8d7w5j3m1n6p4rt", Workflow: "order", Key: "order-4711", Source: "cli:eve", State: "waiting",
		Created: at(-20 * time.Hour), Updated: at(-time.Minute), Deadline: later(4 * time.Hour), Next: later(90 * time.Second), Attempts: 5,
		Step: "ship", Error: hostile, Input: json.RawMessage(`{"id":4711,"note":"x` + "\u009b" + `"}`), ReplayOf: "01k9v3q0h2f8d7w5j3m1n6p4rs",
		Steps: []engine.StepInfo{
			{
				Name: "charge", Policy: "exponential(1s..1m) attempts=5", Status: "succeeded", Spent: 3, Output: json.RawMessage(`"paid"`),
				Attempts: []engine.AttemptInfo{
					{
						Number: 1, Started: at(-20 * time.Hour), Ended: later(-20*time.Hour + 120*time.Millisecond), Outcome: "failed", Error: "503 Service Unavailable",
						Wait: &engine.WaitInfo{Delay: 30 * time.Second, Until: at(-20*time.Hour + 30*time.Second + 120*time.Millisecond), By: "server"},
					},
					{Number: 2, Started: at(-19 * time.Hour), Ended: later(-18 * time.Hour), Outcome: "lost", Error: "the process ended in the attempt"},
					{
						Number: 3, Started: at(-17 * time.Hour), Ended: later(-17*time.Hour + time.Second), Outcome: "failed", Error: "no route",
						Wait: &engine.WaitInfo{Delay: time.Hour, Until: at(-16*time.Hour - 30*time.Minute), By: "policy", Woken: "page"},
					},
					{Number: 4, Started: at(-16*time.Hour - 30*time.Minute), Ended: later(-16*time.Hour - 29*time.Minute), Outcome: "succeeded"},
				},
			},
			{
				Name: "ship", Needs: []string{"charge"}, Policy: "fixed(2m30s) attempts=3", Status: "waiting", Spent: 1, Next: later(90 * time.Second), Omitted: 2,
				Attempts: []engine.AttemptInfo{{
					Number: 3, Omitted: 2, Started: at(-2 * time.Minute), Ended: later(-time.Minute), Outcome: "failed", Error: hostile,
					Wait: &engine.WaitInfo{Delay: 150 * time.Second, Until: at(90 * time.Second), By: "policy"},
				}},
			},
			{Name: "tell", Needs: []string{"ship"}, Policy: "fixed(1s) attempts=3", Status: "blocked"},
		},
		Notes: []engine.Note{{At: at(-20 * time.Hour), What: "started", Text: "cli:eve"}, {At: at(-3 * time.Hour), What: "retried", Text: "page"}},
	}
}

func TestHowARunLooks(t *testing.T) {
	t.Parallel()
	s := screen{now: noon, zone: time.UTC}
	goldenLines(t, "show.txt", renderShow(exampleRun(), &s))
	dead := exampleRun()
	dead.State, dead.Reason, dead.Next, dead.Ended, dead.ReplacedBy = "dead", "attempts", nil, later(-time.Minute), "01k9v3q0h2f8d7w5j3m1n6p4rz"
	dead.Steps[1].Status, dead.Steps[1].Next = "failed", nil
	dead.Steps[1].Attempts[0].Wait, dead.Steps[1].Attempts[0].Reason = nil, "attempts"
	s.colour, s.zone = true, time.FixedZone("", 3600)
	goldenLines(t, "show-dead-colour.txt", renderShow(dead, &s))
	done := &engine.Info{ID: "01k9", Workflow: "echo", State: "succeeded", Created: at(-time.Second), Ended: later(-time.Second), Output: json.RawMessage(`"x"`)}
	lost := &engine.Info{ID: "01k9", Workflow: "import", State: "queued", Created: at(-time.Minute), Steps: []engine.StepInfo{{
		Name: "unpack", Policy: "fixed(1s)", Status: "waiting", Lost: 3, MaxLost: 5, Next: later(-time.Second),
		Quarantine: "the process died in the last 3 attempts: the next one begins when no other attempt runs in its process",
		Attempts: []engine.AttemptInfo{{
			Number: 1, Started: at(-30 * time.Second), Ended: later(-25 * time.Second), Outcome: "lost", Alone: true,
			Error: "the process died 3 times in a row while an attempt of this step ran; this time no other attempt ran",
			Wait:  &engine.WaitInfo{Delay: 4 * time.Second, Until: at(-21 * time.Second), By: "engine"},
		}},
	}}}
	goldenLines(t, "show-lost.txt", renderShow(lost, &screen{now: noon, zone: time.UTC}))
	goldenLines(t, "show-done.txt", renderShow(done, &screen{now: noon, zone: time.UTC}))
}

// exampleFlow is a run whose workflow is code.
func exampleFlow() *engine.Info {
	moment := func(d time.Duration) *time.Time { return later(d - time.Hour) }
	op := func(kind, name, status string, from, to time.Duration) engine.StepInfo {
		return engine.StepInfo{Kind: kind, Name: name, Status: status, Called: moment(from), Ended: moment(to)}
	}
	info := &engine.Info{
		ID: "01k9v3q0h2f8d7w5j3m1n6p4rt", Workflow: "order", State: "waiting", Created: at(-time.Hour), Updated: at(-time.Minute), Next: later(90 * time.Second),
		Status: "packing 3 of 7\x1b[2J", Tags: map[string]string{"city": "Oslo", "phase": "pack"}, Version: "v7", Step: "cool-down",
		Operations: &engine.OpCounts{Total: 1013, Succeeded: 1009, Failed: 2, Running: 1, Waiting: 1, Omitted: 13},
		Steps: []engine.StepInfo{{
			Kind: "function", Name: "function", Policy: "exponential(1s..1m) attempts=5", Status: "blocked",
			Attempts: []engine.AttemptInfo{
				{Number: 1, Started: *moment(0), Ended: moment(time.Second), Outcome: "suspended"},
				{Number: 2, Started: *moment(time.Minute), Ended: moment(2 * time.Minute), Outcome: "lost", Error: "the process died"},
			},
		}},
	}
	price := op("do", "price", "succeeded", 0, 2*time.Second)
	price.Output = json.RawMessage(`{"total": 7}`)
	price.Attempts = []engine.AttemptInfo{
		{Number: 1, Started: *moment(0), Ended: moment(time.Second), Outcome: "failed", Error: "busy", Wait: &engine.WaitInfo{Delay: time.Second, Until: *moment(2 * time.Second), By: "policy"}},
		{Number: 2, Started: *moment(2 * time.Second), Ended: moment(2 * time.Second), Outcome: "succeeded"},
	}
	large := op("do", "scan", "succeeded", 3*time.Second, 4*time.Second)
	large.OutputSize = 300_000
	reserve := op("map", "reserve", "succeeded", 5*time.Second, 5*time.Second)
	reserve.Items = &engine.OpCounts{Total: 1010, Succeeded: 1000, Failed: 2, Running: 1, Omitted: 13}
	info.Steps = append(info.Steps, price, large, reserve)
	for i := range 9 {
		item := op("item", "reserve#"+strconv.Itoa(i), "succeeded", 5*time.Second, 6*time.Second)
		switch i {
		case 3, 7:
			item.Status, item.Error, item.Code = "failed", "sold out\nfor ever", "sold-out"
		case 8:
			item.Status, item.Ended = "running", nil
			item.Attempts = []engine.AttemptInfo{{Number: 1, Started: *moment(5 * time.Second), Outcome: "running"}}
		}
		info.Steps = append(info.Steps, item)
	}
	sleep := op("sleep", "cool-down", "waiting", 7*time.Second, 0)
	sleep.Ended, sleep.Next = nil, info.Next
	info.Steps = append(info.Steps, sleep)
	return info
}

func TestHowAFlowLooks(t *testing.T) {
	t.Parallel()
	s := screen{now: noon, zone: time.UTC}
	goldenLines(t, "show-flow.txt", renderShow(exampleFlow(), &s))
	over := &engine.Info{
		ID: "01k9", Workflow: "loop", State: "succeeded", Created: at(-time.Second), Ended: later(-time.Second), ContinuedBy: "01k9v3q0h2f8d7w5j3m1n6p4rz",
		Operations: &engine.OpCounts{}, Steps: []engine.StepInfo{{Kind: "function", Name: "function", Policy: "fixed(1s)", Status: "succeeded"}},
	}
	goldenLines(t, "show-continued.txt", renderShow(over, &s))
	goldenLines(t, "runs-status.txt", renderRuns(&engine.Page{Runs: []engine.Info{*exampleFlow(), *exampleRun(), {
		ID: "01k9v3q0h2f8d7w5j3m1n6p4rv", Workflow: "order", State: "queued", Created: at(0), Tags: map[string]string{"city": "Bergen"},
	}}}, &screen{now: noon, terminal: true, width: 140}))
	if got, want := changeLine(exampleFlow()), ` status="packing 3 of 7\x1b[2J  city=Oslo phase=pack"`; !strings.Contains(got, want) {
		t.Errorf("the line of a change is %s, without %s", got, want)
	}
}

func TestHowRunsLook(t *testing.T) {
	t.Parallel()
	run := exampleRun()
	page := &engine.Page{Runs: []engine.Info{
		*run,
		{ID: "01k9v3q0h2f8d7w5j3m1n6p4ry", Workflow: "nightly-report", State: "succeeded", Created: at(-3 * 24 * time.Hour), Attempts: 2},
		{ID: "01k9v3q0h2f8d7w5j3m1n6p4rx", Workflow: "order", State: "dead", Created: at(-time.Minute), Attempts: 12, Step: "charge", Error: strings.Repeat("long ", 40)},
		{ID: "01k9v3q0h2f8d7w5j3m1n6p4rw", Workflow: "order", State: "scheduled", Created: at(-time.Second), Next: later(49 * time.Hour)},
		{ID: "01k9v3q0h2f8d7w5j3m1n6p4rv", Workflow: "order", State: "queued", Created: at(0), Next: later(-time.Second)},
	}, Next: "x", Behind: 3}
	for name, s := range map[string]screen{
		"runs.txt":        {now: noon},
		"runs-80.txt":     {now: noon, terminal: true, width: 80},
		"runs-colour.txt": {now: noon, terminal: true, width: 120, colour: true},
		"runs-narrow.txt": {now: noon, terminal: true, width: 20},
	} {
		lines := renderRuns(page, &s)
		for _, line := range lines[:len(lines)-2] {
			if n := len([]rune(line)); s.width > 0 && !s.colour && n > s.width {
				t.Errorf("%s: %d characters in %q", name, n, line)
			}
		}
		goldenLines(t, name, lines)
	}
	if got := renderRuns(&engine.Page{}, &screen{}); got[0] != "no runs" {
		t.Errorf("no runs: %q", got)
	}
}

func TestHowTheRestLooks(t *testing.T) {
	t.Parallel()
	s := screen{now: noon, zone: time.UTC, width: 100}
	text := [][]string{
		renderStatus(admin.Status{
			Version: "v1.2.3", Uptime: 93784, Running: 3, Timers: 12, Stuck: 1, ViewBehind: 4, Next: later(12 * time.Second), NeedsHandler: map[string]int{"go:order/pack": 2},
			Config:   admin.ConfigFile{Read: at(-time.Hour), Problem: "tideover.yaml:3:1: unknown key \"a\x1b\"", More: 2},
			Troubles: []engine.Trouble{{What: "can't store what happens", Since: at(-time.Minute), Error: "disk full\x1b[2J"}},
			Warnings: []engine.Trouble{{What: "schedule nightly: a start of workflow order was refused", Since: at(-time.Hour), Error: "input: no key"}},
			Workflows: []admin.WorkflowCounts{
				{Name: "order", States: map[string]int{"waiting": 12, "dead": 3}, Totals: admin.Totals{Succeeded: 4711, Failures: 99}},
				{Name: "nightly", States: map[string]int{}, Totals: admin.Totals{Succeeded: 1}},
			},
		}, &s),
		renderStatus(admin.Status{Version: "v1.2.3", Config: admin.ConfigFile{Read: at(-time.Hour)}}, &s),
		renderStatus(admin.Status{Version: "v1.2.3", Running: 1, Timers: 1, Stuck: 2, ViewBehind: 1, NeedsHandler: map[string]int{"go:order/pack": 1}}, &s),
		renderWorkflows([]control.Workflow{
			{Name: "order", Timeout: time.Hour, Next: later(15 * time.Hour), Steps: []control.Step{
				{Name: "charge", Policy: "exponential(1s..1m) attempts=5"},
				{Name: "ship", Needs: []string{"charge", "pack"}, Policy: "fixed(1s) attempts=3"},
			}},
			{Name: "echo", Steps: []control.Step{{Name: "say", Policy: "fixed(1s) attempts=3"}}},
		}, &s),
		renderSchedules([]engine.Schedule{{Name: "nightly", Workflow: "order", Cron: "0 3 * * *", Next: at(15 * time.Hour)}}, &s),
		renderSchedules([]engine.Schedule{{
			Name: "nightly", Workflow: "order", Cron: "0 3 * * *", Next: at(15 * time.Hour),
			Refused: &engine.RefusedStart{At: at(-9 * time.Hour), Since: at(-33 * time.Hour), Count: 2, Error: "input: no key\x1b"},
		}}, &s),
		renderGroups([]control.Group{{Error: hostile, Workflow: "order", Step: "ship", Count: 17, First: at(-48 * time.Hour), Last: at(-time.Minute)}}, &s),
		renderWorkflows(nil, &s), renderSchedules(nil, &s), renderGroups(nil, &s),
	}
	var all []string
	for _, lines := range text {
		all = append(all, strings.Join(lines, "\n"))
	}
	golden(t, "rest.txt", strings.Join(all, "\n---\n")+"\n")
}
