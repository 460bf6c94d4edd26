package engine

import "github.com/tideover/tideover/engine/internal/workflow"

// An option has the type of all that it fits: passing it to something else is an error of the compiler. An
// option that fits in several places has a type that embeds theirs.
type (
	// StepOption is an option of [Step].
	StepOption interface {
		set(*workflow.Options)
		forStep()
	}

	// CallOption is an option of [Call].
	CallOption interface {
		StepOption
		forCall()
	}

	// DeclaredOption is an option of [Operation].
	DeclaredOption interface {
		CallOption
		forDeclared()
	}

	// BranchOption is an option of [Branch].
	BranchOption interface {
		DeclaredOption
		forBranch()
	}

	// FunctionOption is an option of [Function].
	FunctionOption interface {
		StepOption
		forFunction()
	}

	// DoOption is an option of [Do].
	DoOption interface {
		MapOption
		DoUndoOption
	}

	// DoUndoOption is an option of [DoUndo].
	DoUndoOption interface {
		MapUndoOption
		forDoUndo()
	}

	// MapOption is an option of [Map] and [Collect].
	MapOption interface {
		MapUndoOption
		forMap()
	}

	// MapUndoOption is an option of [MapUndo].
	MapUndoOption interface {
		set(*workflow.Options)
		forMapUndo()
	}

	// AwaitOption is an option of [Await] and [Ask].
	AwaitOption interface {
		set(*workflow.Options)
		forAwait()
	}

	// ChildOption is an option of [Child].
	ChildOption interface {
		ChildrenOption
		forChild()
	}

	// ChildrenOption is an option of [Children].
	ChildrenOption interface {
		set(*workflow.Options)
		forChildren()
	}

	// AttemptOption is an option of all that has attempts, and of [Operations] and [Attempts].
	AttemptOption interface {
		CallOption
		DoOption
	}

	// RetryOption is an [AttemptOption] that also fits where no attempt has a limit of its own.
	RetryOption interface {
		AttemptOption
		DeclaredOption
		FunctionOption
	}

	// ItemsOption is an option of operations with several items.
	ItemsOption interface {
		MapOption
		ChildrenOption
	}

	// KeyOption is an option of all operations, and the only one of [Sleep], [Now], [Random] and [Skip].
	KeyOption interface {
		DoOption
		AwaitOption
		ChildOption
	}
)

type anyOption interface{ set(*workflow.Options) }

// option is what all options are. The function that makes one returns the type of what it fits.
type option func(*workflow.Options)

func (o option) set(to *workflow.Options) { o(to) }

func (option) forStep()     {}
func (option) forCall()     {}
func (option) forDeclared() {}
func (option) forBranch()   {}
func (option) forFunction() {}
func (option) forDoUndo()   {}
func (option) forMap()      {}
func (option) forMapUndo()  {}
func (option) forAwait()    {}
func (option) forChild()    {}
func (option) forChildren() {}

// Attempts makes one option of several, for programs that get them from elsewhere: it fits [Operations],
// and also [Step], [Do], [Map] and all else that has attempts.
func Attempts(opts ...AttemptOption) AttemptOption {
	return option(func(s *workflow.Options) { apply(s, opts) })
}

// apply sets the options.
func apply[O anyOption](to *workflow.Options, opts []O) *workflow.Options {
	for _, opt := range opts {
		opt.set(to)
	}
	return to
}
