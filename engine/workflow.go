package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/tideover/tideover/engine/internal/workflow"
	"github.com/tideover/tideover/retry"
)

// DefaultPolicy is the name of the policy of a step without [Policy] or [WithPolicy]: three
// attempts, one second apart.
const DefaultPolicy = workflow.DefaultPolicy

// DefaultMaxLost is the limit of a step without [MaxLost].
const DefaultMaxLost = workflow.DefaultMaxLost

// Workflow is a set of steps and their dependencies. It is immutable, and several engines
// may use the same one.
type Workflow struct{ core workflow.Workflow }

// coreOf returns what the rest of the engine knows of the workflow; nil for nil.
func coreOf(w *Workflow) *workflow.Workflow {
	if w == nil {
		return nil
	}
	return &w.core
}

// coresOf returns what the rest of the engine knows of the workflows.
func coresOf(workflows []*Workflow) []*workflow.Workflow {
	list := make([]*workflow.Workflow, len(workflows))
	for i, w := range workflows {
		list[i] = coreOf(w)
	}
	return list
}

// Name returns the workflow's name.
func (w *Workflow) Name() string { return w.core.Name() }

// Timeout returns how long a run without [RunTimeout] may take; 0 means no limit.
func (w *Workflow) Timeout() time.Duration { return w.core.Def.Timeout }

// Steps returns the definitions of the steps, or the operations that [Operation] has declared. Only
// the fields Name, Needs, Policy, Handler and MaxLost are set.
func (w *Workflow) Steps() []StepInfo { return w.core.Steps() }

// IsFlow reports whether the workflow is a function that calls operations, and not a set of steps.
func (w *Workflow) IsFlow() bool { return w.core.Def.Flow }

// InputType returns the type of the input of the workflow's functions; nil if it has no steps that
// are functions.
func (w *Workflow) InputType() reflect.Type { return w.core.InputType() }

// DefaultInput returns the input of a run that is started now without an input: the result of the
// function of [PrepareInput], or nil without one.
func (w *Workflow) DefaultInput() (json.RawMessage, error) {
	return w.core.Prepare(nil, time.Time{})
}

// Limited reports whether the workflow limits its runs ([MaxRuns]) or attempts
// ([Concurrency]). In a cluster, all runs of a workflow that had a limit when it was first
// started are in one shard.
func (w *Workflow) Limited() bool { return w.core.Limits.Limited() }

// Part is a part of a workflow: a step, or an option of the whole workflow.
type Part func(*builder)

type builder struct{ core *workflow.Builder }

// NewWorkflow returns a workflow with the given steps and options. Its error lists
// everything that is wrong: names, policies, dependencies that do not exist or form a
// cycle, input types that differ, types that can't be stored as JSON.
func NewWorkflow(name string, parts ...Part) (*Workflow, error) {
	w := new(Workflow)
	w.core.Public = w
	b := builder{workflow.NewBuilder(&w.core, name)}
	for _, part := range parts {
		part(&b)
	}
	if err := b.core.Finish(); err != nil {
		return nil, err
	}
	return w, nil
}

// Step is a step that calls a Go function with the run's input. All functions of a workflow
// must have the same input type In. The output is stored, so encoding/json must be able to
// write Out.
func Step[In, Out any](name string, do func(context.Context, In) (Out, error), opts ...StepOption) Part {
	return func(b *builder) {
		b.core.CallFunction(apply(workflow.NewStep(name), opts), reflect.TypeFor[In](), reflect.TypeFor[Out](), adapt(do))
	}
}

// Call is a step that is described by data: it calls a handler of [Config.Handlers] by its
// name. The handler gets the arguments as [Task.Args]; they are stored with the definition.
// nil means no arguments.
func Call(name, handler string, args any, opts ...CallOption) Part {
	return func(b *builder) { b.core.CallHandler(apply(workflow.NewStep(name), opts), handler, args) }
}

// Timeout limits how long a run of the workflow may take. A run that takes longer is dead
// then, and can be retried.
func Timeout(d time.Duration) Part {
	return func(b *builder) { b.core.SetTimeout(d) }
}

// MaxRuns limits how many runs of the workflow are in progress at once. The
// others are queued. 0 means no limit.
func MaxRuns(n int) Part {
	return func(b *builder) { b.core.ChangeLimits(func(l *workflow.Limits) { l.Runs = n }) }
}

// PrepareInput sets a function that makes the input of every run from the value that the
// run is started with. scheduled is the time of a scheduled start, and zero for other
// starts. [Engine.RetryLatest] calls the function with the prepared input of an earlier
// run, so the function must accept its own results and not change them.
func PrepareInput(prepare func(given json.RawMessage, scheduled time.Time) (json.RawMessage, error)) Part {
	return func(b *builder) { b.core.PrepareInput(prepare) }
}

// After makes the step depend on others: it begins when they have succeeded. Steps that do
// not depend on each other run concurrently.
func After(steps ...string) BranchOption {
	return option(func(s *workflow.Options) { s.Needs = append(s.Needs, steps...) })
}

// Policy sets the step's retry policy in its text form. Hedging and retry budgets are not
// possible for a step.
func Policy(text string) RetryOption {
	return option(func(s *workflow.Options) {
		s.Text = text
		if strings.TrimSpace(text) == "" {
			s.Fail(errors.New("policy: the text is empty"))
		}
	})
}

// WithPolicy sets the step's retry policy.
func WithPolicy(p retry.Policy) RetryOption {
	return option(func(s *workflow.Options) { s.Policy, s.Text = p, "" })
}

// Concurrency limits how many attempts of the step run at once, in all runs together.
// 0 means only the limit of [Config.Concurrency].
func Concurrency(n int) DeclaredOption {
	return option(func(s *workflow.Options) {
		if n < 0 {
			s.Fail(fmt.Errorf("concurrency: %d is negative", n))
		}
		s.Concurrency = n
	})
}

// HeartbeatTimeout ends an attempt that does not call [Heartbeat], [Progress] or
// [SaveProgress] for this long.
func HeartbeatTimeout(d time.Duration) AttemptOption {
	return option(func(s *workflow.Options) { s.Heartbeat = d })
}

// MaxLost limits how many attempts in a row may be lost because the process died. Lost
// attempts are made again. After more losses the step gives up, but only if no other
// attempt ran in the process when it died: another attempt may have caused it. So after
// three losses, or MaxLost if that is less, the next attempt runs alone in its process.
// 0 means that a lost attempt is never made again.
func MaxLost(n int) RetryOption {
	return option(func(s *workflow.Options) { s.MaxLost = n })
}

// MaxWindows limits how often attempts may return [Limited] before the step gives up.
// [Engine.Retry] and [Engine.Reset] reset the count. 0 means ten.
func MaxWindows(n int) AttemptOption {
	return option(func(s *workflow.Options) { s.Windows = n })
}

// Version sets a version of the step's function. Runs in progress need the version that
// they started with: if the program has another one, they wait in state needs-handler.
func Version(v string) FunctionOption {
	return option(func(s *workflow.Options) { s.Version = v })
}

// OnEnd starts a run of the workflow w when a run of this workflow ends, with any outcome.
// The input of the new run is an [Ended]. The new run is stored together with the end, so
// exactly one is started. It is started only the first time that a run ends: a dead run that
// is retried or canceled starts no second one. With [OnGiveUp] in the same workflow, a run
// that dies starts both.
//
// A run ends when its outcome is decided. Attempts of a run that was canceled or timed out
// may still be running then.
//
// OnEnd is part of the definition that a run keeps until its end. So the new run is started
// even if w is no longer registered; it waits in state needs-handler then.
func OnEnd(w *Workflow) Part {
	return func(b *builder) { b.core.OnEnd(coreOf(w)) }
}

// OnGiveUp starts a run of the workflow w, the follow-up run, whenever a run of this
// workflow dies. The input of the follow-up run is a [GaveUp]. The follow-up run is stored
// together with the death, so exactly one is started for each death.
//
// Large inputs and outputs are not stored again. They are read from the dead run when an
// attempt of the follow-up run begins. The dead run is kept until the follow-up run has
// ended. But a dead run that is canceled or replayed is kept only for Config.Retention. If
// it does not exist any more, the attempt fails with an error that says so.
func OnGiveUp(w *Workflow) Part {
	return func(b *builder) { b.core.OnGiveUp(coreOf(w)) }
}
