package sim

import (
	"context"
	"time"

	"github.com/tideover/tideover/breaker"
	"github.com/tideover/tideover/limit"
	"github.com/tideover/tideover/retry"
)

// The kinds of events among clients and services.
const (
	callArrives  uint8 = iota + 1 // the next call of open arrivals
	clientCalls                   // a client begins a call
	attemptDue                    // the wait before an attempt is over
	attemptLate                   // an attempt has run out of time
	hedgeDue                      // an attempt is slow: time for a second beside it
	workDone                      // a worker has finished
	workRefused                   // a service has turned a call away
	failureTurns                  // a failure begins or ends
)

// refusal is how long it takes to be turned away: a round trip, no work. It
// also keeps a policy that does not wait from trying for ever in one moment.
const refusal = int64(time.Millisecond)

// services is the world of clients that call services.
type services struct {
	queue queue
	plan  *plan
	room  room
	root  stream
	recorder

	clients  []client
	callers  []caller // the clients first, then the services that call others
	services []service
	arrived  uint64 // calls of open arrivals so far

	calls     []call
	freeCalls []uint32
	accounts  []limit.Call     // beside calls, if there is a budget
	permits   []breaker.Permit // beside calls, if there is a breaker
	verdicts  []retry.Outcome  // beside calls, if there are hedges: what the first said
	unlimited limit.Call       // the account of a call without a budget

	jobs     []job
	freeJobs []uint32
}

// client is what is kept for each client, also while it does nothing.
type client struct {
	calls, succeeded uint32
}

// runServices runs the scenario once.
func runServices(ctx context.Context, p *plan, c *Contestant, seed uint64) (*recorder, error) {
	w := newServices(p, c, seed)
	defer w.room.leave()
	events, err := play(ctx, &w.queue, w, int64(p.scenario.length()))
	if err != nil {
		return nil, err
	}
	w.close(events)
	return &w.recorder, nil
}

func newServices(p *plan, c *Contestant, seed uint64) *services {
	w := &services{
		plan: p, room: room{plan: p}, root: newStream(seed), recorder: newRecorder(p),
		clients: make([]client, p.scenario.Clients.Count),
	}
	w.callers = []caller{newCaller(c, p.targets, p.processes)}
	for i, v := range p.scenario.Services {
		w.services = append(w.services, newService(v))
		if v.Calls == "" {
			continue
		}
		own := *c
		if v.Policy != "" {
			own = Contestant{Policy: p.policies[i]}
		}
		w.services[i].caller = len(w.callers)
		w.callers = append(w.callers, newCaller(&own, []int{p.scenario.index(v.Calls)}, 1))
	}
	w.widen()
	for i, f := range p.scenario.Failures {
		w.queue.add(int64(f.From), failureTurns, uint32(i), 0)
		if f.Until > 0 {
			w.queue.add(int64(f.Until), failureTurns, uint32(i), 0)
		}
	}
	w.arrive()
	return w
}

// widen makes the slices beside calls that the callers need.
func (w *services) widen() {
	for _, c := range w.callers {
		if c.budgets != nil && w.accounts == nil {
			w.accounts = []limit.Call{}
		}
		if c.breakers != nil && w.permits == nil {
			w.permits = []breaker.Permit{}
		}
		if c.hedges != nil && w.verdicts == nil {
			w.verdicts = []retry.Outcome{}
		}
	}
}

func (w *services) handle(e event) {
	if e.at >= w.edge {
		w.sample(e.at, w.waiting())
	}
	switch e.kind() {
	case callArrives:
		w.nextArrival()
	case clientCalls:
		w.call(e.who)
	case attemptDue:
		w.attempt(e.who)
	case attemptLate:
		w.late(e.who, e.generation())
	case hedgeDue:
		w.hedge(e.who, e.generation())
	case workDone:
		w.worked(e.who)
	case workRefused:
		w.refused(e.who)
	case failureTurns:
		w.turn(int(e.who))
	}
}

// waiting returns how many calls wait for a worker.
func (w *services) waiting() (n int) {
	for i := range w.services {
		n += w.services[i].queued
	}
	return n
}

// close ends the record.
func (w *services) close(events int) {
	w.events = events
	w.sample(int64(w.plan.scenario.length()), w.waiting())
	for i := range w.services {
		w.work += w.services[i].work
		w.wasted += w.services[i].wasted
	}
	for _, c := range w.clients {
		w.client(int(c.calls), int(c.succeeded))
	}
}
