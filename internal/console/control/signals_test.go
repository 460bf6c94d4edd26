package control

import (
	"testing"
	"time"

	"github.com/tideover/tideover/engine"
)

// Only a question that had no answer in time has its default choice.
func TestDefaultAnswers(t *testing.T) {
	t.Parallel()
	q := &engine.Question{Text: "Go?", Default: engine.Reject}
	for _, c := range []struct {
		step engine.StepInfo
		want string
	}{
		{engine.StepInfo{Question: q, Status: "failed", Ended: new(time.Now())}, engine.Reject},
		{engine.StepInfo{Question: q, Status: "failed"}, ""},
		{engine.StepInfo{Question: q, Status: "canceled", Ended: new(time.Now())}, ""},
		{engine.StepInfo{Question: q, Status: "waiting"}, ""},
	} {
		if a, ok := AnswerOf(&c.step); a.Choice != c.want || ok != (c.want != "") {
			t.Errorf("the answer to a question that is %s: %q, %v, want %q", c.step.Status, a.Choice, ok, c.want)
		}
	}
}
