package cli

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/tideover/tideover/engine"
)

// exampleSteps returns a run of a workflow of the file that runs as code.
func exampleSteps() *engine.Info {
	number := 0
	op := func(kind, name, status string) engine.StepInfo {
		number++
		return engine.StepInfo{Kind: kind, Name: name, Status: status, Number: number, Called: later(-time.Hour), Ended: later(-time.Minute)}
	}
	info := &engine.Info{
		ID: "01k9v3q0h2f8d7w5j3m1n6p4rt", Workflow: "release", State: "waiting", Created: at(-time.Hour), Updated: at(-time.Minute), Step: "approval",
		Operations: &engine.OpCounts{Total: 1009, Succeeded: 1000, Failed: 2, Waiting: 1, Skipped: 1, Omitted: 3},
		Declared: []engine.DeclaredOp{
			{Name: "build", Kind: "run"}, {Name: "scan", Kind: "run", Needs: []string{"build"}}, {Name: "deploy", Kind: "http", Needs: []string{"build"}},
			{Name: "paid", Kind: "wait-for"}, {Name: "approval", Kind: "approve", Needs: []string{"deploy"}}, {Name: "tell", Kind: "workflow", Needs: []string{"approval"}},
			{Name: "report", Kind: "workflow", Needs: []string{"build"}},
		},
		Steps: []engine.StepInfo{{
			Kind: "function", Name: "function", Policy: "exponential(1s..1m) attempts=5", Status: "blocked",
			Attempts: []engine.AttemptInfo{{Number: 1, Started: at(-time.Hour), Ended: later(-time.Minute), Outcome: "suspended"}},
		}},
	}
	before := op("do", "build", "failed")
	before.Error = "exit code 1"
	build := op("do", "build", "succeeded")
	build.Output = json.RawMessage(`{"stdout":"ok"}`)
	deploy := op("map", "deploy", "failed")
	deploy.Items = &engine.OpCounts{Total: 5, Succeeded: 2, Failed: 1, Omitted: 3}
	first, second := op("item", "deploy#0", "succeeded"), op("item", "deploy#1", "failed")
	first.Item, second.Item, second.Error = "berlin\x1b[2J", `{"host":"rome"}`, "status 503"
	report := op("children", "report", "succeeded")
	report.Items = &engine.OpCounts{Total: 1, Succeeded: 1}
	child := op("child", "report#0", "succeeded")
	child.Child = "01k9v3q0h2f8d7w5j3m1n6p4ru"
	paid := op("await", "payment[paid]", "waiting")
	paid.Ended, paid.Next = nil, later(time.Hour)
	info.Steps = append(info.Steps, before, build, deploy, first, second, op("skip", "scan", "skipped"), report, child, paid, op("undo", "build", "succeeded"))
	return info
}

func TestHowStepsOfAFileLook(t *testing.T) {
	t.Parallel()
	s := screen{now: noon, zone: time.UTC}
	goldenLines(t, "show-steps.txt", renderShow(exampleSteps(), &s))
}
