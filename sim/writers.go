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
	readArrives   uint8 = iota + 1 // at the thing
	readAnswered                   // at the writer
	writeArrives                   // at the thing
	writeAnswered                  // at the writer
	writerDue                      // the wait is over
)

// writers is the world of writers that collide.
type writers struct {
	queue queue
	plan  *plan
	root  stream
	recorder

	policy  caller
	writers []writer
	version uint32 // of the thing they write
}

// writer is one that wants to write once.
type writer struct {
	hops     uint64
	prev     time.Duration
	attempts uint32
	seen     uint32 // the version that it read
	won      bool   // its write went through, and it will hear of it
	account  limit.Call
}

// runWriters runs the scenario once. All begin at the same moment.
func runWriters(ctx context.Context, p *plan, c *Contestant, seed uint64) (*recorder, error) {
	w := &writers{plan: p, root: newStream(seed), recorder: newRecorder(p)}
	w.policy = newCaller(c, nil, p.scenario.Writers.Count)
	w.writers = make([]writer, p.scenario.Writers.Count)
	for i := range w.writers {
		w.begun(0)
		w.writers[i].account = w.policy.account(uint32(i))
		w.try(uint32(i))
	}
	events, err := play(ctx, &w.queue, w, int64(p.scenario.length()))
	if err != nil {
		return nil, err
	}
	w.events = events
	for _, x := range w.writers {
		w.client(1, one(x.won))
	}
	return &w.recorder, nil
}

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (w *writers) handle(e event) {
	x := &w.writers[e.who]
	switch e.kind() {
	case writerDue:
		w.try(e.who)
	case readArrives:
		x.seen = w.version
		w.hop(readAnswered, e.who)
	case readAnswered:
		w.hop(writeArrives, e.who)
	case writeArrives:
		w.loaded(e.at)
		x.won = x.seen == w.version
		w.version += uint32(one(x.won))
		w.hop(writeAnswered, e.who)
	case writeAnswered:
		w.answered(e.who, x)
	}
}

// try begins to read and write.
func (w *writers) try(who uint32) {
	x := &w.writers[who]
	x.attempts++
	w.attempted(w.queue.now, int(x.attempts))
	w.hop(readArrives, who)
}

// hop sends a message, which arrives as the event.
func (w *writers) hop(kind uint8, who uint32) {
	x := &w.writers[who]
	s := w.plan.scenario.Writers
	n := normal(w.root.of(forHop, uint64(who)).draw(forHop, x.hops))
	x.hops++
	w.queue.add(int64(math.Abs(float64(s.Hop)+n*float64(s.Sigma))), kind, who, 0)
}

// answered is what follows a write.
func (w *writers) answered(who uint32, x *writer) {
	if x.won {
		w.close(x, 0)
		return
	}
	s := retry.State{Attempt: int(x.attempts), Prev: x.prev, Elapsed: time.Duration(w.queue.now)}
	d := w.policy.lost(s, &x.account, w.root.of(forBackoff, uint64(who)))
	if d.Stop != 0 {
		w.close(x, d.Stop)
		return
	}
	x.prev = d.Prev
	w.queue.add(int64(d.Wait), writerDue, who, 0)
}

// close ends a writer's call.
func (w *writers) close(x *writer, why retry.Reason) {
	x.account.End(x.won && !w.policy.prepaid)
	w.end(0, w.queue.now, why)
}
