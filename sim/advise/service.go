package advise

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/tideover/tideover/sim"
)

// Service is what is known of a service and its callers.
type Service struct {
	Rate      float64       // calls per second
	Capacity  float64       // calls per second that it can do, rounded up to whole workers; 0 means twice the rate
	Latency   time.Duration // mean time of an answer, when nobody waits for a worker
	Processes int           // that call it, each with its own budget and breaker; 0 means 10
	Errors    float64       // share of the calls that fail on an ordinary day; 0 means 1 %
	Outage    time.Duration // how long it may be down; 0 means 30s
}

// Validate reports everything that is wrong with the service, each problem with
// its field's name.
func (s Service) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if !(s.Rate > 0 && s.Rate <= maxRate) {
		bad("rate: %v is not above 0 and at most %d calls per second", s.Rate, maxRate)
	}
	if s.Capacity > 1e9 {
		bad("capacity: %v is above 1e9 calls per second", s.Capacity)
	}
	if s.Capacity != 0 && !(s.Capacity > s.Rate) {
		bad("capacity: %v is not above the rate of %v: no policy helps a service that can't do its work", s.Capacity, s.Rate)
	}
	if s.Latency <= 0 || s.Latency > time.Hour {
		bad("latency: %v is not above 0 and at most an hour", s.Latency)
	}
	if s.Processes < 0 || s.Processes > 1_000_000 {
		bad("processes: %d is not between 1 and 1000000", s.Processes)
	}
	if !(s.Errors >= 0 && s.Errors <= 0.9) {
		bad("errors: %v is not a share up to 0.9", s.Errors)
	}
	if s.Outage < 0 || s.Outage > time.Hour {
		bad("outage: %v is not between 0 and an hour", s.Outage)
	}
	return errors.Join(errs...)
}

const (
	maxRate = 100_000
	calls   = 20_000 // of a scenario, about; fewer are not enough for a p99
)

// filled returns the service with every zero replaced by what it means.
func (s Service) filled() Service {
	if s.Capacity == 0 {
		s.Capacity = 2 * s.Rate
	}
	if s.Processes == 0 {
		s.Processes = 10
	}
	if s.Errors == 0 {
		s.Errors = 0.01
	}
	if s.Outage == 0 {
		s.Outage = 30 * time.Second
	}
	return s
}

// Cases returns what a policy for the service must get through: an ordinary day,
// with the goal's success and p99; an outage, and a time in which half of the
// service is gone and a fifth of its answers are errors, with the goal's recovery.
// Its amplification is for all of them. Through is the share of the calls that are
// to succeed in spite of the outage; 0 asks for none.
func (s Service) Cases(g Goal, through float64) []Case {
	s = s.filled()
	everyday := sim.Failure{Kind: sim.Errors, Share: s.Errors}
	ordinary := s.scenario("ordinary", "errors as on every day", 0, everyday)

	const from = 10 * time.Second
	until := from + s.Outage
	outage := s.scenario("outage", "the service is down for a while", until,
		everyday, sim.Failure{Kind: sim.Outage, From: from, Until: until})
	brownout := s.scenario("brownout", "half of the service is gone for a while, and a fifth of its answers are errors", until,
		sim.Failure{Kind: sim.Capacity, From: from, Until: until, Share: 0.5},
		sim.Failure{Kind: sim.Errors, From: from, Until: until, Share: 0.2})
	return []Case{
		{ordinary, Goal{Success: g.Success, P99: g.P99, Amplification: g.Amplification}},
		{outage, Goal{Success: through, Amplification: g.Amplification, Recovery: g.Recovery}},
		{brownout, Goal{Amplification: g.Amplification, Recovery: g.Recovery}},
	}
}

func (s Service) scenario(name, about string, failing time.Duration, failures ...sim.Failure) sim.Scenario {
	workers := max(1, int(math.Ceil(s.Capacity*s.Latency.Seconds()-1e-9)))
	return sim.Scenario{
		Name: name, About: about, Duration: s.lasting(failing), Drain: 2 * time.Minute, Bucket: time.Second,
		Clients: sim.Clients{Count: 20 * s.Processes, Arrivals: sim.Open, Rate: s.Rate, Sharing: 20},
		Services: []sim.Service{{
			Name: "service", Workers: workers,
			Latency: sim.Latency{Distribution: sim.Exponential, Mean: s.Latency},
		}},
		Failures: failures,
	}
}

// lasting returns how long a scenario takes: what comes before the end of its
// failures, and enough after it to see a recovery and to count calls.
func (s Service) lasting(failing time.Duration) time.Duration {
	enough := time.Duration(calls / s.Rate * float64(time.Second))
	return failing + min(max(enough-failing, 30*time.Second), 10*time.Minute).Round(time.Second)
}
