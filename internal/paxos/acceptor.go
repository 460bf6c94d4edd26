package paxos

import (
	"cmp"
	"slices"
)

// batch is how many epochs the answer to Learn covers.
const batch = 64

// Acceptor is one of those who decide. Use [NewAcceptor].
type Acceptor struct {
	id        int
	slots     []Slot // by epoch; epochs that it knows nothing of are missing
	floor     int    // every epoch up to it is decided, and what was decided is forgotten
	tip       int    // every epoch up to it is decided, as far as it knows
	members   []int  // those it has heard of, in order; they hear what it accepts
	written   int    // slots handed out to be persisted
	persisted int    // of these, confirmed
	held      []reply
}

// reply is a message that must not be sent before what it tells is persistent.
type reply struct {
	after   int
	message Message
}

// NewAcceptor returns an acceptor that remembers the slots: none for a new one,
// and the last persisted of each epoch for one that starts again.
func NewAcceptor(id int, slots ...Slot) *Acceptor {
	a := &Acceptor{id: id}
	for _, s := range slots {
		if s.forgotten() {
			a.floor = max(a.floor, s.Epoch)
			continue
		}
		*a.at(s.Epoch) = s
	}
	a.drop()
	a.tip = a.floor
	a.advance()
	return a
}

// Slots returns all that the acceptor remembers, by epoch. The first stands for
// all that it has forgotten, if it has.
func (a *Acceptor) Slots() []Slot {
	if a.floor == 0 {
		return slices.Clone(a.slots)
	}
	return append([]Slot{{Epoch: a.floor, Chosen: true}}, a.slots...)
}

// Forget drops what was decided up to the epoch, as far as the acceptor knows of
// it: it no longer teaches it to anybody. That it was decided is remembered, so
// that nothing else ever is. The caller sees to it that every member knows it.
func (a *Acceptor) Forget(epoch int) {
	if n := min(epoch, a.tip); n > a.floor {
		a.floor = n
		a.drop()
	}
}

// drop removes the slots of what is forgotten.
func (a *Acceptor) drop() {
	i, _ := a.find(a.floor + 1)
	a.slots = slices.Delete(a.slots, 0, i)
}

// Tip returns the epoch up to which the acceptor knows every decision.
func (a *Acceptor) Tip() int { return a.tip }

// Floor returns the epoch up to which the acceptor has forgotten what was decided.
func (a *Acceptor) Floor() int { return a.floor }

// Receive takes a message. What it must remember goes to out.Persist; answers
// that tell of it are held back until [Acceptor.Persisted]. Messages that make no
// sense are ignored.
func (a *Acceptor) Receive(m Message, out *Output) {
	if m.To != a.id || m.From < 0 || !m.Kind.ToAcceptor() {
		return
	}
	a.remember(m.From)
	if m.Kind == Learn {
		a.teach(m, out)
		return
	}
	if !m.Ballot.valid() {
		return
	}
	if m.Ballot.Epoch <= a.floor {
		if m.Kind != Commit {
			a.teach(m, out)
		}
		return
	}
	s := a.at(m.Ballot.Epoch)
	switch {
	case m.Kind == Commit:
		a.commit(s, m, out)
	case s.Chosen:
		a.teach(m, out)
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

// accept tells everybody: those who lose learn it as soon as the winner does, and
// do not spend attempts on an epoch that is over.
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

// commit notes a decision.
func (a *Acceptor) commit(s *Slot, m Message, out *Output) {
	if s.Chosen {
		return
	}
	s.Chosen, s.Accepted, s.Value = true, m.Ballot, m.Value
	a.persist(s, out)
	a.advance()
}

// teach answers with what was decided from the message's epoch on, a bounded
// part of it at a time. For an epoch that is open it repeats its vote: who was
// not there when it was cast may be just as late for the decision. Of an epoch
// that is forgotten it says so.
func (a *Acceptor) teach(m Message, out *Output) {
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

// answer sends the message, after all that was changed so far is persistent.
// That may be more than the message depends on, and is easy to see to be enough.
func (a *Acceptor) answer(m Message, out *Output) {
	m.From = a.id
	if a.persisted == a.written {
		out.Send = append(out.Send, m)
		return
	}
	a.held = append(a.held, reply{after: a.written, message: m})
}

// find returns the place of the epoch's slot.
func (a *Acceptor) find(epoch int) (int, bool) {
	return slices.BinarySearchFunc(a.slots, epoch, func(s Slot, e int) int { return cmp.Compare(s.Epoch, e) })
}

// at returns the epoch's slot, made when there is none.
func (a *Acceptor) at(epoch int) *Slot {
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

// remember notes that there is such a member.
func (a *Acceptor) remember(member int) {
	if i, ok := slices.BinarySearch(a.members, member); !ok {
		a.members = slices.Insert(a.members, i, member)
	}
}
