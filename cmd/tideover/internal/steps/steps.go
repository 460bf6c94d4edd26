package steps

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/account"
	"github.com/tideover/tideover/cmd/tideover/internal/guard"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/secret"
	"github.com/tideover/tideover/internal/shortage"
	"github.com/tideover/tideover/retry"
)

// Grace is how long a command may take to end after SIGTERM. It is less than the engine's
// grace period, after which an attempt counts as stuck.
const Grace = 5 * time.Second

// Runner runs steps.
type Runner struct {
	Self    string                 // path of this program, which is started again as the guard
	Locks   string                 // existing folder for the lock files of commands
	Secrets func() secret.Resolver // returns the resolver of the current configuration

	// Provider returns the transport to a provider of the configuration, with its keys,
	// health gates and limits. The transport does not retry; the engine does.
	Provider func(name string) http.RoundTripper

	// Hidden returns the names of variables that commands never inherit; nil means
	// that there are none.
	Hidden func() []string

	// Inherit has the variables of this process that all commands inherit, in addition to
	// those that their steps name.
	Inherit guard.Inherit

	// Accounts has the known limits of accounts; nil means that steps ignore accounts.
	Accounts *account.Store

	// Redactor masks the values of secrets in stored outputs.
	Redactor *secret.Redactor
}

// Handlers returns the handlers that an engine needs for these steps.
func (r *Runner) Handlers() map[string]engine.Handler {
	return map[string]engine.Handler{
		handlerCommand: r.handle(r.command, r.data),
		handlerHTTP:    r.handle(r.request, r.data),
		handlerGiveUp:  r.handle(r.either, r.giveUpData),
	}
}

// Handler returns a handler for steps of all kinds, for callers that wrap it in a handler
// of their own.
func (r *Runner) Handler() engine.Handler { return r.handle(r.either, r.data) }

type (
	doer    func(context.Context, *Step, Data, *engine.Task) (result, error)
	dataFor func(*engine.Task) (Data, error)
)

// handle returns a handler that decodes the stored step, gets its data by data, and runs
// it by do.
func (r *Runner) handle(do doer, data dataFor) engine.Handler {
	return func(ctx context.Context, t *engine.Task) ([]byte, error) {
		s := new(Step)
		if err := json.Unmarshal(t.Args, s); err != nil {
			return nil, retry.Permanent(fmt.Errorf("stored step: %w", err))
		}
		d, err := data(t)
		if err != nil {
			return nil, retry.Permanent(err)
		}
		res, err := do(ctx, s, d, t)
		if err != nil {
			return nil, Postpone(err, t)
		}
		return res.encode()
	}
}

func (r *Runner) either(ctx context.Context, s *Step, d Data, t *engine.Task) (result, error) {
	if s.IsHTTP() {
		return r.request(ctx, s, d, t)
	}
	return r.command(ctx, s, d, t)
}

// data returns the data for the templates of a step.
func (r *Runner) data(t *engine.Task) (Data, error) {
	outputs := map[string]json.RawMessage{}
	for _, step := range t.Before() {
		text, err := t.Output(step)
		if err != nil {
			return Data{}, err
		}
		outputs[step] = text
	}
	return r.newData(t.Input, outputs, RunInfo{
		ID: t.Run, Workflow: t.Workflow, Key: t.Key, Origin: t.Origin, OriginKey: t.OriginKey, Attempt: t.Attempt, Started: t.Created,
	})
}

// newData returns the data for the templates of a step, from the stored input of the run
// and the stored outputs of its steps.
func (r *Runner) newData(input json.RawMessage, outputs map[string]json.RawMessage, run RunInfo) (Data, error) {
	d := Data{Steps: map[string]StepResult{}, Secrets: r.Secrets(), Schedule: scheduledFor(run.OriginKey), Run: run}
	var err error
	if d.Input, err = decode(input); err != nil {
		return d, fmt.Errorf("input of the run: %w", err)
	}
	for step, text := range outputs {
		if d.Steps[step], err = stepResult(text); err != nil {
			return d, fmt.Errorf("result of %q: %w", step, err)
		}
	}
	return d, nil
}

// giveUpData returns the data for the templates of on-give-up: the run that gave up, the
// reason, and the results of its steps.
func (r *Runner) giveUpData(t *engine.Task) (Data, error) {
	var g engine.GaveUp
	if err := json.Unmarshal(t.Input, &g); err != nil {
		return Data{}, fmt.Errorf("input of the run: %w", err)
	}
	if g.Origin == "" { // the run is neither a replay nor a rerun
		g.Origin, g.OriginKey = g.Run, g.Key
	}
	return r.newData(g.Input, g.Outputs, RunInfo{
		ID: g.Run, Workflow: g.Workflow, Key: g.Key, Origin: g.Origin, OriginKey: g.OriginKey, Attempt: g.Attempts, Started: g.Created,
		Step: g.Step, Error: g.Error, Reason: g.Reason,
	})
}

// Postpone returns the error of an attempt. If its cause is a shortage of resources on this machine, it returns an
// error that postpones the step instead, so that the attempt does not count.
func Postpone(err error, t *engine.Task) error {
	if !shortage.Is(err) {
		return err
	}
	return engine.Snooze(shortage.Delay(t.Total-t.Attempt), shortage.Note(err))
}

var errTrailing = errors.New("something follows the JSON value")

// scheduledFor returns the time that a run was scheduled for, which is part of its key. It
// is zero for a run that no schedule started.
func scheduledFor(key string) time.Time {
	if !strings.HasPrefix(key, "schedule/") {
		return time.Time{}
	}
	at, _ := time.Parse(time.RFC3339, key[strings.LastIndexByte(key, '/')+1:])
	return at
}
