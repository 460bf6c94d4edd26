package engine

import (
	"context"
	"encoding/json"
	"time"

	"github.com/tideover/tideover/engine/internal/flow"
	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/workflow"
)

// delivery tells another shard that a child begins, is canceled or has ended. It is repeated until it is done or the
// shard is closed. The state of the shard has all deliveries: the next owner does them again.
type delivery struct {
	kind   deliveryKind
	shard  int            // the other one, as far as that is known
	run    machine.ID     // the child; of childHasEnded, the parent
	parent machine.Parent // of cancelChild and adoptChild: the operation that has the child

	start   *start          // of startChild
	refused error           // of startChild, if the child can't be started with its input now: why
	former  machine.ID      // of cancelChild: the child that the operation had before, or run
	by      string          // of cancelChild: who cancels it
	end     json.RawMessage // of childHasEnded: a machine.ChildEnd

	adopted *adoption // the answer to adoptChild

	// done is called by the owner with nil, or with an error that the other shard has decided.
	done func(t recorder, err error)

	failures int           // how often the other shard could not be asked
	delay    time.Duration // the last delay
	due      time.Time     // when the delivery is to be repeated
}

// deliveryKind says what a delivery is about.
type deliveryKind int

const (
	startChild    deliveryKind = iota
	cancelChild                // ErrNotFound is the only answer that the owner needs
	childHasEnded              // tells the parent
	adoptChild                 // an operation that was called again waits for its former child
)

// peers is what a shard needs of the other shards, in this process or in others.
type peers interface {
	deliver(ctx context.Context, d *delivery) error                                        // brings a delivery to its shard
	read(ctx context.Context, run string) (*Info, error)                                   // returns a run of any shard
	formerChild(ctx context.Context, run string, of flow.OperationName) (*formerOf, error) // returns the child that another run had for an operation
	childShard(ctx context.Context, w *workflow.Workflow) (int, error)                     // returns the shard of the children of a workflow; -1 means that of their parent
	checkFormat(format int) error                                                          // returns ErrOldMember if a member can't read it
}

// recorder is what the parts of a shard use of a turn. It is below the parts, and the turn above them.
type recorder interface {
	flow.Turn

	// StartRun records the start of a run, and its definition if that is new. If the key belongs to an
	// earlier run, it returns the id of that run and true.
	StartRun(s *machine.Start, def *machine.Definition) (id machine.ID, existing bool, err error)

	// IsFull reports whether the entry is so large that no further attempt may begin.
	IsFull() bool

	// Deliver sends a message to another shard when the turn is stored.
	Deliver(d *delivery)
}
