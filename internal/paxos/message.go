package paxos

import "fmt"

// Kind is the kind of a message.
type Kind uint8

// The kinds. Members send the first four, acceptors the others.
const (
	Prepare  Kind = iota + 1 // requests a promise to accept nothing below Ballot
	Accept                   // requests to accept Value under Ballot
	Commit                   // reports that Value was decided under Ballot
	Learn                    // requests what was decided or accepted from Ballot.Epoch on
	Promise                  // grants Prepare; Prior and Value are what was accepted before
	Accepted                 // reports to every member that Value was accepted under Ballot
	Reject                   // refuses Prepare or Accept; Prior is the ballot that won
	Chosen                   // reports that Value was decided under Ballot
	Tip                      // ends the answer to Learn; the sender knows decisions up to Ballot.Epoch, and has forgotten those up to Prior.Epoch
)

var kindNames = [...]string{"", "prepare", "accept", "commit", "learn", "promise", "accepted", "reject", "chosen", "tip"}

// String returns the kind's name.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// ToAcceptor reports whether messages of this kind go from a member to an
// acceptor; all others go the other way.
func (k Kind) ToAcceptor() bool { return k >= Prepare && k <= Learn }

// Message is a message between a member and an acceptor. Fields that a kind
// does not use are zero.
type Message struct {
	Kind   Kind
	From   int // number of the sender
	To     int // number of the receiver
	Ballot Ballot
	Prior  Ballot
	Value  Value
	More   bool // there is more to learn after this Tip
}

// Slot is the persistent state of an acceptor for an epoch. A chosen slot
// without an accepted ballot stands for all epochs up to it, whose decisions
// were forgotten.
type Slot struct {
	Epoch    int
	Promised Ballot
	Accepted Ballot
	Value    Value
	Chosen   bool // the value was decided
}

// forgotten reports whether the slot stands for forgotten epochs.
func (s *Slot) forgotten() bool { return s.Chosen && s.Accepted == (Ballot{}) }

// EventKind is the kind of an event.
type EventKind uint8

// The kinds of events.
const (
	Learned   EventKind = iota + 1 // an epoch was decided
	Committed                      // the member's own value was decided; follows Learned
	Lost                           // the attempt ended without success
	Forgotten                      // a quorum has forgotten the decision of the current epoch
)

// Event is something that happened to a member.
type Event struct {
	Kind   EventKind
	Epoch  int
	Ballot Ballot // under which it was decided, or which defeated the attempt; zero if unknown
	Value  Value  // the decided value; zero if the attempt lost to a ballot
	During Phase  // the phase in which the attempt lost
}

// Output is what a state machine asks its driver to do. A driver reuses one,
// and calls Reset before each use.
type Output struct {
	Send    []Message
	Events  []Event
	Persist []Slot // to be written before calling Persisted; later slots replace earlier ones of the same epoch
}

// Reset empties the output and keeps its memory.
func (o *Output) Reset() { o.Send, o.Events, o.Persist = o.Send[:0], o.Events[:0], o.Persist[:0] }
