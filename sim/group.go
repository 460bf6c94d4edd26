package sim

import (
	"context"
	"math"

	"github.com/tideover/tideover/internal/paxos"
)

// The kinds of events in a group.
const (
	messageArrives uint8 = iota + 1 // at a member or an acceptor
	memberDue                       // the wait is over
)

// group simulates members that each propose one change of a replicated state:
// one value for each epoch, decided by a quorum of acceptors. It uses the state
// machines of package paxos.
type group struct {
	contest
	memoryShare memoryShare
	members     []member
	acceptors   []*paxos.Acceptor
	messages    []paxos.Message // in transit
	free        []uint32
	sent        uint64
	out         paxos.Output
}

// member is a member that proposes one change.
type member struct {
	*paxos.Proposer
	rival
	over bool // its change is committed, or it has given up
}

// runGroup runs the scenario once.
func runGroup(ctx context.Context, p *plan, c *Contestant, seed uint64) (*recorder, error) {
	w, err := newGroup(p, c, seed)
	if err != nil {
		return nil, err
	}
	defer w.memoryShare.release()
	if w.events, err = runModel(ctx, &w.queue, w, int64(p.scenario.length())); err != nil {
		return nil, err
	}
	for _, m := range w.members {
		w.recordClient(1, boolToInt(m.won))
	}
	return &w.recorder, nil
}

// newGroup returns a group whose members all begin at the same moment.
func newGroup(p *plan, c *Contestant, seed uint64) (*group, error) {
	g := p.scenario.Group
	w := &group{contest: newContest(p, c, g.Members, seed), memoryShare: memoryShare{plan: p}}
	for i := range g.acceptors() {
		w.acceptors = append(w.acceptors, paxos.NewAcceptor(i, missedEpochs(g.Behind)...))
	}
	for i := range g.Members {
		proposer, err := paxos.NewProposer(i, g.acceptors())
		if err != nil {
			return nil, err
		}
		w.members = append(w.members, member{Proposer: proposer, rival: rival{account: w.policy.account(uint32(i))}})
	}
	for i := range w.members {
		w.recordCall(0)
		w.startAttempt(uint32(i))
	}
	return w, nil
}

// missedEpochs returns the decisions of this many epochs, made by a member
// outside the group while the members were disconnected.
func missedEpochs(epochs int) (slots []paxos.Slot) {
	const elsewhere = math.MaxInt32 // no member has this number
	for e := 1; e <= epochs; e++ {
		b := paxos.Ballot{Epoch: e, Attempt: 1, Member: elsewhere}
		slots = append(slots, paxos.Slot{Epoch: e, Promised: b, Accepted: b, Value: paxos.Value{Member: elsewhere, Seq: e}, Chosen: true})
	}
	return slots
}

func (w *group) handle(e event) {
	if e.kind() == memberDue {
		w.startAttempt(e.who)
		return
	}
	m := w.messages[e.who]
	w.free = append(w.free, e.who)
	w.out.Reset()
	if m.Kind.ToAcceptor() {
		a := w.acceptors[m.To]
		a.Receive(m, &w.out)
		a.Persisted(len(w.out.Persist), &w.out)
		w.sendMessages()
		return
	}
	w.members[m.To].Receive(m, &w.out)
	w.handleOutput(uint32(m.To))
}

// startAttempt makes a member propose its change, or propose it again.
func (w *group) startAttempt(who uint32) {
	m := &w.members[who]
	if m.over { // another member has completed its proposal during the wait
		return
	}
	m.attempts++
	w.recordAttempt(w.queue.now, int(m.attempts))
	w.recordLoad(w.queue.now)
	w.out.Reset()
	if m.attempts == 1 {
		m.Propose(0, "", &w.out)
	} else {
		m.Again("", &w.out)
	}
	w.handleOutput(who)
}

// handleOutput handles the output of a member's state machine.
func (w *group) handleOutput(who uint32) {
	w.sendMessages()
	m := &w.members[who]
	for _, e := range w.out.Events {
		switch {
		case m.over:
		case e.Kind == paxos.Committed:
			m.over, m.won = true, true
			w.finish(&m.rival, 0)
		case e.Kind == paxos.Lost:
			if why := w.handleLoss(&m.rival, who, memberDue); why != 0 {
				m.over = true
				m.Abandon()
				w.finish(&m.rival, why)
			}
		}
	}
}

// sendMessages schedules the arrival of each message of the output.
func (w *group) sendMessages() {
	g := w.plan.scenario.Group
	for _, m := range w.out.Send {
		var at uint32
		if n := len(w.free); n > 0 {
			at, w.free = w.free[n-1], w.free[:n-1]
			w.messages[at] = m
		} else {
			at = uint32(len(w.messages))
			w.messages = append(w.messages, m)
		}
		n := normal(w.root.draw(forHop, w.sent))
		w.sent++
		w.queue.add(int64(math.Abs(float64(g.Hop)*(1+g.Sigma*n))), messageArrives, at, 0)
	}
	w.out.Send = w.out.Send[:0]
}
