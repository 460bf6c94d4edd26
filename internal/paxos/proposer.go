package paxos

import (
	"fmt"
	"math/bits"
)

// Phase is the phase of an attempt.
type Phase uint8

// The phases.
const (
	Idle      Phase = iota // no attempt is in progress
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

// Proposer is a member: it proposes values, and learns what was decided. Use
// [NewProposer].
type Proposer struct {
	member    int
	acceptors int
	log       []Entry // what was decided, from epoch 1 on

	mine    Value // the proposal
	wanted  bool  // there is a proposal that is not decided
	risked  bool  // the proposal was sent to be accepted in the current epoch
	phase   Phase
	ballot  Ballot // ballot of the attempt
	granted voters // acceptors that have promised, or in the phase Accepting, have accepted
	refused voters // acceptors that have rejected this attempt or can't be reached
	best    Entry  // while Preparing, the accepted entry with the highest ballot among the promises; then the value to be accepted
	beaten  Ballot // the highest ballot that a rejection named
	tries   int    // attempts at the proposal
	attempt int    // the highest attempt seen in the current epoch
	asked   int    // the epoch from which an acceptor was last asked for missing decisions
	forgot  voters // acceptors that have forgotten the decision of the current epoch
	tallies []tally
}

// NewProposer returns a member with the log, for a number of acceptors.
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

// Phase returns the phase of the current attempt.
func (p *Proposer) Phase() Phase { return p.phase }

// Wants reports whether there is a proposal that is not decided.
func (p *Proposer) Wants() bool { return p.wanted }

// Open reports whether the proposal may still be decided without a further
// attempt: it was sent to be accepted in an epoch that is still open.
func (p *Proposer) Open() bool { return p.risked }

// Propose starts a proposal with its first attempt. It replaces an earlier
// proposal.
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
	// Attempts continue to count after an epoch: a member that has lost more
	// often goes before a new one.
	p.tries++
	p.attempt = max(p.attempt+1, p.tries)
	p.ballot = Ballot{Epoch: p.Epoch(), Attempt: p.attempt, Member: p.member}
	p.setPhase(Preparing)
	p.best = Entry{Value: p.mine}
	p.broadcast(Message{Kind: Prepare, Ballot: p.ballot}, out)
}

// Abandon gives up the proposal. It may still be decided if [Proposer.Open] was
// true.
func (p *Proposer) Abandon() {
	p.wanted = false
	p.setPhase(Idle)
}

// Learn requests the decisions from the current epoch on from an acceptor.
func (p *Proposer) Learn(acceptor int, out *Output) {
	p.send(acceptor, Message{Kind: Learn, Ballot: Ballot{Epoch: p.Epoch()}}, out)
}

// Timeout ends an attempt that was not answered in time. The next attempt finds
// out whether its value was accepted.
func (p *Proposer) Timeout(out *Output) {
	if p.phase != Idle {
		p.endAttempt(Event{Epoch: p.ballot.Epoch, Ballot: p.beaten}, out)
	}
}

// Unreachable reports that the acceptor will not answer this attempt. The
// attempt ends if too few acceptors are left.
func (p *Proposer) Unreachable(acceptor int, out *Output) {
	if p.phase != Idle && acceptor >= 0 && acceptor < p.acceptors {
		p.countRefusal(acceptor, out)
	}
}

// Receive handles a message. Invalid messages, and those about an earlier
// attempt, are ignored.
func (p *Proposer) Receive(m Message, out *Output) {
	if m.To != p.member || m.From < 0 || m.From >= p.acceptors {
		return
	}
	switch {
	case m.Kind == Chosen:
		p.learn(Entry{m.Ballot, m.Value}, m.From, out)
	case m.Kind == Tip:
		p.handleTip(m, out)
	case m.Kind == Accepted:
		p.handleAccepted(m, out)
	case p.phase == Idle || m.Ballot != p.ballot:
	case m.Kind == Promise && p.phase == Preparing:
		p.handlePromise(m, out)
	case m.Kind == Reject:
		p.noteAttempt(m.Prior)
		if p.beaten.Less(m.Prior) {
			p.beaten = m.Prior
		}
		p.countRefusal(m.From, out)
	}
}

func (p *Proposer) handlePromise(m Message, out *Output) {
	if p.best.Ballot.Less(m.Prior) {
		p.best = Entry{m.Prior, m.Value}
	}
	if p.granted = p.granted.with(m.From); !p.quorum(p.granted) {
		return
	}
	p.setPhase(Accepting)
	p.risked = p.risked || p.best.Value.Same(p.mine)
	p.broadcast(Message{Kind: Accept, Ballot: p.ballot, Value: p.best.Value}, out)
}

// countRefusal excludes the acceptor, and ends the attempt if the others are no
// quorum.
func (p *Proposer) countRefusal(acceptor int, out *Output) {
	p.refused = p.refused.with(acceptor)
	if p.acceptors-bits.OnesCount64(uint64(p.refused&^p.granted)) < Quorum(p.acceptors) {
		p.endAttempt(Event{Epoch: p.ballot.Epoch, Ballot: p.beaten}, out)
	}
}

// endAttempt ends the attempt without success. The proposal stays for another
// attempt.
func (p *Proposer) endAttempt(e Event, out *Output) {
	e.Kind, e.During = Lost, p.phase
	p.setPhase(Idle)
	out.Events = append(out.Events, e)
}

// setPhase starts a phase with no votes. A rejection in the phase before does
// not count in this one, but its ballot must be exceeded.
func (p *Proposer) setPhase(phase Phase) {
	p.phase, p.granted, p.refused = phase, 0, 0
	if phase != Accepting {
		p.beaten = Ballot{}
	}
}

// noteAttempt records the attempts of others, so that the next one is above
// them.
func (p *Proposer) noteAttempt(b Ballot) {
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
