package sim

import (
	"context"
	"math"
	"time"

	"github.com/tideover/tideover/internal/paxos"
	"github.com/tideover/tideover/limit"
	"github.com/tideover/tideover/retry"
)

// The kinds of events in a group.
const (
	messageArrives uint8 = iota + 1 // at a member or an acceptor
	memberDue                       // the wait is over
)

// group is the world of members that each want one change of a replicated thing:
// one value for each epoch, by a quorum of acceptors. The machines are those that
// processes run.
type group struct {
	queue queue
	plan  *plan
	room  room
	root  stream
	recorder

	policy    caller
	members   []member
	acceptors []*paxos.Acceptor
	messages  []paxos.Message // on their way
	free      []uint32
	sent      uint64
	out       paxos.Output
}

// member is one that proposes once.
type member struct {
	*paxos.Proposer
	prev     time.Duration
	attempts uint32
	over     bool // it has committed, or given up
	won      bool
	account  limit.Call
}

// runGroup runs the scenario once.
func runGroup(ctx context.Context, p *plan, c *Contestant, seed uint64) (*recorder, error) {
	w, err := newGroup(p, c, seed)
	if err != nil {
		return nil, err
	}
	defer w.room.leave()
	if w.events, err = play(ctx, &w.queue, w, int64(p.scenario.length())); err != nil {
		return nil, err
	}
	for _, m := range w.members {
		w.client(1, one(m.won))
	}
	return &w.recorder, nil
}

// newGroup returns a group in which all begin at the same moment.
func newGroup(p *plan, c *Contestant, seed uint64) (*group, error) {
	g := p.scenario.Group
	w := &group{plan: p, room: room{plan: p}, root: newStream(seed), recorder: newRecorder(p)}
	w.policy = newCaller(c, nil, g.Members)
	for i := range g.acceptors() {
		w.acceptors = append(w.acceptors, paxos.NewAcceptor(i, missed(g.Behind)...))
	}
	for i := range g.Members {
		proposer, err := paxos.NewProposer(i, g.acceptors())
		if err != nil {
			return nil, err
		}
		w.members = append(w.members, member{Proposer: proposer, account: w.policy.account(uint32(i))})
	}
	for i := range w.members {
		w.begun(0)
		w.try(uint32(i))
	}
	return w, nil
}

// missed returns what was decided while the members were away, by somebody else.
func missed(epochs int) (slots []paxos.Slot) {
	const elsewhere = math.MaxInt32 // nobody has such a number
	for e := 1; e <= epochs; e++ {
		b := paxos.Ballot{Epoch: e, Attempt: 1, Member: elsewhere}
		slots = append(slots, paxos.Slot{Epoch: e, Promised: b, Accepted: b, Value: paxos.Value{Member: elsewhere, Seq: e}, Chosen: true})
	}
	return slots
}

func (w *group) handle(e event) {
	if e.kind() == memberDue {
		w.try(e.who)
		return
	}
	m := w.messages[e.who]
	w.free = append(w.free, e.who)
	w.out.Reset()
	if m.Kind.ToAcceptor() {
		a := w.acceptors[m.To]
		a.Receive(m, &w.out)
		a.Persisted(len(w.out.Persist), &w.out)
		w.send()
		return
	}
	w.members[m.To].Receive(m, &w.out)
	w.heard(uint32(m.To))
}

// try proposes, or proposes again.
func (w *group) try(who uint32) {
	m := &w.members[who]
	if m.over { // others have finished what it had begun
		return
	}
	m.attempts++
	w.attempted(w.queue.now, int(m.attempts))
	w.loaded(w.queue.now)
	w.out.Reset()
	if m.attempts == 1 {
		m.Propose(0, "", &w.out)
	} else {
		m.Again("", &w.out)
	}
	w.heard(who)
}

// heard does what a member's machine wants.
func (w *group) heard(who uint32) {
	w.send()
	m := &w.members[who]
	for _, e := range w.out.Events {
		switch {
		case m.over:
		case e.Kind == paxos.Committed:
			m.won = true
			w.close(m, 0)
		case e.Kind == paxos.Lost:
			w.lost(who, m)
		}
	}
}

// lost is what follows an attempt that lost.
func (w *group) lost(who uint32, m *member) {
	s := retry.State{Attempt: int(m.attempts), Prev: m.prev, Elapsed: time.Duration(w.queue.now)}
	d := w.policy.lost(s, &m.account, w.root.of(forBackoff, uint64(who)))
	if d.Stop != 0 {
		m.Abandon()
		w.close(m, d.Stop)
		return
	}
	m.prev = d.Prev
	w.queue.add(int64(d.Wait), memberDue, who, 0)
}

// close ends a member's call.
func (w *group) close(m *member, why retry.Reason) {
	m.over = true
	m.account.End(m.won && !w.policy.prepaid)
	w.end(0, w.queue.now, why)
}

// send sends what is in the output.
func (w *group) send() {
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
