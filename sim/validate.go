package sim

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/tideover/tideover/internal/paxos"
	"github.com/tideover/tideover/limit"
	"github.com/tideover/tideover/retry"
)

// The limits of a scenario bound the memory and the time of a run. They are far
// above what real scenarios need.
const (
	maxClients  = 20_000_000
	maxBuckets  = 200_000
	maxServices = 100
	maxTime     = 7 * 24 * time.Hour
	maxRate     = 1e9
)

// problems collects what is wrong with the fields of a struct.
type problems []error

func (p *problems) add(field, format string, args ...any) {
	*p = append(*p, fmt.Errorf(field+": "+format, args...))
}

// check adds a problem unless the condition holds.
func (p *problems) check(holds bool, field, format string, args ...any) {
	if !holds {
		p.add(field, format, args...)
	}
}

// checkDuration adds a problem unless d is between 0 and maxTime; zero says
// whether 0 is allowed.
func (p *problems) checkDuration(field string, d time.Duration, zero bool) {
	switch {
	case d < 0:
		p.add(field, "%v is negative", d)
	case d == 0 && !zero:
		p.add(field, "must be above zero")
	case d > maxTime:
		p.add(field, "%v is above %v", d, maxTime)
	}
}

// checkRange adds a problem unless lo <= v <= hi. NaN is a problem.
func (p *problems) checkRange(field string, v, lo, hi float64) {
	p.check(v >= lo && v <= hi, field, "%v is not between %g and %g", v, lo, hi)
}

// checkInt is checkRange for integers.
func (p *problems) checkInt(field string, v, lo, hi int) {
	p.check(v >= lo && v <= hi, field, "%d is not between %d and %d", v, lo, hi)
}

// checkUnused adds a problem if a field is set although it has no effect in the
// scenario. The message is "only" followed by what, such as "allowed with services".
func (p *problems) checkUnused(field string, set bool, what string) {
	p.check(!set, field, "only %s", what)
}

// Validate reports everything that is wrong with the scenario, each problem
// with its field's name. A scenario that is valid can be run.
func (s Scenario) Validate() error {
	var p problems
	p.check(s.Name != "", "name", "is empty")
	p.checkDuration("duration", s.Duration, false)
	p.checkDuration("drain", s.Drain, true)
	p.checkDuration("bucket", s.Bucket, true)
	n := s.length() / s.bucket()
	p.check(s.Bucket < 0 || n <= maxBuckets, "bucket", "%v cuts the run into %d buckets, at most %d; make it longer", s.bucket(), n, maxBuckets)
	switch {
	case s.Writers != nil:
		s.Writers.check(&p)
		p.checkUnused("group", s.Group != nil, "allowed without writers")
		s.checkNoServices(&p, "allowed without writers")
	case s.Group != nil:
		s.Group.check(&p)
		s.checkNoServices(&p, "allowed without a group")
	default:
		s.Clients.check(&p, s)
		s.checkServices(&p)
		for i, f := range s.Failures {
			f.check(&p, fmt.Sprintf("failures[%d].", i), s)
		}
	}
	return errors.Join(p...)
}

// checkNoServices adds a problem for each field that is set although it needs a
// scenario with services.
func (s Scenario) checkNoServices(p *problems, what string) {
	p.checkUnused("services", len(s.Services) > 0, what)
	p.checkUnused("clients", s.Clients.Count != 0, what)
	p.checkUnused("failures", len(s.Failures) > 0, what)
}

func (w *Writers) check(p *problems) {
	p.checkRange("writers.count", float64(w.Count), 1, 1e6)
	switch w.Model {
	case "", Store:
		p.checkUnused("writers.acceptors", w.Acceptors != 0, "allowed for the models register and decree")
	case Register, Decree:
		p.checkRange("writers.acceptors", float64(w.Acceptors), 0, paxos.MaxAcceptors)
	default:
		p.add("writers.model", "%q: want store, register or decree", w.Model)
	}
	p.checkDuration("writers.hop", w.Hop, false)
	p.checkDuration("writers.sigma", w.Sigma, true)
}

func (g *Group) check(p *problems) {
	p.checkRange("group.members", float64(g.Members), 1, 10_000)
	p.checkRange("group.acceptors", float64(g.Acceptors), 0, paxos.MaxAcceptors)
	p.checkDuration("group.hop", g.Hop, false)
	p.checkRange("group.sigma", g.Sigma, 0, 10)
	p.checkRange("group.behind", float64(g.Behind), 0, 1e6)
}

func (c Clients) check(p *problems, s Scenario) {
	p.checkRange("clients.count", float64(c.Count), 1, maxClients)
	p.checkRange("clients.sharing", float64(c.Sharing), 0, maxClients)
	switch c.Arrivals {
	case Open:
		p.check(c.Rate > 0 && c.Rate <= maxRate, "clients.rate", "%v is not above 0 and at most %g calls per second", c.Rate, maxRate)
	case Closed:
		p.checkDuration("clients.think", c.Think, false)
	case Herd:
		p.checkDuration("clients.start", c.Start, true)
		p.checkDuration("clients.spread", c.Spread, true)
		p.check(c.Start < s.Duration && c.Start+c.Spread <= s.Duration, "clients.spread",
			"the last call of the herd begins at %v, not before the end of the duration %v: lower start or spread", c.Start+c.Spread, s.Duration)
	default:
		p.add("clients.arrivals", "%q: want open, closed or herd", c.Arrivals)
	}
	c.checkLoad(p)
	p.checkUnused("clients.rate", c.Rate != 0 && c.Arrivals != Open, "allowed with open arrivals")
	p.checkUnused("clients.think", c.Think != 0 && c.Arrivals != Closed, "allowed with closed arrivals")
	p.checkUnused("clients.start", c.Start != 0 && c.Arrivals != Herd, "allowed with a herd")
	p.checkUnused("clients.spread", c.Spread != 0 && c.Arrivals != Herd, "allowed with a herd")
	for i, name := range c.Fallback {
		p.check(s.index(name) >= 0, fmt.Sprintf("clients.fallback[%d]", i), "there is no service %q", name)
	}
	c.checkPriorities(p, s)
}

// checkLoad checks the fields that change the arrivals of a constant rate.
func (c Clients) checkLoad(p *problems) {
	p.checkUnused("clients.load", len(c.Load) > 0 && c.Arrivals != Open, "allowed with open arrivals")
	p.checkUnused("clients.batch", c.Batch != 0 && c.Arrivals != Open, "allowed with open arrivals")
	p.checkRange("clients.batch", float64(c.Batch), 0, maxClients)
	end := time.Duration(0)
	for i, l := range c.Load {
		at := fmt.Sprintf("clients.load[%d].", i)
		p.checkDuration(at+"at", l.At, true)
		p.checkDuration(at+"ramp", l.Ramp, true)
		p.checkRange(at+"factor", l.Factor, 0, 1e6)
		p.check(!(c.Rate*l.Factor > maxRate), at+"factor", "%v times the rate of %v is above %g calls per second", l.Factor, c.Rate, maxRate)
		p.check(l.At >= end, at+"at", "%v is before the end of the change before it, %v", l.At, end)
		end = l.At + l.Ramp
	}
}

func (c Clients) checkPriorities(p *problems, s Scenario) {
	if c.Priorities == [limit.Classes]float64{} {
		return
	}
	sum := 0.0
	for _, f := range c.Priorities {
		p.checkRange("clients.priorities", f, 0, 1)
		sum += f
	}
	p.check(!(sum < 0.999 || sum > 1.001), "clients.priorities", "the shares add up to %v, not to 1", sum)
	used := slices.ContainsFunc(s.Services, func(v Service) bool { return v.Order == ByPriority })
	p.checkUnused("clients.priorities", !used, "allowed with a service whose order is priority")
}

func (f Failure) check(p *problems, at string, s Scenario) {
	p.checkDuration(at+"from", f.From, true)
	p.checkDuration(at+"until", f.Until, true)
	switch {
	case f.Until != 0 && f.Until <= f.From:
		p.add(at+"until", "%v is not after from %v", f.Until, f.From)
	case f.From > s.length():
		p.add(at+"from", "%v is after the end of the run", f.From)
	}
	p.check(f.Service == "" || s.index(f.Service) >= 0, at+"service", "there is no service %q", f.Service)
	switch f.Kind {
	case Errors, Reject, BlackHole:
		p.checkShare(at, f)
	case Slow:
		p.checkShare(at, f)
		p.checkRange(at+"factor", f.Factor, 1, 1e6)
	case Capacity:
		p.checkRange(at+"share", f.Share, 0, 1)
		f.checkCapacity(p, at, s)
	case Outage:
		p.checkUnused(at+"share", f.Share != 0, "allowed for errors, reject, blackhole, slow and capacity")
	default:
		p.add(at+"kind", "%q: want errors, reject, outage, blackhole, slow or capacity", f.Kind)
	}
	p.checkUnused(at+"factor", f.Factor != 0 && f.Kind != Slow, "allowed for slow")
}

// checkCapacity adds a problem if the service of a capacity failure has an unlimited
// number of workers, or is left without a worker although its order needs one.
func (f Failure) checkCapacity(p *problems, at string, s Scenario) {
	if len(s.Services) == 0 {
		return
	}
	v := s.Services[max(s.index(f.Service), 0)]
	switch {
	case v.Workers == 0:
		p.add(at+"kind", "the service has no limit of workers, so it cannot lose capacity: set workers")
	case v.Order == ByPriority && v.workersLeft(f.Share) == 0:
		p.add(at+"share", "%v leaves no worker, and an order by priority needs one", f.Share)
	}
}

func (p *problems) checkShare(at string, f Failure) {
	p.check(f.Share > 0 && f.Share <= 1, at+"share", "%v is not above 0 and at most 1", f.Share)
}

// index returns the index of the named service, -1 if there is none.
func (s Scenario) index(name string) int {
	return slices.IndexFunc(s.Services, func(v Service) bool { return v.Name == name })
}

func (s Scenario) length() time.Duration { return s.Duration + s.Drain }

func (s Scenario) bucket() time.Duration { return cmp.Or(s.Bucket, DefaultBucket) }

func (s Scenario) checkServices(p *problems) {
	switch n := len(s.Services); {
	case n == 0:
		p.add("services", "the list is empty: add at least one")
	case n > maxServices:
		p.add("services", "%d services are more than %d", n, maxServices)
	}
	for i, v := range s.Services {
		at := fmt.Sprintf("services[%d].", i)
		switch j := s.index(v.Name); {
		case v.Name == "":
			p.add(at+"name", "is empty")
		case j != i:
			p.add(at+"name", "%q is the name of services[%d] already", v.Name, j)
		}
		v.check(p, at)
		switch j := s.index(v.Calls); {
		case v.Calls == "":
			p.checkUnused(at+"policy", v.Policy != "", "allowed for a service that calls another")
		case j < 0:
			p.add(at+"calls", "there is no service %q", v.Calls)
		case j <= i:
			p.add(at+"calls", "%q is not a later service: a service may only call services after it, so that there is no cycle", v.Calls)
		}
	}
}

func (v Service) check(p *problems, at string) {
	p.checkRange(at+"workers", float64(v.Workers), 0, 1e9)
	p.checkRange(at+"queue", float64(v.Queue), 0, 1e9)
	switch v.Order {
	case "", FIFO:
	case LIFO, ByPriority:
		p.checkUnused(at+"order", v.Workers == 0, "allowed for a service with workers")
		p.check(v.Order != ByPriority || v.Queue != 0, at+"queue", "is 0, but an order by priority needs a limit: set it")
	default:
		p.add(at+"order", "%q: want fifo, lifo or priority", v.Order)
	}
	p.checkUnused(at+"queue", v.Queue != 0 && v.Workers == 0, "allowed for a service with workers")
	p.checkRange(at+"capacity", v.Capacity, 0, maxRate)
	p.checkUnused(at+"capacity", v.Capacity != 0 && v.Workers == 0, "allowed for a service with workers")
	p.checkUnused(at+"capacity", v.Capacity != 0 && v.Calls != "", "allowed for a service that calls no other")
	v.Latency.check(p, at+"latency.")
	if v.Limit != nil {
		v.Limit.check(p, at+"limit.")
	}
	if v.Policy == "" {
		return
	}
	q, err := retry.Parse(v.Policy)
	if err == nil {
		err = q.Refuse("the simulator", "reset-after")
	}
	p.check(err == nil, at+"policy", "%w", err)
}

func (l Latency) check(p *problems, at string) {
	p.checkDuration(at+"mean", l.Mean, false)
	p.checkRange(at+"growth", l.Growth, 0, 1e6)
	switch l.Distribution {
	case Constant, Exponential:
		p.checkUnused(at+"sigma", l.Sigma != 0, "allowed for lognormal")
	case Lognormal:
		p.check(l.Sigma > 0 && l.Sigma <= 10, at+"sigma", "%v is not above 0 and at most 10", l.Sigma)
	default:
		p.add(at+"distribution", "%q: want constant, exponential or lognormal", l.Distribution)
	}
}

func (r RateLimit) check(p *problems, at string) {
	if !(r.Rate >= 1e-3 && r.Rate <= 1e6) {
		p.add(at+"rate", "%v is not between 0.001 and 1000000 calls per second", r.Rate)
	} else if err := r.config().Validate(); err != nil {
		p.add(at+"rate", "%w", err)
	}
	if r.Window != 0 {
		p.checkDuration(at+"window", r.Window, false)
		p.check(r.Burst == 0, at+"burst", "not with a window, which admits all its calls at once")
		p.check(r.Window < 0 || r.perWindow() >= 1, at+"window", "%v admits no call at %v calls per second: use a longer one", r.Window, r.Rate)
	}
	switch r.RetryAfter {
	case SayNothing, SayNext, SayBacklog:
	default:
		p.add(at+"retry-after", "%q: want next, backlog or nothing", r.RetryAfter)
	}
}

// perWindow returns how many calls a window admits.
func (r *RateLimit) perWindow() int { return int(math.Round(r.Rate * r.Window.Seconds())) }

// config returns the configuration of the rate limit.
func (r RateLimit) config() limit.RateConfig {
	per := time.Duration(1000 * float64(time.Second) / r.Rate)
	return limit.RateConfig{Rate: limit.Frequency{Events: 1000, Per: per}, Burst: r.Burst}
}
