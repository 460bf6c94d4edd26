package sim

import (
	"time"

	"github.com/tideover/tideover/limit"
	"github.com/tideover/tideover/retry"
)

// arrive lets the first calls come.
func (w *services) arrive() {
	c := &w.plan.scenario.Clients
	switch c.Arrivals {
	case Open:
		w.queue.add(w.gap(), callArrives, 0, 0)
	case Closed:
		for i := range w.clients {
			w.think(uint32(i))
		}
	case Herd:
		w.expect(len(w.clients))
		for i := range w.clients {
			at := unit(w.root.draw(forSpread, uint64(i))) * float64(c.Spread)
			w.queue.add(int64(c.Start)+int64(at), clientCalls, uint32(i), 0)
		}
	}
}

// gap returns the time until the next call of open arrivals.
func (w *services) gap() int64 {
	return int64(exponential(w.root.draw(forArrivals, w.arrived)) * float64(time.Second) / w.plan.scenario.Clients.Rate)
}

// nextArrival begins a call of open arrivals. The arrivals of many independent
// clients are those of one stream, each with a client of its own.
func (w *services) nextArrival() {
	if !w.begins() {
		return
	}
	who := w.root.below(forClient, w.arrived, uint32(len(w.clients)))
	w.arrived++
	w.queue.add(w.gap(), callArrives, 0, 0)
	w.call(who)
}

// think lets a client of closed arrivals pause before its next call.
func (w *services) think(who uint32) {
	n := uint64(w.clients[who].calls)
	d := exponential(w.root.of(forThinking, uint64(who)).draw(forThinking, n)) * float64(w.plan.scenario.Clients.Think)
	w.queue.add(int64(d), clientCalls, who, 0)
}

// begins reports whether calls still begin.
func (w *services) begins() bool { return w.queue.now < int64(w.plan.scenario.Duration) }

// call begins a call of a client. Everything that chance brings to it comes
// from its own stream.
func (w *services) call(who uint32) {
	if !w.begins() {
		return
	}
	c := &w.clients[who]
	own := w.root.of(forClient, uint64(who)).of(forCall, uint64(c.calls))
	c.calls++
	p := w.priority(own)
	w.begun(w.queue.now)
	w.classes[p.Class()][0]++
	w.begin(call{
		stream: own, start: w.queue.now, client: who, parent: none,
		process: who / uint32(w.plan.sharing), priority: p,
	})
}

// priority draws a call's class.
func (w *services) priority(own stream) limit.Priority {
	if !w.plan.prioritised {
		return limit.Normal
	}
	u := own.unit(forPriority, 0)
	for class, share := range w.plan.scenario.Clients.Priorities {
		if u -= share; u < 0 {
			return limit.Lowest + limit.Priority(class)
		}
	}
	return limit.Highest
}

// ended ends a call of a client.
func (w *services) ended(c *call, why retry.Reason) {
	if why == 0 {
		w.clients[c.client].succeeded++
		w.classes[c.priority.Class()][1]++
	}
	w.end(c.start, w.queue.now, why)
	if w.plan.scenario.Clients.Arrivals == Closed {
		w.think(c.client)
	}
}
