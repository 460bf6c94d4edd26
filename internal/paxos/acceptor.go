package paxos

import (
	"cmp"
	"slices"
)

// batch is how many epochs an answer to Learn covers.
const batch = 64

// Acceptor is one of the acceptors whose quorum decides. Use [NewAcceptor].
type Acceptor struct {
	id        int
	slots     []Slot // by epoch; epochs without state are missing
	floor     int    // every epoch up to it is decided, and its decision forgotten
	tip       int    // every epoch up to it is known to be decided
	members   []int  // known members, in order; the acceptor sends them what it accepts
	written   int    // number of slots given to the driver to persist
	persisted int    // number of them that are confirmed
	held      []reply
}

// reply is a message that must not be sent before its state is persistent.
type reply struct {
	after   int
	message Message
}

// NewAcceptor returns an acceptor. slots is its persisted state: none for a new acceptor,
// and the last persisted slot of each epoch after a restart.
func NewAcceptor(id int, slots ...Slot) *Acceptor {
	a := &Acceptor{id: id}
	for _, s := range slots {
		if s.forgotten() {
			a.floor = max(a.floor, s.Epoch)
			continue
		}
		*a.slot(s.Epoch) = s
	}
	a.dropForgotten()
	a.tip = a.floor
	a.advance()
	return a
}

// Slots returns the acceptor's state, by epoch. The first slot stands for all
// forgotten epochs, if there are any.
func (a *Acceptor) Slots() []Slot {
	if a.floor == 0 {
		return slices.Clone(a.slots)
	}
	return append([]Slot{{Epoch: a.floor, Chosen: true}}, a.slots...)
}

// Forget drops the decisions up to the epoch, as far as the acceptor knows
// them: it no longer sends them to members. It stores that they were decided,
// so that no other value ever is. The caller must make sure that every member
// knows them.
func (a *Acceptor) Forget(epoch int) {
	if n := min(epoch, a.tip); n > a.floor {
		a.floor = n
		a.dropForgotten()
	}
}

// dropForgotten removes the slots of forgotten epochs.
func (a *Acceptor) dropForgotten() {
	i, _ := a.find(a.floor + 1)
	a.slots = slices.Delete(a.slots, 0, i)
}

// Tip returns the epoch up to which the acceptor knows every decision.
func (a *Acceptor) Tip() int { return a.tip }

// Floor returns the epoch up to which the acceptor has forgotten what was decided.
func (a *Acceptor) Floor() int { return a.floor }

// Receive handles a message. State to persist is appended to out.Persist;
// answers that depend on it are held back until [Acceptor.Persisted]. Invalid
// messages are ignored.
func (a *Acceptor) Receive(m Message, out *Output) {
	if m.To != a.id || m.From < 0 || !m.Kind.ToAcceptor() {
		return
	}
	a.addMember(m.From)
	if m.Kind == Learn {
		a.sendDecisions(m, out)
		return
	}
	if !m.Ballot.valid() {
		return
	}
	if m.Ballot.Epoch <= a.floor {
		if m.Kind != Commit {
			a.sendDecisions(m, out)
		}
		return
	}
	s := a.slot(m.Ballot.Epoch)
	switch {
	case m.Kind == Commit:
		a.commit(s, m, out)
	case s.Chosen:
		a.sendDecisions(m, out)
	case m.Kind == Prepare:
		a.prepare(s, m, out)
	default:
		a.accept(s, m, out)
	}
}

func (a *Acceptor) prepare(s *Slot, m Message, out *Output) {
	if m.Ballot.Less(s.Promised) {
		a.answer(Message{Kind: Reject, To: m.From, Ballot: m.Ballot, Prior: s.Promised}, out)
		return
	}
	if s.Promised != m.Ballot {
		s.Promised = m.Ballot
		a.persist(s, out)
	}
	a.answer(Message{Kind: Promise, To: m.From, Ballot: m.Ballot, Prior: s.Accepted, Value: s.Value}, out)
}

// accept accepts a value and reports that to all members: members that lose
// learn it as soon as the winner does, and spend no attempts on a decided
// epoch.
func (a *Acceptor) accept(s *Slot, m Message, out *Output) {
	again := m.Ballot == s.Accepted
	if m.Ballot.Less(s.Promised) || again && m.Value != s.Value {
		a.answer(Message{Kind: Reject, To: m.From, Ballot: m.Ballot, Prior: s.Promised}, out)
		return
	}
	granted := Message{Kind: Accepted, To: m.From, Ballot: m.Ballot, Value: m.Value}
	if again {
		a.answer(granted, out)
		return
	}
	s.Promised, s.Accepted, s.Value = m.Ballot, m.Ballot, m.Value
	a.persist(s, out)
	for _, granted.To = range a.members {
		a.answer(granted, out)
	}
}

// commit stores a decision.
func (a *Acceptor) commit(s *Slot, m Message, out *Output) {
	if s.Chosen {
		return
	}
	s.Chosen, s.Accepted, s.Value = true, m.Ballot, m.Value
	a.persist(s, out)
	a.advance()
}

// sendDecisions answers with the decisions from the message's epoch on, at most
// a batch. For an open epoch it repeats its vote: a member that missed the vote
// may also miss the decision. For a forgotten epoch it says so.
func (a *Acceptor) sendDecisions(m Message, out *Output) {
	tip := Message{Kind: Tip, To: m.From, Ballot: Ballot{Epoch: a.tip}, Prior: Ballot{Epoch: a.floor}}
	if a.floor > 0 && m.Ballot.Epoch <= a.floor {
		a.answer(tip, out)
		return
	}
	first, _ := a.find(m.Ballot.Epoch)
	part := a.slots[first:min(first+batch, len(a.slots))]
	for i := range part {
		told := Message{Kind: Accepted, To: m.From, Ballot: part[i].Accepted, Value: part[i].Value}
		if part[i].Chosen {
			told.Kind = Chosen
		}
		if told.Ballot.valid() {
			a.answer(told, out)
		}
	}
	tip.More = first+batch < len(a.slots)
	a.answer(tip, out)
}

// Persisted confirms that the next n slots handed out are persistent, and
// releases the answers that waited for them.
func (a *Acceptor) Persisted(n int, out *Output) {
	a.persisted = min(a.persisted+n, a.written)
	free := 0
	for free < len(a.held) && a.held[free].after <= a.persisted {
		out.Send = append(out.Send, a.held[free].message)
		free++
	}
	a.held = slices.Delete(a.held, 0, free)
}

func (a *Acceptor) persist(s *Slot, out *Output) {
	a.written++
	out.Persist = append(out.Persist, *s)
}

// answer sends the message after everything that was changed so far is
// persistent. That may be more than the message depends on, but is certainly
// enough.
func (a *Acceptor) answer(m Message, out *Output) {
	m.From = a.id
	if a.persisted == a.written {
		out.Send = append(out.Send, m)
		return
	}
	a.held = append(a.held, reply{after: a.written, message: m})
}

// find returns the index of the epoch's slot, or where to insert it.
func (a *Acceptor) find(epoch int) (int, bool) {
	return slices.BinarySearchFunc(a.slots, epoch, func(s Slot, e int) int { return cmp.Compare(s.Epoch, e) })
}

// slot returns the epoch's slot, and adds it if it is missing.
func (a *Acceptor) slot(epoch int) *Slot {
	i, ok := a.find(epoch)
	if !ok {
		a.slots = slices.Insert(a.slots, i, Slot{Epoch: epoch})
	}
	return &a.slots[i]
}

// advance moves the tip over the decisions that follow it.
func (a *Acceptor) advance() {
	for {
		i, ok := a.find(a.tip + 1)
		if !ok || !a.slots[i].Chosen {
			return
		}
		a.tip++
	}
}

// addMember adds a member to those that the acceptor sends accepted values to.
func (a *Acceptor) addMember(member int) {
	if i, ok := slices.BinarySearch(a.members, member); !ok {
		a.members = slices.Insert(a.members, i, member)
	}
}
