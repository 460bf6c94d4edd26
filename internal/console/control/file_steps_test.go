package control

import (
	"testing"

	"github.com/tideover/tideover/engine"
)

func TestAStepThatNeverRanHasNotBegun(t *testing.T) {
	t.Parallel()
	try := []engine.AttemptInfo{{Number: 1}}
	for _, c := range []struct {
		step engine.StepInfo
		want string
	}{
		{engine.StepInfo{Status: "blocked"}, StepNotBegun},
		{engine.StepInfo{Status: "canceled"}, StepNotBegun},
		{engine.StepInfo{Status: "canceled", Attempts: try}, "canceled"},
		{engine.StepInfo{Status: "canceled", Omitted: 1}, "canceled"},
		{engine.StepInfo{Status: "waiting"}, "waiting"},
		{engine.StepInfo{Kind: "function", Status: "blocked"}, "suspended"},
		{engine.StepInfo{Kind: "ask", Status: "canceled"}, "canceled"},
	} {
		if got := StateOf(&c.step); got != c.want {
			t.Errorf("a step %+v is %s, want %s", c.step, got, c.want)
		}
	}
}
