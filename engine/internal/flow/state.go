// Package flow calls the functions of flows. A function runs in a goroutine of its own, with a [Flow]. The owner of
// a shard has [Calls], which knows what the functions wait for. The two share no lock: the goroutine sends a [Message] by the
// [Host], and the owner passes its [Turn] to what decides.
package flow

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tideover/tideover/engine/info"
	"github.com/tideover/tideover/engine/internal/admission"
	"github.com/tideover/tideover/engine/internal/goroutine"
	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/replay"
	"github.com/tideover/tideover/engine/internal/workflow"
)

// Host is what the goroutine of a function may use of its shard.
type Host interface {
	// Send sends a message to the owner. It returns false if the owner has stopped, or stopped is
	// closed first. The owner handles the messages of a call in their order.
	Send(m *Message, stopped <-chan struct{}) bool

	// CompleteInput returns an input, of which parts may be stored with another run.
	CompleteInput(ctx context.Context, input json.RawMessage) (json.RawMessage, error)

	// ChildShard returns the shard of the children of a workflow if they may be in another one than their
	// parent; else -1.
	ChildShard(ctx context.Context, w *workflow.Workflow) (int, error)

	// FormerChild returns the child that another run had for an operation, and the run that this one repeats
	// itself; zero for none.
	FormerChild(ctx context.Context, run machine.ID, of OperationName) (former machine.FormerChild, previous machine.ID, err error)

	// Stuck counts a function that does not end although its call was stopped, and Returned says that it has
	// returned.
	Stuck(run machine.ID, call int)
	Returned(run machine.ID, call int)
}

// OperationName names an operation that starts a child.
type OperationName struct {
	Identity string
	Earlier  []string // identities that it had before
	Slot     int      // slot of the child
}

// Attempt is an attempt of an operation that the goroutine of the function makes.
type Attempt interface{ Make() }

// Settings are what the calls of functions of a shard have in common.
type Settings struct {
	Host      Host
	Registry  *workflow.Registry
	Admission *admission.Shared
	Replay    *replay.Log      // not nil: the shard only judges how code would continue a run
	Watch     *goroutine.Watch // not nil: a test, which finds all goroutines that must not use a flow
	Running   *sync.WaitGroup  // counts the goroutines of functions
	Logger    *slog.Logger

	Shard       int // number of the shard
	Shards      int // number of all shards
	IsClustered bool
	MaxPayload  int
	Grace       time.Duration
	Redact      func(string) string
	ErrorText   func(string) string // makes the text of an error as it is stored
}

// report reports how code would continue the run of a replay.
func (s *Settings) report(v replay.Verdict) {
	if s.Replay != nil {
		s.Replay.Report(v)
	}
}

// Message is what the goroutine of a function tells the owner. Those that are sent often are parts
// of the group or the call.
type Message struct {
	kind   messageKind
	call   *call
	group  *Group          // of groupCalled
	op     *machine.OpCall // of opRecorded
	result *machine.Result // of functionFailed
}

// messageKind says what a Message is about.
type messageKind uint8

const (
	groupCalled    messageKind = iota // operations are to begin
	opRecorded                        // an operation has ended with its call
	branchEnded                       // a branch has ended: all others may wait for long
	functionFailed                    // the function has returned an error, and operations are undone
	callEnded                         // the call has ended
)

// call is one call of the function of a flow, in a goroutine of its own. The owner of the
// shard starts it, and ends it when the run ends or all operations that the function waits
// for have long waits.
type call struct {
	settings *Settings
	run      machine.ID
	workflow *workflow.Workflow
	number   int                            // number of the call: the attempt of step 0
	def      *machine.Definition            // of the run
	known    int64                          // registry.version when the call began
	task     info.Task                      // describes the run
	results  []byte                         // encoded results of the operations that have ended
	pending  map[string]int                 // operations that have not ended
	count    int                            // number of operations that were called
	history  []byte                         // of a run that was retried: see machine.ReadTakenBack; nil for others
	former   map[string]machine.FormerChild // of operations that a retry calls again, by identity
	previous machine.ID                     // the run that this one repeats; zero for none
	size     atomic.Int64                   // bytes of the results, including those that are being stored
	undoable atomic.Int32                   // number of operations that can be undone; valid if undoing
	ticket   admission.Ticket

	branches atomic.Pointer[scheduler] // nil before the first Branches
	leaves   atomic.Int32              // goroutines of the call that have not ended and do not wait for branches

	exiting       atomic.Bool // the goroutine is ending, because the owner has stopped it or an operation has ended it
	inAttempt     atomic.Bool // the goroutine makes an attempt of an operation
	leftToAttempt atomic.Bool // stop has reported the end, because an attempt that the goroutine makes is stuck
	ended         atomic.Bool // the end of the call was sent to the owner
	end           callEnd     // how the call ended; valid for the receiver of message
	message       Message     // reports the end
	undoing       atomic.Bool // the run undoes its operations: no other operation begins
	toUndo        atomic.Bool // the function has ended, and undoMain continues
	stopped       chan struct{}
	once          sync.Once
	grace         sync.Once // begins the grace time
	cause         error     // why the owner has stopped the call first; valid after stopped is closed

	wrong atomic.Pointer[error] // first wrong use of the flow; nil if there is none

	mu     sync.Mutex
	said   bool              // the function has set a status or a tag that is not recorded
	status string            // the status of the run
	tags   map[string]string // the tags of the run; nil if there are none

	// The owner's goroutine uses the following fields.

	since    time.Time             // when the function was called, or its last operation ended
	blocked  bool                  // there is a warning that the function is blocked
	stopping bool                  // it is being stopped: it begins no operation any more
	groups   []*Group              // operations that the function and its branches wait for; the last ones come first
	oneGroup [1]*Group             // memory for groups
	ops      opMap[int, Operation] // operations of the groups that have not ended, by number

	isProbe     bool  // it was called only because the code may have changed: see callChanged
	starting    int   // children that are being started in other shards
	signalUntil int64 // see staysForSignal; 0 if the call does not wait for a signal
}

// state is the state of a call of a function, which all its flows share.
type state struct {
	asked   askedOps                       // operations that the function has called
	ended   opResults                      // operations that have ended
	pending map[string]int                 // numbers of the operations that have not ended, by identity
	former  map[string]machine.FormerChild // of operations that a retry calls again, by identity
	renamed [][2]string                    // earlier and current names of Renamed
	removed []string                       // names of Removed
	added   []string                       // names of Added
	known   int                            // operations of earlier calls, at most: see mismatch
	found   int                            // of these, how many the function has called
	count   int                            // number of operations that the run has called
	last    string                         // identity of the operation that the function called last
	undoers []undoer                       // how to undo operations, in the order of their calls
}

// branch is a branch that is being executed.
type branch struct {
	Branch
	set     *branchSet
	flow    Flow
	waitsOn int   // number of branches that must succeed before it begins
	opens   []int // indexes of the branches that wait for this one
	started bool  // its goroutine has begun
	end     branchEnd
	result  error // what it has returned
}

// branchEnd says how a branch has ended.
type branchEnd int

const (
	notEnded  branchEnd = iota
	returned            // the function of the branch has returned
	succeeded           // it has returned nil
	failed              // it has returned an error
	cut                 // it has ended at an operation that must not begin any more
	broken              // it has ended because the call of the function is over
)

// branchSet is a call of Branches. Its fields are used by the goroutine that may run: see
// scheduler.
type branchSet struct {
	parent   *Flow // that called Branches
	branches []branch
	open     int  // branches that have begun and have not ended
	failed   bool // a branch has returned an error
	cut      bool // a branch has ended at an operation that must not begin any more
}

// scheduler lets one goroutine of a call run at a time. The others wait: for an operation, for
// the end of their branches, or for their turn.
//
// Branches begin no operation while another one can still continue with stored results: it may
// find that it has failed, and then no branch begins an operation. So a function that is called
// again begins none that it has not begun before.
type scheduler struct {
	start func(*branch) // executes a branch, in its goroutine
	quit  chan struct{} // closed when the goroutines of all branches must end

	mu      sync.Mutex
	running *Flow   // nil if all wait
	ready   []*Flow // can continue, the next one first
	gated   []*Flow // can continue when no other one is ready
	closed  bool    // quit is closed
	text    string  // how a branch has ended the function; "" if none has
	value   any     // of its panic
}

// callEnd says how a call of a function ended.
type callEnd struct {
	result   *machine.Result
	mismatch string          // not "": the run waits for other code
	again    json.RawMessage // not nil: the run ends, and another one continues with this input
	keepDone bool            // the operations of the run are not undone any more
	undoable string          // of a run that another one continues: names of the operations that can be undone
	quiet    bool            // the owner has recorded the end already
	isError  bool            // the function has returned an error
	undone   *undone         // not nil: operations were undone
}

// undone says how the undos of a run ended.
type undone struct {
	text string // why an undo failed; "" if none did
	redo []byte // the undos that a retry calls again
}

// undoer is what undoes the operations of a group.
type undoer struct {
	group   *Group
	def     *machine.Definition
	execute func(ctx context.Context, i int, stored []byte) error
	first   int // see firstNumber; valid in sortUndoers
}

// Branch is a part of the function of a flow that runs beside others.
type Branch struct {
	Name  string
	Do    func(*Flow) error
	Needs []string
	Err   error // what is wrong with the options
}

// Function is the function of a flow. The output is JSON; nil means null.
type Function func(f *Flow, input json.RawMessage) (output []byte, err error)

// Flow is a call of the function of a flow, or of one of its branches, in the goroutine of that.
type Flow struct {
	call *call
	*state
	branch  *branch     // nil for the flow of the function itself
	routine uint64      // the goroutine that may use the flow, if goroutines are watched
	busy    atomic.Bool // an operation is being called
	over    atomic.Bool // the branch has ended

	// The goroutine that may run uses the following fields: see scheduler.

	held  string        // identity of the new operation that the flow is about to begin: see hold; "" for none
	group *Group        // operations that the branch waits for; nil for none
	inner *branchSet    // branches that the flow waits for; nil for none
	wake  chan struct{} // tells the goroutine that it may run
}

// Group is a set of operations that the function waits for: one operation of Do or Sleep, or
// all of a Map.
type Group struct {
	Name     string              // identity of the operation or of the map
	kind     *machine.OpKind     // of the operations
	def      *machine.Definition // policy and limits; nil if they have no attempts
	limit    time.Duration       // how long an operation waits, at most: see Wait
	question []byte              // encoded question that a signal answers; nil for none
	child    *childStarts        // the runs that it starts; nil for none
	undoable bool                // its operations can be undone
	items    []int               // of undos of a map: the indexes of its items; nil means all
	n        int                 // number of operations
	parallel int
	isMap    bool
	All      bool // continue after a failure
	do       func(ctx context.Context, i int) ([]byte, error)
	Results  []machine.OpResult // of the operations that have ended; the others have no Name
	one      [1]machine.OpResult
	numbers  map[int]int  // numbers of the operations that were called before, by index; nil for none
	attempts chan Attempt // attempts for the goroutine of the function: see inline; closed when no operation runs and none is to begin
	inline   bool         // the goroutine of the function makes the attempts, because it waits for nothing else
	once     sync.Once
	halted   atomic.Bool // no operation begins any more that was not called before, because a branch has failed
	message  Message     // asks the owner to begin the operations

	// The owner's goroutine uses the following fields.

	next    int // index of the next operation to begin
	running int // operations that have begun and have not ended
	failed  bool
}

// Called is an operation that the function calls.
type Called struct {
	Identity string
	kind     *machine.OpKind
	isStored bool                // it had ended before the call of the function began, or has another name since
	Data     []byte              // its output, if it is stored
	Failure  *machine.OpResult   // why it failed, if it is stored; nil if it succeeded
	def      *machine.Definition // nil if it has no attempts
	parallel int
	Within   time.Duration       // of a wait for a signal
	detached bool                // of a child
	undo     *machine.Definition // policy and limits of the undo
	labels   func(i int) string  // of items; nil means their JSON
}

// childStarts is what the operations of a group start.
type childStarts struct {
	def      *machine.Definition
	inputs   []json.RawMessage
	refused  map[int]error // inputs with which a child can't be started, of operations that were called
	detached bool
	shard    int                         // shard of the children; -1 means that of their parent
	missing  bool                        // their workflow is not registered: shard and inputs are not known
	former   map[int]machine.FormerChild // of operations that have not been called
}

// Operation is an operation of a group, for which attempts are made. The zero value is none: that of a step.
type Operation struct {
	*Group
	index int
}
