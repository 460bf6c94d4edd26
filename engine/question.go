package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
)

// Question is a question that a run asks by [Ask].
type Question struct {
	Text    string   `json:"text"`              // what is asked, in at most 4 KiB
	Choices []string `json:"choices,omitempty"` // possible answers, at most 20; none means approve and reject
	Who     []string `json:"who,omitempty"`     // names of those who may answer; none means everyone who may change runs
	Default string   `json:"default,omitempty"` // the answer if nobody answers in the time of [Within]; "" means an error then
}

// String returns the question with its choices.
func (q *Question) String() string { return q.Text + " (" + strings.Join(q.Choices, ", ") + ")" }

// The choices of a [Question] that has none.
const (
	Approve = "approve"
	Reject  = "reject"
)

// Answer is the answer to a [Question].
type Answer struct {
	Choice string    `json:"choice"`
	By     string    `json:"by,omitempty"`    // who has answered; "" if nobody has, and the choice is the default
	Words  string    `json:"words,omitempty"` // what they have said, in at most 4 KiB
	At     time.Time `json:"at,omitzero"`
}

// Approved reports whether the choice is [Approve].
func (a Answer) Approved() bool { return a.Choice == Approve }

// ErrMayNotAnswer says that a question is for others.
var ErrMayNotAnswer = errors.New("may not answer this question")

// ErrNotAChoice says that an answer is none of the choices of its question.
var ErrNotAChoice = errors.New("not one of the choices")

const (
	maxChoices = 20
	maxChoice  = 64
	maxWords   = 4 << 10
)

// Ask asks a question, and waits until a person has answered it: on the page, with the command
// line, or by [Engine.Answer]. Like that of [Await], the wait survives the process and costs
// only the state of the run. With [Within] it ends after that time: with the default choice, or
// with an [*OpError] that matches [ErrNoEvent] if the question has none.
func Ask(f *Flow, name string, q Question, opts ...StepOption) (a Answer, err error) {
	o, err := f.operation(machine.AskKind, name, opts)
	if err != nil {
		return a, err
	}
	defer f.busy.Store(false)
	if len(q.Choices) == 0 {
		q.Choices = []string{Approve, Reject}
	}
	if err := q.check(o.within); err != nil {
		return a, f.misuse(o.identity, err)
	}
	text, err := json.Marshal(q)
	if err != nil {
		return a, err
	}
	g := &opGroup{name: o.identity, n: 1, parallel: 1, sleep: o.within, isAwait: true, question: text}
	if err := f.perform(g); err != nil {
		return a, err
	}
	a, err = decoded[Answer](&g.results[0])
	if errors.Is(err, ErrNoEvent) && q.Default != "" {
		return Answer{Choice: q.Default}, nil
	}
	return a, err
}

// check returns what is wrong with the question.
func (q *Question) check(within time.Duration) error {
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
		if strings.TrimSpace(c) == "" || len(c) > maxChoice || hasControl(c) {
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
	return e.change(ctx, run, &call{Op: opAnswer, Step: name, Input: text})
}

// answer carries out [Engine.Answer].
func (c *commands) answer(ctx context.Context, asked *call) error {
	var a Answer
	if err := json.Unmarshal(asked.Input, &a); err != nil {
		return fmt.Errorf("%w: %w", errCall, err)
	}
	return c.with(ctx, string(asked.Op), asked.ID, func(t *turn, id machine.ID) error {
		run, err := t.o.m.Read(id)
		if err != nil {
			return err
		}
		identity := machine.AskKind + ":" + asked.Step
		q, err := openQuestion(run, identity)
		if err == nil {
			err = q.accepts(&a)
		}
		if err != nil {
			return err
		}
		a.By, a.At = name(a.By), time.Unix(0, t.now).UTC()
		text, err := json.Marshal(a)
		if err != nil {
			return err
		}
		by := a.By + ": " + a.Choice
		if a.Words != "" {
			by += ": " + a.Words
		}
		rec, _, err := t.o.m.Signal(&machine.Signal{Run: id, Name: identity, By: strings.ReplaceAll(c.sh.errorText(by), "\x00", ""), Data: text}, t.now)
		if err != nil {
			return err
		}
		t.must(&rec)
		c.sh.dispatcher.signaled(id, &rec)
		return nil
	})
}

// openQuestion returns the question that the operation of a run asks, or why it does not.
func openQuestion(run *machine.Run, identity string) (q Question, err error) {
	if !run.IsFlow() {
		return q, fmt.Errorf("%w: workflow %q asks no questions", ErrState, run.Def.Name)
	}
	number, open := run.Pending()[identity]
	if open && run.Outcome == machine.Undecided {
		return q, json.Unmarshal(run.Progress(number), &q)
	}
	for res := range machine.ReadResults(run.Results()) {
		if res.Name != identity {
			continue
		}
		var a Answer
		if res.Reason != 0 || json.Unmarshal(res.Data, &a) != nil {
			return q, fmt.Errorf("%w: %s of run %s is over: %s", ErrState, label(identity), run.ID, res.Text)
		}
		return q, fmt.Errorf("%w: %s has answered %s of run %s already: %s", ErrState, a.By, label(identity), run.ID, a.Choice)
	}
	if run.Outcome != machine.Undecided {
		return q, fmt.Errorf("%w: run %s is %s, and asks nothing", ErrState, run.ID, run.State())
	}
	var asks []string
	for pending := range run.Pending() {
		if name, ok := strings.CutPrefix(pending, machine.AskKind+":"); ok {
			asks = append(asks, strconv.Quote(name))
		}
	}
	if len(asks) == 0 {
		return q, fmt.Errorf("%w: run %s does not ask %q now, and has no other open question", ErrState, run.ID, label(identity))
	}
	slices.Sort(asks)
	return q, fmt.Errorf("%w: run %s does not ask %q now; it asks %s", ErrState, run.ID, label(identity), strings.Join(asks, ", "))
}

// accepts returns why the answer is not possible.
func (q *Question) accepts(a *Answer) error {
	if len(q.Who) > 0 && !slices.Contains(q.Who, a.By) {
		return fmt.Errorf("%q %w: it is for %s", a.By, ErrMayNotAnswer, strings.Join(q.Who, ", "))
	}
	if !slices.Contains(q.Choices, a.Choice) {
		return fmt.Errorf("%q is %w: %s", a.Choice, ErrNotAChoice, strings.Join(q.Choices, ", "))
	}
	return nil
}

// questionOf returns the question that the record of a call asks.
func questionOf(rec *machine.Record) (q Question, ok bool) {
	if len(rec.Outputs) == 0 || !strings.HasPrefix(rec.Text, machine.AskKind+":") {
		return q, false
	}
	return q, json.Unmarshal(rec.Outputs[0], &q) == nil
}

// signalNote returns the text of a record of kind Signaled as it is shown.
func signalNote(text string) string {
	name, by := machine.SplitSignal(text)
	if question, ok := strings.CutPrefix(name, machine.AskKind+":"); ok {
		return question + " answered by " + by
	}
	if by != "" {
		name += " from " + by
	}
	return name
}
