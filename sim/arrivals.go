package sim

import (
	"time"

	"github.com/tideover/tideover/limit"
	"github.com/tideover/tideover/retry"
)

// arrivals is the client side of a model: it starts the calls of the clients.
type arrivals struct{ *serviceModel }

// scheduleFirstCalls schedules the first calls of the clients.
func (w arrivals) scheduleFirstCalls() {
	c := &w.plan.scenario.Clients
	switch c.Arrivals {
	case Open:
		w.queue.add(w.nextGap(), callArrives, 0, 0)
	case Closed:
		w.pauses = make([]int64, len(w.clients))
		for i := range w.clients {
			w.drawPause(uint32(i))
			w.scheduleNextCall(uint32(i))
		}
	case Herd:
		w.reserveCalls(len(w.clients))
		for i := range w.clients {
			at := unit(w.root.draw(forSpread, uint64(i))) * float64(c.Spread)
			w.queue.add(int64(c.Start)+int64(at), clientCalls, uint32(i), 0)
		}
	}
}

// nextGap returns the time until the next arrival of open arrivals, at the
// highest rate of the scenario.
func (w arrivals) nextGap() int64 {
	return int64(exponential(w.root.draw(forArrivals, w.arrived)) * float64(time.Second) / w.plan.arrivalRate)
}

// nextArrival starts the calls of an arrival and schedules the next one. While
// the rate is below its highest, it skips arrivals at random, which leaves
// arrivals at exactly the rate of the moment. It draws the client of each call at
// random; statistically, that is the same as many independent clients.
func (w arrivals) nextArrival() {
	if !w.acceptsCalls() {
		return
	}
	n, c := w.arrived, &w.plan.scenario.Clients
	w.arrived++
	w.queue.add(w.nextGap(), callArrives, 0, 0)
	if len(c.Load) > 0 && w.root.unit(forLoad, n)*w.plan.highestFactor >= c.factorAt(time.Duration(w.queue.now)) {
		return
	}
	batch := max(uint64(c.Batch), 1)
	for i := range batch {
		w.startClientCall(w.root.below(forClient, n*batch+i, uint32(len(w.clients))))
	}
}

// drawPause draws the pause before the next call of a client of closed arrivals. It
// does so when the call before begins: the processor then computes the logarithms of the
// pause and of the latency of that call at the same time.
func (w arrivals) drawPause(who uint32) {
	n := uint64(w.clients[who].calls)
	d := exponential(w.root.derive(forThinking, uint64(who)).draw(forThinking, n)) * float64(w.plan.scenario.Clients.Think)
	w.pauses[who] = int64(d)
}

// scheduleNextCall schedules the next call of a client of closed arrivals,
// after its pause.
func (w arrivals) scheduleNextCall(who uint32) {
	w.queue.add(w.pauses[who], clientCalls, who, 0)
}

// acceptsCalls reports whether new calls may still begin.
func (w arrivals) acceptsCalls() bool { return w.queue.now < int64(w.plan.scenario.Duration) }

// startClientCall starts a call of a client. All its random numbers come from
// its own stream.
func (w arrivals) startClientCall(who uint32) {
	if !w.acceptsCalls() {
		return
	}
	c := &w.clients[who]
	own := w.root.derive(forClient, uint64(who)).derive(forCall, uint64(c.calls))
	c.calls++
	p := limit.Normal
	if w.plan.prioritised {
		p = w.drawPriority(own)
	}
	w.recordCall(w.queue.now)
	w.classes[p.Class()][0]++
	id := w.addCall(own, w.queue.now)
	w.calls[id].client, w.calls[id].priority = who, p
	if w.pauses != nil {
		w.drawPause(who)
	}
	w.startCall(id)
}

// drawPriority draws a call's class.
func (w arrivals) drawPriority(own stream) limit.Priority {
	u := own.unit(forPriority, 0)
	for class, share := range w.plan.scenario.Clients.Priorities {
		if u -= share; u < 0 {
			return limit.Lowest + limit.Priority(class)
		}
	}
	return limit.Highest
}

// endClientCall records the end of a client's call. With closed arrivals it also
// schedules the client's next call. A reason of 0 means success.
func (w arrivals) endClientCall(c *call, why retry.Reason) {
	if why == 0 {
		w.clients[c.client].succeeded++
		w.classes[c.priority.Class()][1]++
	}
	w.recordEnd(c.start, w.queue.now, why)
	if w.pauses != nil {
		w.scheduleNextCall(c.client)
	}
}
