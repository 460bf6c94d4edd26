package engine

import (
	"context"
	"crypto/rand"
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

// Await waits for a signal with this name, and returns its payload: see [Engine.Signal]. A
// signal that came before is taken at once; of several, the oldest one. To wait for signals of
// the same name more than once, use [ForKey].
//
// The wait survives the process, and costs no goroutine and no memory beside the state of the
// run. With [Within] it ends after that time with an [*OpError] that matches [ErrNoEvent]. A
// signal that comes later is kept for the next Await.
func Await[T any](f *Flow, name string, opts ...AwaitOption) (v T, err error) {
	o, err := callOperation(f, machine.AwaitKind, name, opts)
	if err != nil {
		return v, err
	}
	defer f.f.Leave()
	if f.f.Stored(&o) {
		return resultOf[T](&o)
	}
	return perform[T](f, o.Wait(o.Within, nil))
}

// Within limits how long [Await] waits for its signal. Without it there is no limit.
func Within(d time.Duration) AwaitOption {
	return option(func(s *workflow.Options) {
		if d <= 0 {
			s.Fail(fmt.Errorf("within: %v is not positive", d))
		}
		s.Within = d
	})
}

// SignalOption is an option of [Engine.Signal].
type SignalOption func(*outgoingSignal) error

// outgoingSignal is a signal to send.
type outgoingSignal struct {
	shard.Signal
	once bool
}

// ID sets the id of a signal. Of two signals with the same id, a run gets only one. So a sender
// that does not know whether a signal has arrived can send it again.
func ID(id string) SignalOption {
	return func(s *outgoingSignal) error {
		s.ID = id
		return shard.CheckSignalID(id)
	}
}

// Once makes a signal an error whose id the run has got before: [ErrSignalUsed]. Without Once,
// such a signal is accepted and ignored.
func Once() SignalOption {
	return func(s *outgoingSignal) error {
		s.once = true
		return nil
	}
}

// SentBy sets the name of the sender of a signal, for the history of the run.
func SentBy(who string) SignalOption {
	return func(s *outgoingSignal) error {
		s.By = strings.ReplaceAll(shard.CallerName(who), "\x00", "")
		return nil
	}
}

// RunKey identifies a run by its workflow and its [Key].
type RunKey struct{ Workflow, Key string }

// Signal sends a signal to a run of a flow. The payload is any value that encoding/json can
// write; a json.RawMessage is used as it is. When Signal returns nil, the signal is stored, and
// the run's next [Await] with this name gets it: signals of one name arrive in the order in
// which they were sent.
//
// A run keeps at most 1 000 signals, and 256 KiB of them, that it has not waited for. Then the
// error is [ErrTooManySignals]. A run that has ended takes no signals: the error is an
// [ErrState] that names the outcome. If the run was continued by [Again], the run that continues
// it gets the signal.
func (e *Engine) Signal(ctx context.Context, run, name string, payload any, opts ...SignalOption) error {
	s, err := newSignal(name, payload, e.cfg.MaxPayload, opts)
	if err != nil {
		return err
	}
	return e.signal(ctx, run, s)
}

// SignalKey is [Engine.Signal] for the run that has a key.
func (e *Engine) SignalKey(ctx context.Context, to RunKey, name string, payload any, opts ...SignalOption) error {
	s, err := newSignal(name, payload, e.cfg.MaxPayload, opts)
	if err != nil {
		return err
	}
	run, err := e.router.Keyed(ctx, to.Workflow, to.Key)
	if err != nil {
		return fmt.Errorf("signal %s: %w", name, err)
	}
	return e.signal(ctx, run, s)
}

// newSignal returns a signal with these options. It has an id, so that it can be sent again if a
// process of the cluster does not answer.
func newSignal(name string, payload any, most int, opts []SignalOption) (*outgoingSignal, error) {
	if err := workflow.CheckName(name); err != nil {
		return nil, fmt.Errorf("signal: %w", err)
	}
	s := &outgoingSignal{Signal: shard.Signal{Name: name, ID: rand.Text()}}
	for _, opt := range opts {
		if err := opt(s); err != nil {
			return nil, fmt.Errorf("signal %s: %w", name, err)
		}
	}
	text, ok := payload.(json.RawMessage)
	if !ok {
		var err error
		if text, err = json.Marshal(payload); err != nil {
			return nil, fmt.Errorf("signal %s: payload: %w", name, err)
		}
	}
	switch {
	case len(text) == 0:
		text = json.RawMessage("null")
	case ok && !json.Valid(text):
		return nil, fmt.Errorf("signal %s: payload: not JSON", name)
	case len(text) > most:
		return nil, fmt.Errorf("signal %s: payload: %w: %d bytes, at most %d; store it elsewhere and send a reference", name, ErrTooLarge, len(text), most)
	}
	s.Data = text
	return s, nil
}

// signal sends a signal to a run, or to the run that continues it.
func (e *Engine) signal(ctx context.Context, run string, s *outgoingSignal) error {
	op := shard.OpSignal
	if s.once {
		op = shard.OpSignalOnce // which is not repeated: the second time would find the signal of the first
	}
	for {
		a, err := e.router.Of(ctx, run, &shard.Call{Op: op, Signal: &s.Signal})
		if err != nil || len(a.IDs) == 0 {
			return err
		}
		run = a.IDs[0]
	}
}

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
	a, err = perform[Answer](f, o.Wait(o.Within, text))
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
