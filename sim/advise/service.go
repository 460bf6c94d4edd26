package advise

import (
	"cmp"
	"errors"
	"math"
	"time"

	"github.com/tideover/tideover/internal/validate"
	"github.com/tideover/tideover/sim"
)

// Service describes a service and its callers.
type Service struct {
	Rate      float64          // calls per second
	Capacity  float64          // calls per second that it can serve; 0 means twice the rate
	Latency   time.Duration    // mean duration of a call without queueing
	Shape     sim.Distribution // of the latency; empty means exponential
	Sigma     float64          // of a lognormal shape: standard deviation of the logarithm; 0 means 1
	Queue     int              // calls that may wait, others are rejected; 0 means any number
	Shedding  bool             // the service drops a queued call whose caller no longer waits
	Processes int              // number of processes that call it, each with its own budget and breaker; 0 means 10
	Errors    float64          // share of the calls that fail on a normal day; 0 means 1 %
	BlackHole float64          // share of the calls that are never answered; 0 means 0.1 %
	Outage    time.Duration    // how long it may be down; 0 means 30s
}

// Validate reports everything that is wrong with the service, each problem with
// its field's name.
func (s Service) Validate() error {
	var p validate.Problems
	p.Check(s.Rate > 0 && s.Rate <= maxRate, "rate: %v is not above 0 and at most %d calls per second", s.Rate, maxRate)
	p.Check(!(s.Capacity > 1e9), "capacity: %v is above 1e9 calls per second", s.Capacity)
	p.Check(s.Capacity == 0 || s.Capacity > s.Rate,
		"capacity: %v is not above the rate of %v: no policy helps a service with too little capacity", s.Capacity, s.Rate)
	p.Check(s.Latency > 0 && s.Latency <= time.Hour, "latency: %v is not above 0 and at most an hour", s.Latency)
	p.Check(s.Queue >= 0, "queue: %d is negative", s.Queue)
	switch s.Shape {
	case "", sim.Constant, sim.Exponential, sim.Lognormal:
	default:
		p.Add("shape: %q: want constant, exponential or lognormal", s.Shape)
	}
	p.Check(s.Sigma >= 0 && s.Sigma <= 10, "sigma: %v is not between 0 and 10", s.Sigma)
	p.Check(s.Sigma == 0 || s.Shape == sim.Lognormal, "sigma: only the shape lognormal has one")
	p.Check(s.Processes >= 0 && s.Processes <= 1_000_000, "processes: %d is not between 1 and 1000000", s.Processes)
	p.Check(s.Errors >= 0 && s.Errors <= 0.9, "errors: %v is not a share up to 0.9", s.Errors)
	p.Check(s.BlackHole >= 0 && s.BlackHole <= 0.9, "black-holes: %v is not a share up to 0.9", s.BlackHole)
	p.Check(s.Outage >= 0 && s.Outage <= time.Hour, "outage: %v is not between 0 and an hour", s.Outage)
	return errors.Join(p...)
}

const (
	maxRate = 100_000
	calls   = 20_000 // approximate number of calls in a scenario; fewer are not enough for a p99
)

// withDefaults returns the service with every zero replaced by its default.
func (s Service) withDefaults() Service {
	s.Capacity = cmp.Or(s.Capacity, 2*s.Rate)
	s.Processes = cmp.Or(s.Processes, 10)
	s.Errors = cmp.Or(s.Errors, 0.01)
	s.BlackHole = cmp.Or(s.BlackHole, 0.001)
	s.Outage = cmp.Or(s.Outage, 30*time.Second)
	return s
}

// Cases returns the scenarios that a policy for the service must handle: a
// normal day; an outage; and a brownout, in which the service has half of its
// capacity and a fifth of its answers are errors. In each of them a few calls
// are never answered. The normal day has the goal's success and p99, the outage
// its success of the calls that begin during the outage, the outage and the
// brownout have its recovery, and all have its amplification.
func (s Service) Cases(g Goal) []Case {
	s = s.withDefaults()
	everyday := sim.Failure{Kind: sim.Errors, Share: s.Errors}
	ordinary := s.scenario("ordinary", "the usual share of errors", 0, everyday)

	const from = 10 * time.Second
	until := from + s.Outage
	outage := s.scenario("outage", "the service is down for a while", until,
		everyday, sim.Failure{Kind: sim.Outage, From: from, Until: until})
	brownout := s.scenario("brownout", "half of the service is gone for a while, and a fifth of its answers are errors", until,
		sim.Failure{Kind: sim.Capacity, From: from, Until: until, Share: 0.5},
		sim.Failure{Kind: sim.Errors, From: from, Until: until, Share: 0.2})
	return []Case{
		{ordinary, Goal{Success: g.Success, P99: g.P99, Amplification: g.Amplification}},
		{outage, Goal{Through: g.Through, Amplification: g.Amplification, Recovery: g.Recovery}},
		{brownout, Goal{Amplification: g.Amplification, Recovery: g.Recovery}},
	}
}

func (s Service) scenario(name, about string, failing time.Duration, failures ...sim.Failure) sim.Scenario {
	failures = append(failures, sim.Failure{Kind: sim.BlackHole, Share: s.BlackHole})
	return sim.Scenario{
		Name: name, About: about, Duration: s.lasting(failing), Drain: 2 * time.Minute, Bucket: time.Second,
		Clients: sim.Clients{Count: 20 * s.Processes, Arrivals: sim.Open, Rate: s.Rate, Sharing: 20},
		Services: []sim.Service{{
			Name: "service", Workers: max(1, int(math.Round(s.Capacity*s.Latency.Seconds()))), Capacity: s.Capacity,
			Latency: s.latency(), Queue: s.Queue, Deadlines: s.Shedding,
		}},
		Failures: failures,
	}
}

func (s Service) latency() sim.Latency {
	l := sim.Latency{Distribution: cmp.Or(s.Shape, sim.Exponential), Mean: s.Latency, Sigma: s.Sigma}
	if l.Distribution == sim.Lognormal {
		l.Sigma = cmp.Or(l.Sigma, 1)
	}
	return l
}

// lasting returns the duration of a scenario whose failures end at the time failing:
// enough time after that for a recovery and for enough calls.
func (s Service) lasting(failing time.Duration) time.Duration {
	enough := time.Duration(calls / s.Rate * float64(time.Second))
	return failing + min(max(enough-failing, 30*time.Second), 10*time.Minute).Round(time.Second)
}
