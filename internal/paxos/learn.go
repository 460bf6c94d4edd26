package paxos

import "math/bits"

// tally is who accepted a value in the current epoch, whoever proposed it.
type tally struct {
	Entry
	by voters
}

// accepted counts a vote. The proposer of what wins tells the acceptors, so that
// they can tell those who come later.
func (p *Proposer) accepted(m Message, out *Output) {
	switch {
	case m.Ballot.Epoch > p.Epoch():
		p.askOn(m.From, out)
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

// quorum reports whether so many acceptors decide, each counted once.
func (p *Proposer) quorum(v voters) bool {
	return bits.OnesCount64(uint64(v)) >= Quorum(p.acceptors)
}

// learn notes a decision. One that lies ahead is not needed: the acceptor that
// knows it is asked for all that is missing.
func (p *Proposer) learn(e Entry, acceptor int, out *Output) {
	switch epoch := e.Ballot.Epoch; {
	case epoch < p.Epoch() || !e.Ballot.valid():
		return
	case epoch > p.Epoch():
		p.askOn(acceptor, out)
		return
	}
	p.log = append(p.log, e)
	p.attempt, p.risked, p.tallies, p.forgot = 0, false, p.tallies[:0], 0
	news := Event{Epoch: e.Ballot.Epoch, Ballot: e.Ballot, Value: e.Value}
	out.Events = append(out.Events, news.as(Learned))
	switch {
	case p.wanted && e.Value.Same(p.mine):
		p.Abandon()
		out.Events = append(out.Events, news.as(Committed))
	case p.phase != Idle:
		p.lose(news, out)
	}
}

// askOn asks for what is missing, once from each epoch on: answers that come in
// the wrong order would otherwise each lead to another question.
func (p *Proposer) askOn(acceptor int, out *Output) {
	if p.asked != p.Epoch() {
		p.asked = p.Epoch()
		p.Learn(acceptor, out)
	}
}

// compare looks at how far an acceptor is: it is asked for more, or told what it
// missed. When a quorum has forgotten what comes next, there is no way on: only
// somebody who has the log can help.
func (p *Proposer) compare(m Message, out *Output) {
	if m.Prior.Epoch >= p.Epoch() {
		if p.forgot = p.forgot.with(m.From); p.quorum(p.forgot) {
			out.Events = append(out.Events, Event{Kind: Forgotten, Epoch: p.Epoch(), During: p.phase})
		}
		return
	}
	if m.More {
		p.askOn(m.From, out)
		return
	}
	for i := max(m.Ballot.Epoch, 0); i < min(len(p.log), m.Ballot.Epoch+batch); i++ {
		p.send(m.From, Message{Kind: Commit, Ballot: p.log[i].Ballot, Value: p.log[i].Value}, out)
	}
}
