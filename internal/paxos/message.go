package paxos

import "fmt"

// Kind says what a message is.
type Kind uint8

// The kinds. Members send the first four, acceptors the others.
const (
	Prepare  Kind = iota + 1 // asks for a promise to take nothing below Ballot
	Accept                   // asks to accept Value under Ballot
	Commit                   // tells that Value was decided under Ballot
	Learn                    // asks for what was decided or accepted from Ballot.Epoch on
	Promise                  // grants Prepare; Prior and Value are what was accepted before
	Accepted                 // tells every member that Value was accepted under Ballot
	Reject                   // refuses either; Prior is the ballot that won
	Chosen                   // tells that Value was decided under Ballot
	Tip                      // ends the answer to Learn; decisions up to Ballot.Epoch are known to the sender, and those up to Prior.Epoch forgotten
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

// Message is what members and acceptors say to each other. Fields that a kind
// does not need are zero.
type Message struct {
	Kind   Kind
	From   int // number of the member or acceptor that sends it
	To     int // number of the one that gets it
	Ballot Ballot
	Prior  Ballot
	Value  Value
	More   bool // there is more to learn after this Tip
}

// Slot is what an acceptor must remember of an epoch. One that is chosen without
// an accepted ballot stands for all epochs up to it, which were decided and
// forgotten.
type Slot struct {
	Epoch    int
	Promised Ballot
	Accepted Ballot
	Value    Value
	Chosen   bool // the value was decided
}

// forgotten reports whether the slot stands for what was forgotten.
func (s *Slot) forgotten() bool { return s.Chosen && s.Accepted == (Ballot{}) }

// EventKind says what happened to a member.
type EventKind uint8

// The kinds of events.
const (
	Learned   EventKind = iota + 1 // an epoch was decided
	Committed                      // the member's own value was decided; follows Learned
	Lost                           // the attempt is over without it
	Forgotten                      // a quorum no longer knows what was decided in the current epoch
)

// Event is something that happened to a member.
type Event struct {
	Kind   EventKind
	Epoch  int
	Ballot Ballot // under which it was decided, or which beat the attempt; zero when nobody knows
	Value  Value  // what was decided; zero when the attempt lost to a ballot
	During Phase  // where the attempt lost
}

// Output is what a machine wants done. A driver keeps one, and calls Reset
// before each use.
type Output struct {
	Send    []Message
	Events  []Event
	Persist []Slot // to be written before the acceptor is told Persisted; later ones replace earlier ones of an epoch
}

// Reset empties the output and keeps its memory.
func (o *Output) Reset() {
	o.Send, o.Events, o.Persist = o.Send[:0], o.Events[:0], o.Persist[:0]
}
