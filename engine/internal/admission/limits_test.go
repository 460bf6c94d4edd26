package admission

import (
	"testing"

	"github.com/tideover/tideover/engine/info"
	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/workflow"
)

func TestTheFirstLimitThatIsReachedKeepsAStep(t *testing.T) {
	t.Parallel()
	attempts := map[string]int{"s": 2}
	for _, test := range []struct {
		name            string
		limits          workflow.Limits
		active, running int
		want            Limit
		concerns        bool
	}{
		{"none", workflow.Limits{}, 9, 9, Limit{}, false},
		{"of another step", workflow.Limits{Attempts: map[string]int{"other": 1}}, 9, 9, Limit{}, false},
		{"neither", workflow.Limits{Runs: 3, Attempts: attempts}, 2, 1, Limit{}, true},
		{"runs", workflow.Limits{Runs: 3, Attempts: attempts}, 3, 1, Limit{info.HeldByRuns, 3, 3}, true},
		{"attempts", workflow.Limits{Runs: 3, Attempts: attempts}, 2, 2, Limit{info.HeldByAttempts, 2, 2}, true},
		{"both", workflow.Limits{Runs: 3, Attempts: attempts}, 4, 4, Limit{info.HeldByRuns, 3, 4}, true},
	} {
		a := New(nil, nil, func(string) workflow.Limits { return test.limits }, fakeClock(0))
		q := &machine.Queue{Workflow: &machine.Workflow{Name: "w", Active: test.active}, Step: "s", Running: test.running}
		limits := a.Limits(q, new(machine.Run))
		if got := limits.reached(); got != test.want || (limits != StepLimits{}) != test.concerns {
			t.Errorf("%s: %+v is reached, want %+v; the limits are %+v", test.name, got, test.want, limits)
		}
	}
}
