package flow

import (
	"github.com/tideover/tideover/engine/internal/admission"
	"github.com/tideover/tideover/engine/internal/machine"
)

// Turn is what the owner's goroutine passes to Calls. The goroutine of a function never has one.
type Turn interface {
	Now() int64
	ReadClock() // updates Now
	State() *machine.Machine
	Random() uint64
	NewID(key string) machine.ID
	CheckFormat(format int) error // says whether all members of the cluster can read a format

	Record(rec machine.Record)
	RecordStart(rec machine.Record, s *machine.Start, def *machine.Definition) // in one entry
	Define(def *machine.Definition)

	// StartRun records the start of a run, and its definition if that is new. If the key belongs to an
	// earlier run, it returns the id of that run and true.
	StartRun(s *machine.Start, def *machine.Definition) (id machine.ID, existing bool, err error)

	// TakeNow takes a ticket for the first attempt of an operation that is called now, if it need not wait in a
	// queue. Begin begins an attempt; the record with its beginning is recorded.
	TakeNow(run *machine.Run, def *machine.Definition) (admission.Ticket, bool)
	Begin(run *machine.Run, op Operation, ticket admission.Ticket, rec machine.Record)

	// StartElsewhere starts a child in another shard, and Adopt has an operation wait for its former child. They
	// call done in a later turn, when that is stored.
	StartElsewhere(c *ChildElsewhere, done func(Turn, error))
	Adopt(former machine.ID, parent machine.Parent, done func(Turn, AdoptedChild, error))
	ChildStarted(parent machine.Parent, child machine.Child)
	EndChild(end *machine.ChildEnd)

	CheckParked() // what a parked run waits for may be registered
	NoteStuck(run machine.ID, call int)
}

// ChildElsewhere is a child to start in another shard.
type ChildElsewhere struct {
	Shard   int
	Start   *machine.Start
	Def     *machine.Definition
	Refused error // not nil: why its input is refused now. It may have been started before, when its input was accepted
}

// AdoptedChild says what became of the former child of an operation that is called again.
type AdoptedChild struct {
	Run   machine.ID        // the operation waits for this run now
	End   *machine.ChildEnd // the former child has succeeded
	Undos int               // neither: the operation needs another child; see machine.FormerChild
}
