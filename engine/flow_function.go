package engine

import "github.com/tideover/tideover/engine/internal/workflow"

// CallFunction makes the workflow a flow that is described by data: it calls a function of
// [Config.Functions] by its name. The function gets the arguments as [Task.Args] of [Flow.Task];
// they are stored with the definition. So a run keeps the arguments that it began with, and
// continues with them even if the workflow is changed or is not registered any more.
func CallFunction(function string, args any) Part {
	return func(b *builder) { b.core.SetFlowByName(function, args) }
}

// Operation declares an operation of a flow by its name. The declared operations are what
// [Workflow.Steps] returns, with kind as their handler, [After], [Policy], [WithPolicy] and
// [MaxLost]. They are stored with the definition, and [Info.Declared] has them. [Concurrency] limits
// how many attempts of the operations with this name run at once, in all runs of the flow together;
// the items of a [Map] count, too. The other options of an operation are those that the function
// calls it with.
func Operation(name, kind string, opts ...DeclaredOption) Part {
	return func(b *builder) { b.core.Declare(apply(workflow.NewDeclared(name), opts), kind) }
}

// Task returns what attempts of the run's operations know about the run: Run, Workflow, Key,
// Origin, OriginKey, Created, Source, Input, and the Args of [CallFunction]. The other fields are
// not set.
func (f *Flow) Task() Task { return f.f.Task() }

// Registered returns a workflow for [Child] and [Children] that stands for the one which is
// registered with this name when the child is started. If there is none then, the run waits in
// state needs-handler until there is one.
func Registered(name string) *Workflow {
	w := new(Workflow)
	w.core.SetRegistered(name)
	return w
}
