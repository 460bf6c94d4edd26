package sim

import (
	"context"
	"math"
	"unsafe"

	"github.com/tideover/tideover/retry"
)

// The kinds of events among writers with ballots.
const (
	ballotArrives uint8 = iota + 1 // a message, at an acceptor or a writer
	proposerDue                    // the wait is over
)

// ballots simulates writers that change a value by ballots, in two rounds of
// messages to a set of acceptors. In the first round a quorum must promise to
// accept no lower ballot; in the second a quorum must accept the ballot. A
// writer loses an attempt only if another writer pre-empts it: an acceptor
// rejects its ballot, because it has promised a higher one in between.
//
// With the model Register (CASPaxos) each writer applies its change to the
// value that the promises contain, so no writer loses by the success of another.
// With the model Decree all writers want one decision: when one of them has
// made it, the acceptors tell all.
type ballots struct {
	contest
	memoryShare memoryShare
	proposers   []proposer
	promised    []uint64 // for each acceptor, the highest ballot that it has promised
	messages    []ballotMessage
	free        []uint32
	sent        uint64
}

// proposer is a writer that changes the value once.
type proposer struct {
	rival
	ballot    uint64 // of the attempt under way; 0 if there is none
	highest   uint64 // the highest ballot that it knows
	accepting bool   // it is in the second round
	agreed    int    // answers of this round that agree
	over      bool   // it has succeeded or given up
}

// ballotMessage is a message between a writer and an acceptor.
type ballotMessage struct {
	ballot   uint64
	promised uint64 // in a rejection, the higher ballot
	who      uint32
	acceptor uint8
	kind     ballotKind
}

type ballotKind uint8

const (
	prepare ballotKind = iota // from the writer, first round
	accept                    // from the writer, second round
	agree                     // from the acceptor
	reject                    // from the acceptor
	decided                   // from an acceptor: the decision is made
)

// runBallots runs the scenario once. All writers begin at the same moment.
func runBallots(ctx context.Context, p *plan, c *Contestant, seed uint64) (*recorder, error) {
	s := p.scenario.Writers
	w := &ballots{
		contest: newContest(p, c, s.Count, seed), memoryShare: memoryShare{plan: p},
		proposers: make([]proposer, s.Count), promised: make([]uint64, s.acceptors()),
	}
	defer w.memoryShare.release()
	for i := range w.proposers {
		w.recordCall(0)
		w.proposers[i].account = w.policy.account(uint32(i))
		w.startAttempt(uint32(i))
	}
	var err error
	if w.events, err = runModel(ctx, &w.queue, w, int64(p.scenario.length())); err != nil {
		return nil, err
	}
	for _, x := range w.proposers {
		w.recordClient(1, boolToInt(x.won))
	}
	return &w.recorder, nil
}

// ballotRound is the distance between the ballots of one writer. The remainder
// is the number of the writer, so that no two writers have the same ballot.
// There are at most a million writers.
const ballotRound = 1 << 20

// startAttempt sends the first round of a new attempt, unless the writer has
// learned the decision during the wait.
func (w *ballots) startAttempt(who uint32) {
	x := &w.proposers[who]
	if x.over {
		return
	}
	x.attempts++
	w.recordAttempt(w.queue.now, int(x.attempts))
	w.recordLoad(w.queue.now)
	x.highest = (x.highest/ballotRound+1)*ballotRound + uint64(who)
	x.ballot, x.accepting, x.agreed = x.highest, false, 0
	w.sendToAll(ballotMessage{kind: prepare, who: who, ballot: x.ballot})
}

func (w *ballots) sendToAll(m ballotMessage) {
	for i := range w.promised {
		m.acceptor = uint8(i)
		w.send(m)
	}
}

// send schedules the arrival of a message.
func (w *ballots) send(m ballotMessage) {
	var at uint32
	if n := len(w.free); n > 0 {
		at, w.free = w.free[n-1], w.free[:n-1]
		w.messages[at] = m
	} else {
		at = uint32(len(w.messages))
		w.messages = append(w.messages, m)
	}
	s := w.plan.scenario.Writers
	n := normal(w.root.draw(forHop, w.sent))
	w.sent++
	w.queue.add(int64(math.Abs(float64(s.Hop)+n*float64(s.Sigma))), ballotArrives, at, 0)
}

func (w *ballots) handle(e event) {
	if e.kind() == proposerDue {
		w.startAttempt(e.who)
		return
	}
	m := w.messages[e.who]
	w.free = append(w.free, e.who)
	switch m.kind {
	case prepare, accept:
		w.answer(m)
	case agree, reject:
		w.handleAnswer(m)
	case decided:
		w.succeed(m.who)
	}
}

// answer is what an acceptor does with a message.
func (w *ballots) answer(m ballotMessage) {
	promised := &w.promised[m.acceptor]
	if m.ballot < *promised {
		m.kind, m.promised = reject, *promised
	} else {
		m.kind, *promised = agree, m.ballot
	}
	w.send(m)
}

// handleAnswer is what a writer does with the answer of an acceptor.
func (w *ballots) handleAnswer(m ballotMessage) {
	x := &w.proposers[m.who]
	x.highest = max(x.highest, m.promised)
	if x.over || m.ballot != x.ballot {
		return
	}
	quorum := len(w.promised)/2 + 1
	if m.kind == reject {
		w.lose(m.who)
		return
	}
	x.agreed++
	switch {
	case x.agreed < quorum:
	case !x.accepting:
		x.accepting, x.agreed = true, 0
		w.sendToAll(ballotMessage{kind: accept, who: m.who, ballot: x.ballot})
	case w.plan.scenario.Writers.Model == Decree:
		for i := range w.proposers {
			if i != int(m.who) {
				w.send(ballotMessage{kind: decided, who: uint32(i)})
			}
		}
		w.succeed(m.who)
	default:
		w.succeed(m.who)
	}
}

// succeed ends the call of a writer, unless it has ended.
func (w *ballots) succeed(who uint32) {
	x := &w.proposers[who]
	if !x.over {
		x.over, x.won, x.ballot = true, true, 0
		w.finish(&x.rival, retry.Reason(0))
	}
}

// lose ends an attempt that another writer has pre-empted.
func (w *ballots) lose(who uint32) {
	x := &w.proposers[who]
	x.ballot = 0
	if why := w.handleLoss(&x.rival, who, proposerDue); why != 0 {
		x.over = true
		w.finish(&x.rival, why)
	}
}

// checkMemory implements model.
func (w *ballots) checkMemory(ctx context.Context) error {
	bytes := w.queue.size() + int64(cap(w.messages))*int64(unsafe.Sizeof(ballotMessage{})+4)
	return w.memoryShare.reserve(ctx, bytes, w.queue.now, "writers.count", "the messages")
}
