package control

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/surrogate"
)

// maxSignalID is the longest id of a signal, in bytes.
const maxSignalID = 256

// validate returns an error for a wrong field, and chooses an id if there is none.
func (s *Signal) validate() error {
	if err := CheckSignalName(s.Name); err != nil {
		return err
	}
	if s.ID == "" {
		s.ID = rand.Text()
	}
	if len(s.ID) > maxSignalID || !utf8.ValidString(s.ID) || strings.ContainsFunc(s.ID, func(r rune) bool { return r < ' ' }) {
		return Invalid("id", "must have at most %d bytes of UTF-8 without control characters", maxSignalID)
	}
	return CheckPayload("payload", s.Data)
}

// CheckSignalName returns an error if a signal can't have the name.
func CheckSignalName(name string) error {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."
	if name == "" || len(name) > 128 || strings.Trim(name, letters) != "" {
		return Invalid("name", "%q must have 1 to 128 letters, digits, '-', '_' and '.'", Excerpt(name))
	}
	return nil
}

// CheckPayload returns an error about the field if the text is not valid JSON. No text is valid, too.
func CheckPayload(field string, text json.RawMessage) error {
	if len(text) == 0 {
		return nil
	}
	var v json.RawMessage
	if err := json.Unmarshal(text, &v); err != nil {
		return Invalid(field, "is not JSON: %v", err)
	}
	if !utf8.Valid(text) {
		return Invalid(field, "is not UTF-8")
	}
	if at, half := surrogate.Next(text); at >= 0 {
		return Invalid(field, `\u%04x is only half of a surrogate pair: send both halves, or the character itself`, half)
	}
	return nil
}

// Signal sends a signal to a run, and returns when it is stored. by is the verified name of the
// sender.
func (r *Runs) Signal(ctx context.Context, id string, s Signal, by string) (Signaled, error) {
	if err := s.validate(); err != nil {
		return Signaled{}, err
	}
	err := r.engine.Signal(ctx, id, s.Name, s.Data, engine.ID(s.ID), engine.SentBy(by))
	return Signaled{s.Name, s.ID}, r.withOutcome(ctx, id, err)
}

// SignalKey is like [Runs.Signal] for the run of a workflow that has a key.
func (r *Runs) SignalKey(ctx context.Context, to engine.RunKey, s Signal, by string) (Signaled, error) {
	if err := s.validate(); err != nil {
		return Signaled{}, err
	}
	err := r.engine.SignalKey(ctx, to, s.Name, s.Data, engine.ID(s.ID), engine.SentBy(by))
	if errors.Is(err, engine.ErrState) {
		if ids, e := r.engine.Find(ctx, to.Key, 1); e == nil && len(ids) == 1 {
			err = r.withOutcome(ctx, ids[0], err)
		}
	}
	return Signaled{s.Name, s.ID}, err
}

// withOutcome adds the run to the error of an operation that the run refused because it has ended. It
// returns all other errors, and nil, unchanged.
func (r *Runs) withOutcome(ctx context.Context, id string, err error) error {
	if !errors.Is(err, engine.ErrState) {
		return err
	}
	info, e := r.engine.Get(ctx, id)
	if e != nil || !info.Finished() {
		return err
	}
	out := AsError(err)
	out.Outcome = NewOutcome(info)
	return out
}

// Answer answers a question of a run. by is the verified name of the person.
func (r *Runs) Answer(ctx context.Context, id, question string, a Reply, by string) error {
	if a.Choice == "" {
		return Invalid("choice", "is missing")
	}
	if strings.ContainsRune(a.Words, 0) {
		return Invalid("words", "must not contain NUL characters")
	}
	err := r.engine.Answer(ctx, id, question, engine.Answer{Choice: a.Choice, By: by, Words: a.Words})
	if errors.Is(err, engine.ErrTooLarge) {
		return Invalid("words", "%v", err)
	}
	return r.withOutcome(ctx, id, err)
}

// Questions returns the operations of a run that wait for the answer to a question.
func Questions(i *engine.Info) (open []*engine.StepInfo) {
	for k := range i.Steps {
		if s := &i.Steps[k]; s.Question != nil && s.Status == "waiting" && !i.Finished() {
			open = append(open, s)
		}
	}
	return open
}

// AnswerOf returns the answer to the question of an operation. ok is false if there is none.
func AnswerOf(s *engine.StepInfo) (a engine.Answer, ok bool) {
	if s.Question == nil || s.Status == "waiting" {
		return a, false
	}
	if len(s.Output) > 0 && json.Unmarshal(s.Output, &a) == nil {
		return a, true
	}
	if s.Status != "failed" || s.Ended == nil || s.Question.Default == "" {
		return engine.Answer{}, false // its run has ended before
	}
	return engine.Answer{Choice: s.Question.Default}, true // there was no answer in time
}

// OnlyQuestion returns the name of the open question of a run. If there is none, or there are several,
// it returns an error that says so.
func OnlyQuestion(i *engine.Info) (string, error) {
	switch open := Questions(i); len(open) {
	case 0:
		return "", fmt.Errorf("run %s has no open question", i.ID)
	case 1:
		return open[0].Name, nil
	default:
		names := make([]string, len(open))
		for k, s := range open {
			names[k] = s.Name
		}
		return "", fmt.Errorf("run %s has several open questions: name one of %s", i.ID, strings.Join(names, ", "))
	}
}

// OnlyLook says why a user who may change nothing can't do something.
const OnlyLook = "you may only look"

// MayAnswer returns why the caller with this name may not answer the question; "" if the caller may.
func MayAnswer(q *engine.Question, name string, readOnly bool) string {
	switch {
	case readOnly:
		return OnlyLook
	case len(q.Who) > 0 && !slices.Contains(q.Who, name):
		return fmt.Sprintf("you are %s, and the question is for %s", name, strings.Join(q.Who, ", "))
	}
	return ""
}
