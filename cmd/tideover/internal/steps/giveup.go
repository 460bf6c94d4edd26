package steps

import (
	"encoding/json"
	"fmt"

	"github.com/tideover/tideover/engine"
)

// giveUpData returns what the templates of on-give-up see: the run that gave up
// and why, and all of its steps. One without a result has the exit code -1.
func (r *Runner) giveUpData(t *engine.Task) (Data, error) {
	var g engine.GaveUp
	if err := json.Unmarshal(t.Input, &g); err != nil {
		return Data{}, fmt.Errorf("input of the run: %w", err)
	}
	if g.Origin == "" { // it repeats no other
		g.Origin, g.OriginKey = g.Run, g.Key
	}
	d := Data{
		Steps: map[string]StepResult{}, Secrets: r.Secrets(), Schedule: scheduledFor(g.OriginKey),
		Run: RunInfo{
			ID: g.Run, Workflow: g.Workflow, Key: g.Key, Origin: g.Origin, OriginKey: g.OriginKey, Attempt: g.Attempts, Started: g.Created,
			Step: g.Step, Error: g.Error, Reason: g.Reason,
		},
	}
	var err error
	if d.Input, err = decode(g.Input); err != nil {
		return d, fmt.Errorf("input of the run: %w", err)
	}
	for name, text := range g.Outputs {
		if d.Steps[name], err = stepResult(text); err != nil {
			return d, fmt.Errorf("result of %q: %w", name, err)
		}
	}
	return d, nil
}
