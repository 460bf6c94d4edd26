package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/retry"
)

// FlowFunc is the function of flows that are described by data: see [CallFunction]. The output
// must be JSON; nil means null.
type FlowFunc func(f *Flow, input json.RawMessage) (output []byte, err error)

// CallFunction makes the workflow a flow that is described by data: it calls a function of
// [Config.Functions] by its name. The function gets the arguments as [Task.Args] of [Flow.Task];
// they are stored with the definition. So a run keeps the arguments that it began with, and
// continues with them even if the workflow is changed or is not registered any more.
func CallFunction(function string, args any) Part {
	return func(b *builder) {
		s := newStep(machine.Function, nil)
		s.Handler = functionPrefix + function
		if function == "" {
			s.errs = append(s.errs, errors.New("function: no name"))
		}
		text, err := json.Marshal(args)
		if err != nil {
			s.errs = append(s.errs, fmt.Errorf("arguments: %w", err))
		}
		s.Args, b.w.def.Flow = text, true
		b.add(s)
	}
}

// functionPrefix is the prefix of the handler of a flow that is described by data.
const functionPrefix = "function:"

// Operation declares an operation of a flow by its name. The declared operations are what
// [Workflow.Steps] returns, with kind as their handler, [After], [Policy], [WithPolicy] and
// [MaxLost]. They are stored with the definition, and [Info.Declared] has them. [Concurrency] limits
// how many attempts of the operations with this name run at once, in all runs of the flow together;
// the items of a [Map] count, too. The other options of an operation are those that the function
// calls it with.
func Operation(name, kind string, opts ...StepOption) Part {
	return func(b *builder) {
		s := &stepBuilder{Step: machine.Step{Name: name}}
		s.errs = append(s.errs, checkName(name))
		for _, opt := range opts {
			opt(s)
		}
		s.parsePolicy()
		if !b.w.def.Flow {
			s.errs = append(s.errs, errors.New("only a flow has operations"))
		}
		if names := s.undeclarable(); len(names) > 0 {
			s.errs = append(s.errs, fmt.Errorf("%s: only After, Policy, WithPolicy, MaxLost and Concurrency are options of a declared operation", strings.Join(names, ", ")))
		}
		for _, err := range s.errs {
			if err != nil {
				b.errs = append(b.errs, fmt.Errorf("operation %q: %w", name, err))
			}
		}
		info := StepInfo{Name: name, Needs: s.Needs, Handler: kind, MaxLost: s.MaxLost}
		if s.Policy != (retry.Policy{}) {
			info.Policy = s.Policy.String()
		}
		b.w.declared = append(b.w.declared, info)
		b.w.def.Ops = append(b.w.def.Ops, machine.DeclaredOp{Name: name, Kind: kind, Needs: s.Needs})
		if s.concurrency > 0 {
			b.w.steps[limitedOp(name)] = s.concurrency
		}
	}
}

// undeclarable returns the names of the options that a declared operation can't have, because only
// the call of the operation has an effect with them.
func (s *stepBuilder) undeclarable() (names []string) {
	names = s.opOptions()
	if s.version != "" {
		names = append(names, "Version")
	}
	if s.Heartbeat != 0 {
		names = append(names, "HeartbeatTimeout")
	}
	if s.Windows != 0 {
		names = append(names, "MaxWindows")
	}
	return names
}

// limitedOp returns the name of the step in the definition of an operation that has a limit of its
// own. Operations without a limit share one name, and so one queue.
func limitedOp(name string) string { return machine.Operation + "/" + name }

// opStep returns the name of the step in the definition of an operation.
func (w *Workflow) opStep(name string) string {
	if len(w.steps) > 1 && w.steps[limitedOp(name)] > 0 { // one is the function
		return limitedOp(name)
	}
	return machine.Operation
}

// Task returns what attempts of the run's operations know about the run: Run, Workflow, Key,
// Origin, OriginKey, Created, Source, Input, and the Args of [CallFunction]. The other fields are
// not set.
func (f *Flow) Task() Task { return f.call.task }

// taskOf returns the fields of a Task that describe the run.
func taskOf(run *machine.Run) Task {
	t := Task{
		Run: run.ID.String(), Workflow: run.Def.Name, Key: run.Key, Created: time.Unix(0, run.Created), Source: run.Source(),
		Args: run.Def.Steps[0].Args, Input: run.Input,
	}
	t.Origin = t.Run
	origin, key, _ := run.Origin()
	if t.OriginKey = key; origin != run.ID {
		t.Origin = origin.String()
	}
	return t
}

// Registered returns a workflow for [Child] and [Children] that stands for the one which is
// registered with this name when the child is started. If there is none then, the run waits in
// state needs-handler until there is one.
func Registered(name string) *Workflow {
	return &Workflow{def: &machine.Definition{Name: name}, registered: true}
}

// resolve returns the workflow that w stands for: see [Registered]. It is nil if there is none.
func (r *registry) resolve(w *Workflow) (*Workflow, error) {
	if !w.registered {
		return w, r.admit(w)
	}
	return r.workflow(w.Name()), nil
}
