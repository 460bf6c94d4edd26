package sim

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"
	"unsafe"

	"github.com/tideover/tideover/breaker"
	"github.com/tideover/tideover/internal/paxos"
	"github.com/tideover/tideover/limit"
	"github.com/tideover/tideover/retry"
)

// MaxMemory is how many bytes a run may use, the report included. A run that is
// certain to need more is rejected before it starts; a run that needs more
// because its calls accumulate stops with an error.
const MaxMemory = 4 << 30

// growthFactor is how much larger than its contents a growing slice may be.
const growthFactor = 2

// Bytes of a client, of the objects that each process has, some of them made when it needs them,
// and of a call that waits in a priority queue, which keeps it in two heaps and a map.
// A test compares these numbers with the real allocations.
const (
	bytesClient  = int64(unsafe.Sizeof(client{}) + unsafe.Sizeof(int64(0))) // with its pause
	bytesBreaker = 800
	bytesHedge   = 4300
	bytesBudget  = int64(unsafe.Sizeof(limit.Budget{}))
	bytesWaiter  = int64(unsafe.Sizeof(limit.Waiter{})) + 96
)

// Bytes of a call in flight: the call itself, its job, and up to three events in the
// queue, whose buckets keep their capacity.
const (
	bytesCall = int64(unsafe.Sizeof(call{})+unsafe.Sizeof(int64(0))+unsafe.Sizeof(limit.Call{})+unsafe.Sizeof(breaker.Permit{})+unsafe.Sizeof(retry.Outcome{})) + 4
	bytesJob  = int64(unsafe.Sizeof(job{})) + 4
	bytesWait = 3 * int64(unsafe.Sizeof(event{}))
)

// bytesBucket is the memory of one bucket of all series.
const bytesBucket = 8 * (5 + heatRows)

// part is one item of the memory that a run needs.
type part struct {
	field string // field of the scenario that determines the size
	bytes float64
	what  string // description for the error message
}

// parts lists the memory that a run is known to need.
type parts []part

func (p *parts) add(field string, n, each float64, format string, args ...any) {
	*p = append(*p, part{field, n * each, fmt.Sprintf(format, args...)})
}

// total returns the sum of the bytes.
func (p parts) total() (sum float64) {
	for _, x := range p {
		sum += x.bytes
	}
	return sum
}

// check adds a problem, about the largest part, if the sum exceeds MaxMemory.
func (p parts) check(to *problems) {
	if all := p.total(); all > MaxMemory {
		most := slices.MaxFunc(p, func(a, b part) int { return cmp.Compare(a.bytes, b.bytes) })
		to.add(most.field, "%s take %s of memory, and the whole run takes %s: a run may take at most %s", most.what, gib(most.bytes), gib(all), gib(MaxMemory))
	}
}

func gib(bytes float64) string { return fmt.Sprintf("%.1f GiB", bytes/(1<<30)) }

// memory returns the memory of a run of a valid scenario, for the contestant
// that needs most.
func memory(s Scenario, cs []Contestant) (most parts) {
	for i := range cs {
		if p := contestantMemory(&s, &cs[i]); most == nil || p.total() > most.total() {
			most = p
		}
	}
	buckets := float64(s.length() / s.bucket())
	// The sums of each contestant, and their means in the report.
	most.add("bucket", buckets*float64(2*len(cs)+1), bytesBucket, "%.0f buckets for each of %d contestants", buckets, len(cs))
	return most
}

// contestantMemory returns the memory of a run of one contestant.
func contestantMemory(s *Scenario, c *Contestant) (p parts) {
	switch {
	case s.Writers != nil && (s.Writers.Model == Register || s.Writers.Model == Decree):
		p.add("writers.count", float64(s.Writers.Count), float64(int64(unsafe.Sizeof(proposer{}))+bytesBudget), "%d writers", s.Writers.Count)
		p.add("writers.count", float64(s.Writers.Count*s.Writers.acceptors()), float64(growthFactor*unsafe.Sizeof(ballotMessage{})+unsafe.Sizeof(event{})),
			"the first messages of %d writers", s.Writers.Count)
	case s.Writers != nil:
		p.add("writers.count", float64(s.Writers.Count), float64(int64(unsafe.Sizeof(writer{}))+bytesBudget+bytesWait), "%d writers", s.Writers.Count)
	case s.Group != nil:
		p.addGroup(s)
	default:
		p.addCalls(s, c)
		p.addProcesses(s, c)
	}
	return p
}

// addGroup adds the memory of the acceptors, of the epochs that every member
// learns, and of the first messages.
func (p *parts) addGroup(s *Scenario) {
	g := s.Group
	epochs := g.Behind + min(g.Members, int(s.length()/g.Hop))
	p.add("group.behind", float64(g.acceptors()*epochs), float64(growthFactor*unsafe.Sizeof(paxos.Slot{})), "%d epochs at each of %d acceptors", epochs, g.acceptors())
	p.add("group.members", float64(g.Members)*float64(epochs), float64(growthFactor*unsafe.Sizeof(paxos.Entry{})), "%d epochs at each of %d members", epochs, g.Members)
	p.add("group.members", float64(g.Members*g.acceptors()), float64(growthFactor*unsafe.Sizeof(paxos.Message{})), "the first messages of %d members", g.Members)
}

// addCalls adds the memory of the clients. Unless arrivals are open, it also
// adds the memory of one call of each client, because all may call at once.
func (p *parts) addCalls(s *Scenario, c *Contestant) {
	n := s.Clients.Count
	p.add("clients.count", float64(n), float64(bytesClient), "%d clients", n)
	if s.Clients.Arrivals == Open { // how many calls wait at once is known only during the run
		return
	}
	jobs := 1.0
	if c.Policy.Hedge != (retry.Hedge{}) {
		jobs = 2
	}
	p.add("clients.count", float64(n), float64(bytesCall)+jobs*growthFactor*float64(bytesJob)+float64(bytesWait), "%d calls at once", n)
	for i, v := range s.Services {
		if v.Order == ByPriority {
			waiting := min(v.Queue, n)
			p.add(fmt.Sprintf("services[%d].queue", i), float64(waiting), float64(bytesWaiter), "%d calls that wait by priority", waiting)
		}
	}
}

// addProcesses adds the memory of the breakers, budgets and hedge rules, which
// each process has for itself.
func (p *parts) addProcesses(s *Scenario, c *Contestant) {
	plan := newPlan(*s)
	all, active := float64(plan.processes), float64(plan.processes)
	if s.Clients.Arrivals == Open { // some processes may never call
		active = min(active, s.Clients.Rate*s.Clients.highestFactor()*s.Duration.Seconds())
	}
	if c.Breaker != nil {
		targets := float64(len(plan.targets))
		field := "clients.count"
		if targets > 1 {
			field = "clients.fallback"
		}
		p.add(field, targets, 8*all+bytesBreaker*active, "%d processes with breakers for %.0f services each", plan.processes, targets)
	}
	if c.Policy.Budget.Kind != limit.NoBudget {
		p.add("clients.count", all, float64(bytesBudget), "%d processes with a budget each", plan.processes)
	}
	if c.Policy.Hedge != (retry.Hedge{}) {
		p.add("clients.count", 1, 8*all+bytesHedge*active, "%d processes with hedges each", plan.processes)
	}
}

// memoryShare limits the memory of a run while it is executed. How many calls
// accumulate depends on the policy, so a run may exceed the limit only after a while.
type memoryShare struct {
	plan  *plan
	large bool // this is the one run that may use more than its share
}

// reserve returns an error if the bytes that the run uses exceed the limit. A
// run that needs more than its share waits until no other run uses more than
// its own, so that all runs together use at most twice the limit. now, field
// and what are for the error message.
func (r *memoryShare) reserve(ctx context.Context, bytes, now int64, field, what string) error {
	switch {
	case bytes > r.plan.memoryLimit:
		return fmt.Errorf("%s: %s in flight after %v take more than %s of memory: use a smaller value", field, what, time.Duration(now), gib(float64(r.plan.memoryLimit)))
	case r.large || bytes <= r.plan.share:
		return nil
	}
	select {
	case r.plan.large <- struct{}{}:
		r.large = true
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// release lets another run exceed its share.
func (r *memoryShare) release() {
	if r.large {
		<-r.plan.large
		r.large = false
	}
}

// size returns the bytes of the scheduled events.
func (q *queue) size() (bytes int64) {
	for i := range q.buckets {
		bytes += int64(cap(q.buckets[i])) * int64(unsafe.Sizeof(event{}))
	}
	return bytes
}

// checkMemory implements model.
func (w *serviceModel) checkMemory(ctx context.Context) error {
	field := "clients.count"
	if w.plan.scenario.Clients.Arrivals == Open {
		field = "clients.rate"
	}
	waiting := 0
	for i := range w.services {
		if c := w.services[i].byPriority; c != nil {
			waiting += len(c.jobs)
		}
	}
	bytes := w.queue.size() + int64(cap(w.calls))*bytesCall + int64(cap(w.jobs))*bytesJob + int64(waiting)*bytesWaiter
	return w.memoryShare.reserve(ctx, bytes, w.queue.now, field, "the calls")
}

// checkMemory implements model.
func (w *group) checkMemory(ctx context.Context) error {
	bytes := w.queue.size() + int64(cap(w.messages))*int64(unsafe.Sizeof(paxos.Message{})+4)
	return w.memoryShare.reserve(ctx, bytes, w.queue.now, "group.members", "the messages")
}

// checkMemory implements model. The number of writers is constant.
func (*writers) checkMemory(context.Context) error { return nil }
