package sim

import (
	"context"
	"time"
)

// The kinds of events of a service model.
const (
	callArrives  uint8 = iota + 1 // the next call of open arrivals
	clientCalls                   // a client begins a call
	attemptDue                    // the wait before an attempt is over
	attemptLate                   // an attempt has timed out
	hedgeDue                      // an attempt is slow: start a second one beside it
	workDone                      // a worker has finished, and answers
	workerFree                    // a worker of a service with a capacity is free again
	workRefused                   // a service has refused a call
	failureTurns                  // a failure begins or ends
)

// refusal is how long the refusal of a call takes: a round trip without work. It also
// prevents a policy that does not wait from retrying for ever at one moment.
const refusal = int64(time.Millisecond)

// serviceModel simulates clients that call services.
type serviceModel struct {
	queue       queue
	plan        *plan
	memoryShare memoryShare
	root        stream
	recorder

	sharing  uint32 // clients per process
	clients  []client
	pauses   []int64  // parallel to clients, with closed arrivals: the pause before the client's next call
	callers  []caller // the clients first, then the services that call others
	services []service
	arrived  uint64 // number of calls of open arrivals

	callTable
	jobTable
}

// client is the state of a client.
type client struct {
	calls, succeeded uint32
}

// runServices runs the scenario once.
func runServices(ctx context.Context, p *plan, c *Contestant, seed uint64) (*recorder, error) {
	w := newServiceModel(p, c, seed)
	defer w.memoryShare.release()
	events, err := runModel(ctx, &w.queue, w, int64(p.scenario.length()))
	if err != nil {
		return nil, err
	}
	w.closeRecord(events)
	return &w.recorder, nil
}

// newServiceModel returns a model whose first events are scheduled.
func newServiceModel(p *plan, c *Contestant, seed uint64) *serviceModel {
	w := &serviceModel{
		plan: p, memoryShare: memoryShare{plan: p}, root: newStream(seed), recorder: newRecorder(p),
		sharing: uint32(p.sharing), clients: make([]client, p.scenario.Clients.Count),
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
	w.addCallColumns(w.callers, w.services)
	for i, f := range p.scenario.Failures {
		w.queue.add(int64(f.From), failureTurns, uint32(i), 0)
		if f.Until > 0 {
			w.queue.add(int64(f.Until), failureTurns, uint32(i), 0)
		}
	}
	arrivals{w}.scheduleFirstCalls()
	return w
}

func (w *serviceModel) handle(e event) {
	if e.at >= w.edge {
		w.sampleQueue(e.at, w.queuedCalls())
	}
	switch e.kind() {
	case callArrives:
		arrivals{w}.nextArrival()
	case clientCalls:
		arrivals{w}.startClientCall(e.who)
	case attemptDue:
		w.startAttempt(e.who)
	case attemptLate:
		w.expireAttempt(e.who, e.generation())
	case hedgeDue:
		w.startHedge(e.who, e.generation())
	case workDone:
		jobServer{w}.finishWork(e.who)
	case workerFree:
		jobServer{w}.freeWorker(int(e.who))
	case workRefused:
		jobServer{w}.deliverRefusal(e.who)
	case failureTurns:
		jobServer{w}.updateFaults(int(e.who))
	}
}

// queuedCalls returns how many calls wait for a worker.
func (w *serviceModel) queuedCalls() (n int) {
	for i := range w.services {
		n += w.services[i].queued
	}
	return n
}

// closeRecord completes the record of the run.
func (w *serviceModel) closeRecord(events int) {
	w.events = events
	w.sampleQueue(int64(w.plan.scenario.length()), w.queuedCalls())
	for i := range w.services {
		w.work += w.services[i].work
		w.wasted += w.services[i].wasted
	}
	for _, c := range w.clients {
		w.recordClient(int(c.calls), int(c.succeeded))
	}
}
