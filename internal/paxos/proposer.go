package paxos

import (
	"fmt"
	"math/bits"
)

// Phase is where an attempt stands.
type Phase uint8

// The phases.
const (
	Idle      Phase = iota // no attempt is under way
	Preparing              // waiting for promises
	Accepting              // waiting for a value to be accepted
)

var phaseNames = [...]string{"idle", "preparing", "accepting"}

// String returns the phase's name.
func (p Phase) String() string {
	if int(p) < len(phaseNames) {
		return phaseNames[p]
	}
	return fmt.Sprintf("phase(%d)", uint8(p))
}

// Proposer is a member: it proposes, and learns what was decided. Use
// [NewProposer].
type Proposer struct {
	member    int
	acceptors int
	log       []Entry // what was decided, from epoch 1 on

	mine    Value // the proposal
	wanted  bool  // there is one
	risked  bool  // it was sent out to be accepted in the current epoch
	phase   Phase
	ballot  Ballot // of the attempt
	granted voters // who promised, or accepted, by phase
	refused voters // who can't be counted on in this attempt
	best    Entry  // accepted before under the highest ballot among the promises, or what is to be accepted
	beaten  Ballot // the highest ballot that a rejection named
	tries   int    // attempts at the proposal
	attempt int    // the highest attempt seen in the current epoch
	asked   int    // the epoch from which an acceptor was asked for what is missing
	forgot  voters // who no longer knows what was decided in the current epoch
	tallies []tally
}

// NewProposer returns a member that knows the log, of so many acceptors.
func NewProposer(member, acceptors int, log ...Entry) (*Proposer, error) {
	if member < 0 || acceptors < 1 || acceptors > MaxAcceptors {
		return nil, fmt.Errorf("paxos: member %d with %d acceptors: want a member from 0 on and 1 to %d acceptors", member, acceptors, MaxAcceptors)
	}
	return &Proposer{member: member, acceptors: acceptors, log: log}, nil
}

// Epoch returns the current epoch, the first one that the member does not know
// to be decided.
func (p *Proposer) Epoch() int { return len(p.log) + 1 }

// Log returns what was decided, from epoch 1 on. It must not be changed.
func (p *Proposer) Log() []Entry { return p.log }

// Phase returns where the attempt stands.
func (p *Proposer) Phase() Phase { return p.phase }

// Wants reports whether there is a proposal that is not decided.
func (p *Proposer) Wants() bool { return p.wanted }

// Open reports whether the proposal may yet be decided without any further
// attempt: it was sent out to be accepted in an epoch that is still open.
func (p *Proposer) Open() bool { return p.risked }

// Propose starts a proposal with its first attempt. A proposal before it is
// forgotten.
func (p *Proposer) Propose(seq int, data string, out *Output) {
	p.mine = Value{Member: p.member, Seq: seq}
	p.wanted, p.risked, p.tries = true, false, 0
	p.Again(data, out)
}

// Again makes another attempt at the proposal in the current epoch, with data
// that may be rebased. It does nothing when there is no proposal.
func (p *Proposer) Again(data string, out *Output) {
	if !p.wanted {
		return
	}
	p.mine.Data = data
	// Attempts count on when an epoch is over: whoever has lost more often goes
	// before whoever comes new.
	p.tries++
	p.attempt = max(p.attempt+1, p.tries)
	p.ballot = Ballot{Epoch: p.Epoch(), Attempt: p.attempt, Member: p.member}
	p.enter(Preparing)
	p.best = Entry{Value: p.mine}
	p.broadcast(Message{Kind: Prepare, Ballot: p.ballot}, out)
}

// Abandon forgets the proposal. What [Proposer.Open] said of it stays true.
func (p *Proposer) Abandon() {
	p.wanted = false
	p.enter(Idle)
}

// Learn asks an acceptor for what was decided from the current epoch on.
func (p *Proposer) Learn(acceptor int, out *Output) {
	p.send(acceptor, Message{Kind: Learn, Ballot: Ballot{Epoch: p.Epoch()}}, out)
}

// Timeout ends the attempt, which was not answered in time. Whether its value
// was accepted is found out by the next one.
func (p *Proposer) Timeout(out *Output) {
	if p.phase != Idle {
		p.lose(Event{Epoch: p.ballot.Epoch, Ballot: p.beaten}, out)
	}
}

// Unreachable tells that the acceptor will not answer this attempt. When too few
// are left the attempt is over.
func (p *Proposer) Unreachable(acceptor int, out *Output) {
	if p.phase != Idle && acceptor >= 0 && acceptor < p.acceptors {
		p.refuse(acceptor, out)
	}
}

// Receive takes a message. Messages that make no sense, or are about an attempt
// that is over, are ignored.
func (p *Proposer) Receive(m Message, out *Output) {
	if m.To != p.member || m.From < 0 || m.From >= p.acceptors {
		return
	}
	switch {
	case m.Kind == Chosen:
		p.learn(Entry{m.Ballot, m.Value}, m.From, out)
	case m.Kind == Tip:
		p.compare(m, out)
	case m.Kind == Accepted:
		p.accepted(m, out)
	case p.phase == Idle || m.Ballot != p.ballot:
	case m.Kind == Promise && p.phase == Preparing:
		p.promised(m, out)
	case m.Kind == Reject:
		p.see(m.Prior)
		if p.beaten.Less(m.Prior) {
			p.beaten = m.Prior
		}
		p.refuse(m.From, out)
	}
}

func (p *Proposer) promised(m Message, out *Output) {
	if p.best.Ballot.Less(m.Prior) {
		p.best = Entry{m.Prior, m.Value}
	}
	if p.granted = p.granted.with(m.From); !p.quorum(p.granted) {
		return
	}
	p.enter(Accepting)
	p.risked = p.risked || p.best.Value.Same(p.mine)
	p.broadcast(Message{Kind: Accept, Ballot: p.ballot, Value: p.best.Value}, out)
}

// refuse counts the acceptor out, and ends the attempt when those left are no
// quorum.
func (p *Proposer) refuse(acceptor int, out *Output) {
	p.refused = p.refused.with(acceptor)
	if p.acceptors-bits.OnesCount64(uint64(p.refused&^p.granted)) < Quorum(p.acceptors) {
		p.lose(Event{Epoch: p.ballot.Epoch, Ballot: p.beaten}, out)
	}
}

// lose ends the attempt. The proposal stays, for another one.
func (p *Proposer) lose(e Event, out *Output) {
	e.During = p.phase
	p.enter(Idle)
	out.Events = append(out.Events, e.as(Lost))
}

// enter starts a phase with nobody counted. A rejection in the phase before says
// nothing about this one, but names ballots to beat.
func (p *Proposer) enter(phase Phase) {
	p.phase, p.granted, p.refused = phase, 0, 0
	if phase != Accepting {
		p.beaten = Ballot{}
	}
}

// see notes the attempts of others, so that the next one is above them.
func (p *Proposer) see(b Ballot) {
	if b.Epoch == p.Epoch() {
		p.attempt = max(p.attempt, b.Attempt)
	}
}

func (p *Proposer) broadcast(m Message, out *Output) {
	for a := range p.acceptors {
		p.send(a, m, out)
	}
}

func (p *Proposer) send(acceptor int, m Message, out *Output) {
	m.From, m.To = p.member, acceptor
	out.Send = append(out.Send, m)
}

// as returns the event as one of the kind.
func (e Event) as(k EventKind) Event {
	e.Kind = k
	return e
}
