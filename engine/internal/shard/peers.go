package shard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tideover/tideover/engine/info"
	"github.com/tideover/tideover/engine/internal/flow"
	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/workflow"
	"github.com/tideover/tideover/retry"
)

// Delivery tells another shard that a child begins, is canceled or has ended. It is repeated until it is done or the
// shard is closed. The state of the shard has all deliveries: the next owner does them again.
type Delivery struct {
	Kind   deliveryKind
	Shard  int            // the other one, as far as that is known
	Run    machine.ID     // the child; of childHasEnded, the parent
	Parent machine.Parent // of cancelChild and adoptChild: the operation that has the child

	Start   *Start          // of startChild
	Refused error           // of startChild, if the child can't be started with its input now: why
	Former  machine.ID      // of cancelChild: the child that the operation had before, or run
	By      string          // of cancelChild: who cancels it
	End     json.RawMessage // of childHasEnded: a machine.ChildEnd

	Adopted *flow.AdoptedChild // the answer to adoptChild

	// done is called by the owner with nil, or with an error that the other shard has decided.
	done func(t Recorder, err error)

	failures int           // how often the other shard could not be asked
	delay    time.Duration // the last delay
	due      time.Time     // when the delivery is to be repeated
}

// deliveryKind says what a delivery is about.
type deliveryKind int

// The kinds of deliveries.
const (
	StartChild    deliveryKind = iota
	CancelChild                // ErrNotFound is the only answer that the owner needs
	ChildHasEnded              // tells the parent
	AdoptChild                 // an operation that was called again waits for its former child
)

// Peers is what a shard needs of the other shards, in this process or in others.
type Peers interface {
	Deliver(ctx context.Context, d *Delivery) error                                        // brings a delivery to its shard
	Read(ctx context.Context, run string) (*info.Info, error)                              // returns a run of any shard
	FormerChild(ctx context.Context, run string, of flow.OperationName) (*FormerOf, error) // returns the child that another run had for an operation
	ChildShard(ctx context.Context, w *workflow.Workflow) (int, error)                     // returns the shard of the children of a workflow; -1 means that of their parent
	CheckFormat(format int) error                                                          // returns ErrOldMember if a member can't read it
}

// Recorder is what the parts of a shard use of a turn. It is below the parts, and the turn above them.
type Recorder interface {
	flow.Turn

	// IsFull reports whether the entry is so large that no further attempt may begin.
	IsFull() bool

	// Deliver sends a message to another shard when the turn is stored.
	Deliver(d *Delivery)
}

// completeInput returns the input for a handler: a GaveUp that is stored by reference
// is completed from the dead run. A step that has succeeded never runs again, so its
// output is what it was when the run died.
func completeInput(ctx context.Context, others Peers, input json.RawMessage) (json.RawMessage, error) {
	if !workflow.IsReference(input) {
		return input, nil
	}
	var g info.GaveUp
	if err := json.Unmarshal(input, &g); err != nil {
		return nil, retry.Permanent(fmt.Errorf("input of the run: %w", err))
	}
	ref := g.ByReference
	if ref == nil {
		return input, nil
	}
	dead, err := others.Read(ctx, ref.Run)
	if errors.Is(err, machine.ErrUnknown) {
		return nil, retry.Permanent(fmt.Errorf("input of the run: the input and outputs of run %s (%d bytes) are stored with that run only, and it is not kept any more: "+
			"keep runs for longer (Retention, DeadRetention)", ref.Run, ref.Bytes))
	}
	if err != nil {
		return nil, fmt.Errorf("input of the run: the input and outputs of run %s (%d bytes) can't be read: %w", ref.Run, ref.Bytes, err)
	}
	g.ByReference, g.Input = nil, dead.Input
	if g.Outputs == nil {
		g.Outputs = map[string]json.RawMessage{}
	}
	outputs := map[string]json.RawMessage{}
	for _, s := range dead.Steps {
		outputs[s.Name] = s.Output
	}
	for _, step := range ref.Outputs {
		if outputs[step] == nil {
			return nil, retry.Permanent(fmt.Errorf("input of the run: run %s has no output of step %q any more", ref.Run, step))
		}
		g.Outputs[step] = outputs[step]
	}
	text, err := json.Marshal(g)
	if err != nil {
		return nil, retry.Permanent(fmt.Errorf("input of the run: %w", err))
	}
	return text, nil
}

// giveUpSource is the prefix of Source in a follow-up run. The id of the dead run comes after
// it.
const giveUpSource = "on-give-up of "
