package paxos

import (
	"cmp"
	"fmt"
)

// Ballot orders proposals: by epoch, then by attempt, then by member. The zero
// Ballot is none, and below all others.
type Ballot struct {
	Epoch   int // from 1
	Attempt int // from 1
	Member  int // from 0
}

// Compare returns -1 if b is below c, 0 if they are equal, and +1 if b is above.
func (b Ballot) Compare(c Ballot) int {
	return cmp.Or(cmp.Compare(b.Epoch, c.Epoch), cmp.Compare(b.Attempt, c.Attempt), cmp.Compare(b.Member, c.Member))
}

// Less reports whether b is below c.
func (b Ballot) Less(c Ballot) bool { return b.Compare(c) < 0 }

// String returns the parts in the order of their weight.
func (b Ballot) String() string { return fmt.Sprintf("ballot %d.%d.%d", b.Epoch, b.Attempt, b.Member) }

// valid reports whether the ballot is neither zero nor malformed.
func (b Ballot) valid() bool { return b.Epoch > 0 && b.Attempt > 0 && b.Member >= 0 }

// Value is a proposed or decided value. Member and Seq identify the proposal; Data is its
// content. A proposal that lost an epoch may be rebased: its Data changes for the next
// epoch, Member and Seq stay.
type Value struct {
	Member int
	Seq    int
	Data   string
}

// Same reports whether both are the same proposal, possibly rebased.
func (v Value) Same(w Value) bool { return v.Member == w.Member && v.Seq == w.Seq }

// Entry is a value with the ballot under which it was accepted.
type Entry struct {
	Ballot Ballot
	Value  Value
}

// voters is a set of acceptors.
type voters uint64

// MaxAcceptors is the largest number of acceptors.
const MaxAcceptors = 64

func (v voters) with(acceptor int) voters { return v | 1<<acceptor }

// Quorum returns how many of n acceptors are a majority.
func Quorum(n int) int { return n/2 + 1 }
