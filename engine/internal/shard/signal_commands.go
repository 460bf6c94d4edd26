package shard

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tideover/tideover/engine/info"
	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/workflow"
)

// answer carries out engine.Engine.Answer.
func (c commands) answer(ctx context.Context, asked *Call) error {
	var a info.Answer
	if err := json.Unmarshal(asked.Input, &a); err != nil {
		return fmt.Errorf("%w: %w", ErrCall, err)
	}
	return c.with(ctx, string(asked.Op), asked.ID, func(t Recorder, id machine.ID) error {
		run, err := t.State().Read(id)
		if err != nil {
			return err
		}
		identity := machine.AskKind + ":" + asked.Step
		q, err := openQuestion(run, identity)
		if err == nil {
			err = accepts(&q, &a)
		}
		if err != nil {
			return err
		}
		a.By, a.At = CallerName(a.By), time.Unix(0, t.Now()).UTC()
		text, err := json.Marshal(a)
		if err != nil {
			return err
		}
		by := a.By + ": " + a.Choice
		if a.Words != "" {
			by += ": " + a.Words
		}
		rec, _, err := t.State().Signal(&machine.Signal{Run: id, Name: identity, By: strings.ReplaceAll(c.sh.process.Settings.errorText(by), "\x00", ""), Data: text}, t.Now())
		if err != nil {
			return err
		}
		t.Record(rec)
		c.sh.dispatcher.calls.Signaled(t, id, &rec)
		return nil
	})
}

// openQuestion returns the question that the operation of a run asks, or why it does not.
func openQuestion(run *machine.Run, identity string) (q info.Question, err error) {
	if !run.IsFlow() {
		return q, fmt.Errorf("%w: workflow %q asks no questions", machine.ErrState, run.Def.Name)
	}
	number, open := run.Flow().Pending()[identity]
	if open && run.Outcome == machine.Undecided {
		return q, json.Unmarshal(run.Progress(number), &q)
	}
	for res := range machine.ReadResults(run.Flow().Results()) {
		if res.Name != identity {
			continue
		}
		var a info.Answer
		if res.Reason != 0 || json.Unmarshal(res.Data, &a) != nil {
			return q, fmt.Errorf("%w: %s of run %s is over: %s", machine.ErrState, machine.OpName(identity), run.ID, res.Text)
		}
		return q, fmt.Errorf("%w: %s has answered %s of run %s already: %s", machine.ErrState, a.By, machine.OpName(identity), run.ID, a.Choice)
	}
	if run.Outcome != machine.Undecided {
		return q, fmt.Errorf("%w: run %s is %s, and asks nothing", machine.ErrState, run.ID, run.State())
	}
	var asks []string
	for pending := range run.Flow().Pending() {
		if name, ok := strings.CutPrefix(pending, machine.AskKind+":"); ok {
			asks = append(asks, strconv.Quote(name))
		}
	}
	if len(asks) == 0 {
		return q, fmt.Errorf("%w: run %s does not ask %q now, and has no other open question", machine.ErrState, run.ID, machine.OpName(identity))
	}
	slices.Sort(asks)
	return q, fmt.Errorf("%w: run %s does not ask %q now; it asks %s", machine.ErrState, run.ID, machine.OpName(identity), strings.Join(asks, ", "))
}

// accepts returns why the answer is not possible.
func accepts(q *info.Question, a *info.Answer) error {
	if len(q.Who) > 0 && !slices.Contains(q.Who, a.By) {
		return fmt.Errorf("%q %w: it is for %s", a.By, ErrMayNotAnswer, strings.Join(q.Who, ", "))
	}
	if !slices.Contains(q.Choices, a.Choice) {
		return fmt.Errorf("%q is %w: %s", a.Choice, ErrNotAChoice, strings.Join(q.Choices, ", "))
	}
	return nil
}

// keyed answers the run of the workflow that has the key, if it is in this shard.
func (c commands) keyed(ctx context.Context, workflow, key string) ([]string, error) {
	return ask(ctx, &c.sh.requests, func(t Recorder) ([]string, error) {
		if id, of, ok := t.State().Keyed(key); ok && of == workflow {
			return []string{id.String()}, nil
		}
		return nil, nil
	})
}

// signal carries out engine.Engine.Signal. If another run continues the run, it returns the id of that
// one, and has sent nothing.
func (c commands) signal(ctx context.Context, id string, s *Signal, once bool) (next []string, err error) {
	if err := c.checkSignal(s); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("signal %s: %w", s.Name, err)
		}
	}()
	run, err := machine.ParseID(id)
	if err != nil {
		return nil, fmt.Errorf("%w: %q", machine.ErrUnknown, id)
	}
	err = c.sh.Do(ctx, func(t Recorder) error { return c.recordSignal(t, run, s, once) })
	if !errors.Is(err, machine.ErrUnknown) {
		return nil, err
	}
	r, err := queries(c).load(ctx, id)
	switch {
	case err != nil:
		return nil, err
	case r.Flow().HasSignal(s.ID) && once:
		return nil, ErrSignalUsed
	case r.Flow().HasSignal(s.ID):
		return nil, nil
	case r.Continued():
		return []string{r.ReplacedBy().String()}, nil
	}
	return nil, fmt.Errorf("%w: run %s is %s, and takes no signals", machine.ErrState, id, r.State())
}

// checkSignal returns why a signal can't be stored.
func (c commands) checkSignal(s *Signal) error {
	if s == nil {
		return fmt.Errorf("%w: a signal without a name", ErrCall)
	}
	if err := errors.Join(workflow.CheckName(s.Name), CheckSignalID(s.ID)); err != nil || !json.Valid(s.Data) || len(s.Data) > c.sh.process.Settings.MaxPayload || strings.Contains(s.By, "\x00") {
		return fmt.Errorf("%w: signal %.200q with %d bytes: %w", ErrCall, s.Name, len(s.Data), cmp.Or(err, workflow.ErrInput))
	}
	return nil
}

// recordSignal records a signal, unless the run has got one with its id before.
func (c commands) recordSignal(t Recorder, run machine.ID, s *Signal, once bool) error {
	r, ok := t.State().Run(run)
	if ok && r.Continued() {
		return machine.ErrUnknown // its stored state says what to do
	}
	sent := &machine.Signal{Run: run, Name: s.Name, ID: s.ID, By: s.By, Data: s.Data}
	if ok && r.IsFlow() {
		sent.Former = c.sh.process.Handlers.EditsOf(c.sh.dispatcher.functionOf(r)).EarlierNames(s.Name)
	}
	rec, known, err := t.State().Signal(sent, t.Now())
	if err == nil && !known {
		t.Record(rec)
		c.sh.dispatcher.calls.Signaled(t, run, &rec)
	}
	if known && once {
		return ErrSignalUsed
	}
	return err
}
