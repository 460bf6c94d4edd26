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

// Renamed says that an operation has another name since an earlier version of the function. Runs
// with a stored result of the old name use it for the new name. A run that waits for a signal of the
// old name gets one of either name. Call it at the beginning of the function, without a condition. A
// name with a key is written as name[key].
func Renamed(f *Flow, before, now string) {
	f.f.Renamed(before, now)
}

// Removed says that the function does not call operations with these names any more. Their stored
// results are not used, and a run that waits in such an operation continues. A name with a key is
// written as name[key]; that of a [Map] includes its operations. Call it at the beginning of the
// function, without a condition: a run that waits is called again when a call of the function has
// said the name.
func Removed(f *Flow, names ...string) {
	f.f.Removed(names)
}

// Added says that the function calls operations with these names since an earlier version. A run
// that has passed the place of such an operation executes it when it is called again. Without
// Added, such a run waits in state needs-handler. A run that has not come to that place, or
// has executed the operation already, needs no Added. A name with a key is written as name[key]; that
// of a [Map] includes its operations.
func Added(f *Flow, names ...string) {
	f.f.Added(names)
}
