package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/shard"
	"github.com/tideover/tideover/engine/internal/workflow"
)

const (
	maxChoices = 20
	maxChoice  = 64
	maxWords   = 4 << 10
)

// Ask asks a question, and waits until a person has answered it: on the page, with the command
// line, or by [Engine.Answer]. Like that of [Await], the wait survives the process and costs
// only the state of the run. With [Within] it ends after that time: with the default choice, or
// with an [*OpError] that matches [ErrNoEvent] if the question has none.
func Ask(f *Flow, name string, q Question, opts ...AwaitOption) (a Answer, err error) {
	o, err := callOperation(f, machine.AskKind, name, opts)
	if err != nil {
		return a, err
	}
	defer f.f.Leave()
	if len(q.Choices) == 0 {
		q.Choices = []string{Approve, Reject}
	}
	if err := checkQuestion(&q, o.Within); err != nil {
		return a, f.f.Misuse(o.Identity, err)
	}
	text, err := json.Marshal(q)
	if err != nil {
		return a, err
	}
	a, err = perform[Answer](f, o.Await(text))
	if errors.Is(err, ErrNoEvent) && q.Default != "" {
		return Answer{Choice: q.Default}, nil
	}
	return a, err
}

// checkQuestion returns what is wrong with the question.
func checkQuestion(q *Question, within time.Duration) error {
	switch {
	case strings.TrimSpace(q.Text) == "" || len(q.Text) > maxWords:
		return fmt.Errorf("text: must have 1 to %d bytes", maxWords)
	case len(q.Choices) > maxChoices:
		return fmt.Errorf("choices: %d, at most %d are possible", len(q.Choices), maxChoices)
	case q.Default != "" && within == 0:
		return errors.New("default: it needs Within, which says when nobody has answered")
	case q.Default != "" && !slices.Contains(q.Choices, q.Default):
		return fmt.Errorf("default: %q is not one of the choices %s", q.Default, strings.Join(q.Choices, ", "))
	}
	for i, c := range q.Choices {
		if strings.TrimSpace(c) == "" || len(c) > maxChoice || workflow.HasControl(c) {
			return fmt.Errorf("choices: %q must have 1 to %d bytes without control characters", c, maxChoice)
		}
		if slices.Contains(q.Choices[:i], c) {
			return fmt.Errorf("choices: %q is there twice", c)
		}
	}
	if slices.Contains(q.Who, "") {
		return errors.New("who: a name is empty")
	}
	return nil
}

// Answer answers a question of a run. name is that of the operation, with its key. If the
// question is not for a.By, the error is [ErrMayNotAnswer]. A question that is not open, or has
// been answered, is an [ErrState]. a.At is not used: the time of the answer is recorded.
func (e *Engine) Answer(ctx context.Context, run, name string, a Answer) error {
	if len(a.Words) > maxWords {
		return fmt.Errorf("answer: words: %w: %d bytes, at most %d", ErrTooLarge, len(a.Words), maxWords)
	}
	text, err := json.Marshal(a)
	if err != nil {
		return err
	}
	return e.router.Change(ctx, run, &shard.Call{Op: shard.OpAnswer, Step: name, Input: text})
}
