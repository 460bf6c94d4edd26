package paxos

import "math/bits"

// tally has the acceptors that have accepted one entry, of any proposer, in the current
// epoch.
type tally struct {
	Entry
	by voters
}

// handleAccepted counts a vote. The proposer of the winning value reports the
// decision to the acceptors, so that they can send it to members that come
// later.
func (p *Proposer) handleAccepted(m Message, out *Output) {
	switch {
	case m.Ballot.Epoch > p.Epoch():
		p.requestMissing(m.From, out)
		return
	case m.Ballot.Epoch < p.Epoch():
		return
	case m.Ballot == p.ballot:
		p.granted = p.granted.with(m.From)
	}
	t := p.tally(Entry{m.Ballot, m.Value})
	if t.by = t.by.with(m.From); !p.quorum(t.by) {
		return
	}
	decided := t.Entry
	if decided.Ballot.Member == p.member {
		p.broadcast(Message{Kind: Commit, Ballot: decided.Ballot, Value: decided.Value}, out)
	}
	p.learn(decided, m.From, out)
}

// tally returns the votes for the entry.
func (p *Proposer) tally(e Entry) *tally {
	for i := range p.tallies {
		if p.tallies[i].Entry == e {
			return &p.tallies[i]
		}
	}
	p.tallies = append(p.tallies, tally{Entry: e})
	return &p.tallies[len(p.tallies)-1]
}

// quorum reports whether these acceptors are a majority.
func (p *Proposer) quorum(v voters) bool {
	return bits.OnesCount64(uint64(v)) >= Quorum(p.acceptors)
}

// learn stores a decision. For a decision of a later epoch it asks the acceptor
// for everything that is missing.
func (p *Proposer) learn(e Entry, acceptor int, out *Output) {
	switch epoch := e.Ballot.Epoch; {
	case epoch < p.Epoch() || !e.Ballot.valid():
		return
	case epoch > p.Epoch():
		p.requestMissing(acceptor, out)
		return
	}
	p.log = append(p.log, e)
	p.attempt, p.risked, p.tallies, p.forgot = 0, false, p.tallies[:0], 0
	news := Event{Kind: Learned, Epoch: e.Ballot.Epoch, Ballot: e.Ballot, Value: e.Value}
	out.Events = append(out.Events, news)
	switch {
	case p.wanted && e.Value.Same(p.mine):
		p.Abandon()
		news.Kind = Committed
		out.Events = append(out.Events, news)
	case p.phase != Idle:
		p.endAttempt(news, out)
	}
}

// requestMissing asks the acceptor for the decisions from the current epoch on, once for
// each epoch. Otherwise each answer that arrives out of order would cause another request.
func (p *Proposer) requestMissing(acceptor int, out *Output) {
	if p.asked != p.Epoch() {
		p.asked = p.Epoch()
		p.Learn(acceptor, out)
	}
}

// handleTip compares the acceptor's decisions with the log: it asks for more,
// or sends what the acceptor missed. If a quorum has forgotten the next
// decision, the member cannot continue without the log of another member.
func (p *Proposer) handleTip(m Message, out *Output) {
	if m.Prior.Epoch >= p.Epoch() {
		if p.forgot = p.forgot.with(m.From); p.quorum(p.forgot) {
			out.Events = append(out.Events, Event{Kind: Forgotten, Epoch: p.Epoch(), During: p.phase})
		}
		return
	}
	if m.More {
		p.requestMissing(m.From, out)
		return
	}
	for i := max(m.Ballot.Epoch, 0); i < min(len(p.log), m.Ballot.Epoch+batch); i++ {
		p.send(m.From, Message{Kind: Commit, Ballot: p.log[i].Ballot, Value: p.log[i].Value}, out)
	}
}
