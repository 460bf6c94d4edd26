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

// writers simulates writers that conflict.
type writers struct {
	queue queue
	plan  *plan
	root  stream
	recorder

	policy  caller
	writers []writer
	version uint32 // of the value that they write
}

// writer writes once.
type writer struct {
	hops     uint64
	prev     time.Duration
	attempts uint32
	seen     uint32 // the version that it read
	won      bool   // its write succeeded
	account  limit.Call
}

// runWriters runs the scenario once. All begin at the same moment.
func runWriters(ctx context.Context, p *plan, c *Contestant, seed uint64) (*recorder, error) {
	w := &writers{plan: p, root: newStream(seed), recorder: newRecorder(p)}
	w.policy = newCaller(c, nil, p.scenario.Writers.Count)
	w.writers = make([]writer, p.scenario.Writers.Count)
	for i := range w.writers {
		w.recordCall(0)
		w.writers[i].account = w.policy.account(uint32(i))
		w.startAttempt(uint32(i))
	}
	events, err := runModel(ctx, &w.queue, w, int64(p.scenario.length()))
	if err != nil {
		return nil, err
	}
	w.events = events
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
		w.handleWriteResult(e.who, x)
	}
}

// startAttempt starts to read and write.
func (w *writers) startAttempt(who uint32) {
	x := &w.writers[who]
	x.attempts++
	w.recordAttempt(w.queue.now, int(x.attempts))
	w.sendMessage(readArrives, who)
}

// sendMessage sends a message, which arrives as an event of the kind.
func (w *writers) sendMessage(kind uint8, who uint32) {
	x := &w.writers[who]
	s := w.plan.scenario.Writers
	n := normal(w.root.derive(forHop, uint64(who)).draw(forHop, x.hops))
	x.hops++
	w.queue.add(int64(math.Abs(float64(s.Hop)+n*float64(s.Sigma))), kind, who, 0)
}

// handleWriteResult decides what follows a write.
func (w *writers) handleWriteResult(who uint32, x *writer) {
	if x.won {
		w.finishWriter(x, 0)
		return
	}
	s := retry.State{Attempt: int(x.attempts), Prev: x.prev, Elapsed: time.Duration(w.queue.now)}
	d := w.policy.decideAfterLoss(s, &x.account, w.root.derive(forBackoff, uint64(who)))
	if d.Stop != 0 {
		w.finishWriter(x, d.Stop)
		return
	}
	x.prev = d.Prev
	w.queue.add(int64(d.Wait), writerDue, who, 0)
}

// finishWriter ends a writer's call.
func (w *writers) finishWriter(x *writer, why retry.Reason) {
	x.account.End(x.won && !w.policy.prepaid)
	w.recordEnd(0, w.queue.now, why)
}
