package sim

import (
	"cmp"
	"time"

	"github.com/tideover/tideover/limit"
)

// Scenario describes what every contestant goes through: who calls which
// service, how fast it answers, and what fails when. It is plain data. Set
// either Services and Clients, or Writers, or Group.
type Scenario struct {
	Name  string `json:"name" yaml:"name"`
	About string `json:"about,omitempty" yaml:"about"`

	Duration time.Duration `json:"duration" yaml:"duration"`           // no call begins later
	Drain    time.Duration `json:"drain,omitempty" yaml:"drain"`       // time for calls to end after Duration; 0 means none
	Bucket   time.Duration `json:"bucket,omitempty" yaml:"bucket"`     // width of the buckets of peaks and series; 0 means 100ms
	Clients  Clients       `json:"clients,omitzero" yaml:"clients"`    // who calls the first service
	Services []Service     `json:"services,omitempty" yaml:"services"` // the clients call the first one
	Failures []Failure     `json:"failures,omitempty" yaml:"failures"` // what fails, and when
	Writers  *Writers      `json:"writers,omitempty" yaml:"writers"`   // instead of clients and services
	Group    *Group        `json:"group,omitempty" yaml:"group"`       // instead of clients, services and writers
}

// Arrivals says how calls arrive.
type Arrivals string

// The kinds of arrivals.
const (
	Open   Arrivals = "open"   // calls arrive at a rate, independent of earlier calls
	Closed Arrivals = "closed" // every client pauses, calls, waits for the end, and pauses again
	Herd   Arrivals = "herd"   // every client calls once, all of them within a short time
)

// Clients are the callers. Each belongs to a process, and the clients of a
// process share its budget, breaker and hedges.
type Clients struct {
	Count    int           `json:"count" yaml:"count"`
	Arrivals Arrivals      `json:"arrivals" yaml:"arrivals"`
	Rate     float64       `json:"rate,omitempty" yaml:"rate"`         // open: calls per second of all clients together
	Load     []Load        `json:"load,omitempty" yaml:"load"`         // open: changes of the rate over time, in order; none means a constant rate
	Batch    int           `json:"batch,omitempty" yaml:"batch"`       // open: calls that arrive at the same moment, at the same rate of calls; 0 means 1
	Think    time.Duration `json:"think,omitempty" yaml:"think"`       // closed: mean pause between calls
	Start    time.Duration `json:"start,omitempty" yaml:"start"`       // herd: when the first call begins
	Spread   time.Duration `json:"spread,omitempty" yaml:"spread"`     // herd: time within which all calls begin; 0 means at once
	Sharing  int           `json:"sharing,omitempty" yaml:"sharing"`   // clients per process; 0 means 1
	Fallback []string      `json:"fallback,omitempty" yaml:"fallback"` // services that the second, third… attempt goes to, in turn

	// Priorities are the shares of the calls from the lowest class to the highest,
	// for services that serve by priority. All zero means that all calls have the
	// class normal.
	Priorities [limit.Classes]float64 `json:"priorities,omitzero" yaml:"priorities"`
}

// Load is a change of the rate of open arrivals. Before the first change the
// factor is 1. A spike is two changes: to a high factor, and back to 1.
type Load struct {
	At     time.Duration `json:"at" yaml:"at"`               // when the change begins
	Factor float64       `json:"factor" yaml:"factor"`       // the rate after the change, as a multiple of Clients.Rate
	Ramp   time.Duration `json:"ramp,omitempty" yaml:"ramp"` // time in which the rate changes evenly; 0 means at once
}

// factorAt returns the factor of the rate at the time.
func (c *Clients) factorAt(at time.Duration) float64 {
	factor := 1.0
	for _, l := range c.Load {
		switch {
		case at < l.At:
			return factor
		case at < l.At+l.Ramp:
			return factor + (l.Factor-factor)*float64(at-l.At)/float64(l.Ramp)
		}
		factor = l.Factor
	}
	return factor
}

// highestFactor returns the highest factor of the rate.
func (c *Clients) highestFactor() float64 {
	most := 1.0
	for _, l := range c.Load {
		most = max(most, l.Factor)
	}
	return most
}

// Order says which waiting call is served next.
type Order string

// The orders. The zero Order is FIFO.
const (
	FIFO       Order = "fifo"     // the oldest
	LIFO       Order = "lifo"     // the newest
	ByPriority Order = "priority" // by a [limit.Concurrency]: class, aging, shedding
)

// Service answers calls with a number of workers, each of which serves one call
// at a time. Workers also serve queued calls whose caller no longer waits,
// unless Deadlines is set.
//
// Workers are whole, so workers divided by the mean latency is rarely the
// capacity that a real service has. If Capacity is set, it is exact: the time
// for which a call occupies its worker is shorter or longer than the latency
// that the caller sees. The rest of the latency is time on the network, or the
// worker still has work to do after its answer.
type Service struct {
	Name      string     `json:"name" yaml:"name"`
	Workers   int        `json:"workers,omitempty" yaml:"workers"`     // 0 means no limit
	Capacity  float64    `json:"capacity,omitempty" yaml:"capacity"`   // calls per second of all workers; 0 means workers divided by the mean latency
	Queue     int        `json:"queue,omitempty" yaml:"queue"`         // calls that may wait for a worker, others are refused; 0 means no limit
	Order     Order      `json:"order,omitempty" yaml:"order"`         // which call is served next; empty means fifo
	Latency   Latency    `json:"latency" yaml:"latency"`               // how long a worker takes
	Deadlines bool       `json:"deadlines,omitempty" yaml:"deadlines"` // work whose caller is gone is dropped before it starts, and calls no other service
	Limit     *RateLimit `json:"limit,omitempty" yaml:"limit"`         // calls above it are refused; nil means no limit
	Calls     string     `json:"calls,omitempty" yaml:"calls"`         // a later service that each call needs while it holds its worker
	Policy    string     `json:"policy,omitempty" yaml:"policy"`       // policy of those calls; empty means the contestant's, breaker included
}

// MaxRate returns how many calls per second the workers can serve, without
// failures and growth; 0 means that there is no limit.
func (v *Service) MaxRate() float64 {
	if v.Capacity > 0 {
		return v.Capacity
	}
	return float64(v.Workers) / v.Latency.Mean.Seconds()
}

// Distribution is the shape of a latency.
type Distribution string

// The distributions. All are given by their mean.
const (
	Constant    Distribution = "constant"
	Exponential Distribution = "exponential"
	Lognormal   Distribution = "lognormal"
)

// Latency is how long a worker takes for a call.
type Latency struct {
	Distribution Distribution  `json:"distribution" yaml:"distribution"`
	Mean         time.Duration `json:"mean" yaml:"mean"`
	Sigma        float64       `json:"sigma,omitempty" yaml:"sigma"`   // lognormal: standard deviation of the logarithm
	Growth       float64       `json:"growth,omitempty" yaml:"growth"` // share added for every other call in progress; 0 means none
}

// RetryAfter says which Retry-After a service sends when it refuses a call.
type RetryAfter string

// The kinds of Retry-After. The zero value sends none.
const (
	SayNothing RetryAfter = ""
	SayNext    RetryAfter = "next"    // when the next call will be admitted: the same time for every caller
	SayBacklog RetryAfter = "backlog" // a random time within the time needed to serve all refused calls
)

// RateLimit is a [limit.Rate] in front of a service, or a counter of calls in windows
// that are aligned to the clock, as many public APIs have it.
type RateLimit struct {
	Rate       float64       `json:"rate" yaml:"rate"`                         // calls per second
	Burst      int           `json:"burst,omitempty" yaml:"burst"`             // calls at once after a pause; 0 means 1
	Window     time.Duration `json:"window,omitempty" yaml:"window"`           // if set, Rate times Window calls are admitted in each window, at any time in it; not with Burst
	RetryAfter RetryAfter    `json:"retry-after,omitempty" yaml:"retry-after"` // sent with refusals

	// foreseen is how many calls the backlog contains before any call has arrived,
	// as in the published simulation. 0 means that the backlog contains only calls
	// that the service has refused.
	foreseen int
}

// FailureKind says what fails.
type FailureKind string

// The kinds of failure.
const (
	Errors    FailureKind = "errors"    // a share of the work is done and ends in an error
	Reject    FailureKind = "reject"    // a share of the calls is refused at once, without work: fast errors
	Outage    FailureKind = "outage"    // every call is refused at once
	BlackHole FailureKind = "blackhole" // a share of the calls is never answered
	Slow      FailureKind = "slow"      // a share of the work takes Factor times as long
	Capacity  FailureKind = "capacity"  // only this share of the workers is left; busy workers finish first
)

// Failure is something that fails for a time. Failures that overlap are independent:
// each draws which calls it affects. So if two failures each cause errors for half of
// the calls, together they affect three quarters of them. Work that two failures slow
// down takes the product of their factors. Of several failures of capacity only the
// smallest share counts.
type Failure struct {
	Kind    FailureKind   `json:"kind" yaml:"kind"`
	Service string        `json:"service,omitempty" yaml:"service"` // empty means the first
	From    time.Duration `json:"from,omitempty" yaml:"from"`
	Until   time.Duration `json:"until,omitempty" yaml:"until"`   // 0 means to the end
	Share   float64       `json:"share,omitempty" yaml:"share"`   // share of the calls that are affected; for capacity, of the workers that are left; not for an outage
	Factor  float64       `json:"factor,omitempty" yaml:"factor"` // slow: how many times as long the work takes
}

// covers reports whether the failure lasts at the time.
func (f *Failure) covers(at time.Duration) bool {
	return at >= f.From && (f.Until == 0 || at < f.Until)
}

// Writers change one value. Each writes once, and starts again after a conflict;
// the model says what a conflict is.
type Writers struct {
	Count     int           `json:"count" yaml:"count"`
	Model     WriterModel   `json:"model,omitempty" yaml:"model"`         // empty means store
	Acceptors int           `json:"acceptors,omitempty" yaml:"acceptors"` // register and decree: a quorum of them decides; 0 means 3
	Hop       time.Duration `json:"hop" yaml:"hop"`                       // mean time of a message one way; an attempt takes four
	Sigma     time.Duration `json:"sigma,omitempty" yaml:"sigma"`         // standard deviation of that time: a hop takes |N(hop, sigma)|
}

// WriterModel says when a writer conflicts with others.
type WriterModel string

// The models of writers.
const (
	Store    WriterModel = "store"    // it reads the value and writes it; another writer has written in between
	Register WriterModel = "register" // CASPaxos: another writer's ballot pre-empts its ballot; only that costs an attempt
	Decree   WriterModel = "decree"   // the same, for one decision: when it is made, all writers are done
)

func (w *Writers) acceptors() int { return cmp.Or(w.Acceptors, 3) }

// Group is a set of members that each propose one change of a replicated state.
// A quorum of acceptors decides one change for each epoch; a member that loses
// an epoch learns the winning change, and tries again for the next. All begin
// at the same moment.
type Group struct {
	Members   int           `json:"members" yaml:"members"`
	Acceptors int           `json:"acceptors,omitempty" yaml:"acceptors"` // 0 means 5
	Hop       time.Duration `json:"hop" yaml:"hop"`                       // mean time of a message one way
	Sigma     float64       `json:"sigma,omitempty" yaml:"sigma"`         // standard deviation of that time, as a share of the mean
	Behind    int           `json:"behind,omitempty" yaml:"behind"`       // epochs that were decided while the members were disconnected
}

func (g *Group) acceptors() int { return cmp.Or(g.Acceptors, 5) }

// DefaultBucket is the width of the buckets if Scenario.Bucket is 0.
const DefaultBucket = 100 * time.Millisecond
