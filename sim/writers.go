package sim

import (
	"context"
	"math"
	"time"

	"github.com/tideover/tideover/limit"
	"github.com/tideover/tideover/retry"
)

// The kinds of events among writers.
const (
	readArrives   uint8 = iota + 1 // at the store
	readAnswered                   // at the writer
	writeArrives                   // at the store
	writeAnswered                  // at the writer
	writerDue                      // the wait is over
)

// contest is the common part of the models in which writers conflict: writers
// and group.
type contest struct {
	queue queue
	plan  *plan
	root  stream
	recorder
	policy caller
}

// rival is the state of one writer or member. It makes one call, whose attempts fail
// until it wins.
type rival struct {
	prev     time.Duration
	attempts uint32
	won      bool
	account  limit.Call
}

func newContest(p *plan, c *Contestant, count int, seed uint64) contest {
	return contest{plan: p, root: newStream(seed), recorder: newRecorder(p), policy: newCaller(c, nil, count)}
}

// handleLoss schedules the next attempt of a rival as an event of the kind due and
// returns 0. If the policy gives up, it returns the reason instead.
func (w *contest) handleLoss(x *rival, who uint32, due uint8) retry.Reason {
	x.account.Fail()
	u := w.root.derive(forBackoff, uint64(who)).draw(forBackoff, uint64(x.attempts))
	s := retry.State{Attempt: int(x.attempts), Prev: x.prev, Elapsed: time.Duration(w.queue.now)}
	var o retry.Outcome
	if w.policy.Delay != nil {
		o.Delay = max(w.policy.Delay(s, o, u), 0)
	}
	d := retry.DecideWithin(w.policy.Policy, s, o, 0, &x.account, u)
	if d.Stop != 0 {
		return d.Stop
	}
	if x.prev = d.Prev; w.policy.chained {
		x.prev = d.Wait
	}
	w.queue.add(int64(d.Wait), due, who, 0)
	return 0
}

// finish ends a call. A reason of 0 means success.
func (w *contest) finish(x *rival, why retry.Reason) {
	x.account.End(x.won && !w.policy.Prepaid)
	w.recordEnd(0, w.queue.now, why)
}

// writers simulates writers that change one value.
type writers struct {
	contest
	writers []writer
	version uint32 // of the value that they write
}

// writer is a writer that changes the value once.
type writer struct {
	rival
	hops uint64 // messages sent so far
	seen uint32 // the version that it read
}

// runWriters runs the scenario once. All writers begin at the same moment.
func runWriters(ctx context.Context, p *plan, c *Contestant, seed uint64) (*recorder, error) {
	n := p.scenario.Writers.Count
	w := &writers{contest: newContest(p, c, n, seed), writers: make([]writer, n)}
	for i := range w.writers {
		w.recordCall(0)
		w.writers[i].account = w.policy.account(uint32(i))
		w.startAttempt(uint32(i))
	}
	var err error
	if w.events, err = runModel(ctx, &w.queue, w, int64(p.scenario.length())); err != nil {
		return nil, err
	}
	for _, x := range w.writers {
		w.recordClient(1, boolToInt(x.won))
	}
	return &w.recorder, nil
}

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (w *writers) handle(e event) {
	x := &w.writers[e.who]
	switch e.kind() {
	case writerDue:
		w.startAttempt(e.who)
	case readArrives:
		x.seen = w.version
		w.sendMessage(readAnswered, e.who)
	case readAnswered:
		w.sendMessage(writeArrives, e.who)
	case writeArrives:
		w.recordLoad(e.at)
		x.won = x.seen == w.version
		w.version += uint32(boolToInt(x.won))
		w.sendMessage(writeAnswered, e.who)
	case writeAnswered:
		why := retry.Reason(0)
		if !x.won {
			why = w.handleLoss(&x.rival, e.who, writerDue)
		}
		if x.won || why != 0 {
			w.finish(&x.rival, why)
		}
	}
}

// startAttempt sends the read request of a new attempt.
func (w *writers) startAttempt(who uint32) {
	x := &w.writers[who]
	x.attempts++
	w.recordAttempt(w.queue.now, int(x.attempts))
	w.sendMessage(readArrives, who)
}

// sendMessage sends a message to or from the writer. Its arrival is an event of
// the given kind.
func (w *writers) sendMessage(kind uint8, who uint32) {
	x := &w.writers[who]
	s := w.plan.scenario.Writers
	n := normal(w.root.derive(forHop, uint64(who)).draw(forHop, x.hops))
	x.hops++
	w.queue.add(int64(math.Abs(float64(s.Hop)+n*float64(s.Sigma))), kind, who, 0)
}
