package sim

import (
	"fmt"
	"time"

	"github.com/tideover/tideover/limit"
	"github.com/tideover/tideover/retry"
)

func (s Scenario) checkServices(p *problems) {
	switch n := len(s.Services); {
	case n == 0:
		p.add("services", "the list is empty: add at least one")
	case n > maxServices:
		p.add("services", "%d are more than %d", n, maxServices)
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
			p.checkUnused(at+"policy", v.Policy != "", "a service that calls another has one")
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
		p.checkUnused(at+"order", v.Workers == 0, "a service with workers has a queue")
		if v.Order == ByPriority && v.Queue == 0 {
			p.add(at+"queue", "is 0, but an order by priority needs a limit: set it")
		}
	default:
		p.add(at+"order", "%q: want fifo, lifo or priority", v.Order)
	}
	p.checkUnused(at+"queue", v.Queue != 0 && v.Workers == 0, "a service with workers has a queue")
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
	if err != nil {
		p.add(at+"policy", "%w", err)
	}
}

func (l Latency) check(p *problems, at string) {
	p.checkDuration(at+"mean", l.Mean, false)
	p.checkRange(at+"growth", l.Growth, 0, 1e6)
	switch l.Distribution {
	case Constant, Exponential:
		p.checkUnused(at+"sigma", l.Sigma != 0, "a lognormal has one")
	case Lognormal:
		if !(l.Sigma > 0 && l.Sigma <= 10) {
			p.add(at+"sigma", "%v is not between 0 and 10", l.Sigma)
		}
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
	switch r.RetryAfter {
	case SayNothing, SayNext, SayBacklog:
	default:
		p.add(at+"retry-after", "%q: want next, backlog or nothing", r.RetryAfter)
	}
}

// config returns the configuration of the rate limit.
func (r RateLimit) config() limit.RateConfig {
	per := time.Duration(1000 * float64(time.Second) / r.Rate)
	return limit.RateConfig{Rate: limit.Frequency{Events: 1000, Per: per}, Burst: r.Burst}
}
