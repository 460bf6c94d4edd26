package advise

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tideover/tideover/internal/validate"
	"github.com/tideover/tideover/retry"
	"github.com/tideover/tideover/sim"
)

// Request has the scenarios and goals for which a policy is needed.
type Request struct {
	Cases    []Case        // all with services, or all with writers
	Deadline time.Duration // longest wait of a caller: the policy's total timeout; 0 means 30s

	// Policies are the caller's own policies: the advice is at least as good as each
	// of them. They end at the deadline, too.
	Policies []retry.Policy
}

// Case is a scenario that a policy must handle, and what it must reach there.
type Case struct {
	Scenario sim.Scenario
	Goal     Goal
}

// Options say how much is simulated.
type Options struct {
	Seed     uint64                // of the first run of each candidate
	Seeds    int                   // runs of each candidate in the last round, 2 or more; 0 means 8, or 400 for writers, which call only once each
	Workers  int                   // goroutines; 0 means one for each processor
	Progress func(done, total int) // called after each run, one call at a time; the total is an estimate; nil means none
}

// Advice is the policy that was found, and why.
type Advice struct {
	Policy  string `json:"policy"`           // in text form
	Breaker bool   `json:"breaker"`          // with the library's default breaker
	Reached bool   `json:"reached"`          // whether it reaches the goal
	Misses  []Miss `json:"misses,omitempty"` // the parts of the goal that it does not reach
	Losses  []Loss `json:"losses,omitempty"` // what is better with another policy

	// Unstable says that the retries of the policy may overload the service on an ordinary day, and keep it
	// overloaded. No policy that was tried reaches the goal without this risk.
	Unstable bool `json:"unstable,omitempty"`

	Outcomes     []Outcome     `json:"outcomes"` // of the policy, for each scenario
	Reasons      []Reason      `json:"reasons"`
	Choices      []Choice      `json:"choices"` // which settings are robust, and which are arbitrary
	Trades       []Trade       `json:"trades"`  // costs and benefits, compared with a single attempt
	Alternatives []Alternative `json:"alternatives"`

	Deadline time.Duration `json:"deadline_ns"`
	Seed     uint64        `json:"seed"`
	Seeds    int           `json:"seeds"`
	Checked  int           `json:"checked"` // runs of the policy in the last measurement, whose results are in Outcomes
	Tried    int           `json:"tried"`   // number of candidates
	Runs     int           `json:"runs"`    // number of simulated runs
	Events   int           `json:"events"`  // number of simulated events in those runs
}

// Loss says that a measure is better with another policy than with the advised one. If
// the measure is the success on an ordinary day, the other policy reaches the goal less
// well. If it is a part of the goal that no policy reaches, the other policy is worse on
// an ordinary day, or further from another part.
type Loss struct {
	Scenario string       `json:"scenario"`
	Measure  string       `json:"measure"`           // success, through, p99, amplification, recovery, or never: the share of the runs that do not recover
	Policy   string       `json:"policy"`            // the other policy, in text form
	Breaker  bool         `json:"breaker,omitempty"` // the other policy has the default breaker
	Advised  sim.Estimate `json:"advised"`
	Other    sim.Estimate `json:"other"`
}

// Outcome is the result of a policy in one scenario.
type Outcome struct {
	Scenario string `json:"scenario"`
	Goal     Goal   `json:"goal"`
	sim.Measures[sim.Estimate]
	NeverRecovers float64 `json:"never_recovers"` // share of the seeds

	// Capacity is how many calls per second the simulated service can serve
	// while nothing fails. It is 0 for writers and if there is no limit.
	Capacity float64 `json:"capacity,omitempty"`
}

// Validate reports everything that is wrong with the request, each problem with
// its field's name.
func (r Request) Validate() error {
	var p validate.Problems
	p.Check(len(r.Cases) > 0, "cases: the list is empty: add at least one")
	writers, asked := 0, false
	names := map[string]bool{}
	for i, c := range r.Cases {
		err := c.Validate()
		p.Check(err == nil, "cases[%d]: %w", i, err)
		if c.Scenario.Writers != nil || c.Scenario.Group != nil {
			writers++
		}
		p.Check(!names[c.Scenario.Name], "cases[%d]: there is a scenario %q already", i, c.Scenario.Name)
		names[c.Scenario.Name] = true
		asked = asked || c.Goal != (Goal{})
	}
	p.Check(writers == 0 || writers == len(r.Cases), "cases: some have writers and some have services: make a request for each kind")
	p.Check(len(r.Cases) == 0 || asked, "goal: there is none: set success, through, p99, amplification or recovery")
	for i, own := range r.Policies {
		err := own.Validate()
		p.Check(err == nil, "policies[%d]: %w", i, err)
	}
	p.Check(r.Deadline >= 0 && r.Deadline <= 24*time.Hour, "deadline: %v is not between 0 and a day", r.Deadline)
	return errors.Join(p...)
}

// Validate reports everything that is wrong with the case, each problem with its
// field's name.
func (c Case) Validate() error {
	p := validate.Problems{c.Scenario.Validate(), c.Goal.Validate()}
	p.Check(c.Goal.Recovery <= 0 || c.hasEnd(), "recovery: scenario %q has no failure that ends, so there is nothing to recover from", c.Scenario.Name)
	down := slices.ContainsFunc(c.Scenario.Failures, func(f sim.Failure) bool { return f.Kind == sim.Outage })
	p.Check(c.Goal.Through <= 0 || down, "through: scenario %q has no outage", c.Scenario.Name)
	p.Check(c.Goal.P99 <= 0 || c.Scenario.Writers == nil && c.Scenario.Group == nil, "p99: not available for writers: leave it out")
	return errors.Join(p...)
}

// hasEnd reports whether a failure ends, so that there is something to recover
// from.
func (c *Case) hasEnd() bool {
	return slices.ContainsFunc(c.Scenario.Failures, func(f sim.Failure) bool { return f.Until > 0 })
}

// Validate reports everything that is wrong with the options, each problem with
// its field's name.
func (o Options) Validate() error {
	if o.Seeds < 0 || o.Seeds == 1 || o.Seeds > 10_000 {
		return fmt.Errorf("seeds: %d is not between 2 and 10000", o.Seeds)
	}
	return sim.Options{Workers: o.Workers}.Validate()
}

// DefaultDeadline is the default of Request.Deadline.
const DefaultDeadline = 30 * time.Second

const defaultSeeds = 8

// For searches for the best policy for a request. The same request, seed and number
// of seeds give the same advice. It stops at once when the context ends.
func For(ctx context.Context, r Request, o Options) (*Advice, error) {
	if err := errors.Join(r.Validate(), o.Validate()); err != nil {
		return nil, fmt.Errorf("advise: %w", err)
	}
	r.Deadline = cmp.Or(r.Deadline, DefaultDeadline)
	space := newSearchSpace(r.Cases, r.Deadline)
	s := &search{request: r, options: o, searchSpace: space, naive: space.naive(r.Policies), known: map[candidate]bool{}, stretch: 1}
	s.options.Seeds = cmp.Or(o.Seeds, defaultSeeds*space.times)
	checked, finalists, err := s.find(ctx)
	if err != nil {
		return nil, err
	}
	advised := checked[0]
	s.fresh, s.stretch = 2<<32, 1
	best, others, err := s.compareWithout(ctx, advised.candidate)
	if err != nil {
		return nil, err
	}
	choices, err := s.choices(ctx, advised.candidate)
	if err != nil {
		return nil, err
	}
	return &Advice{
		Policy: best.text(), Breaker: best.breaker, Reached: advised.reached(), Unstable: advised.unstable,
		Misses: s.shortfalls(advised.misses, checked), Losses: s.losses(advised, checked), Outcomes: s.outcomes(advised),
		Reasons: s.reasons(best, others), Choices: choices, Trades: s.trades(best, others),
		Alternatives: s.alternatives(best, finalists),
		Deadline:     r.Deadline, Seed: o.Seed, Seeds: s.options.Seeds, Checked: checkFactor * s.options.Seeds, Tried: len(s.known), Runs: s.runs, Events: s.events,
	}, nil
}

// find searches for the best candidate. It returns those that were measured for the last
// time, the best first, and the finalists.
func (s *search) find(ctx context.Context) (checked, finalists []standing, err error) {
	if err := s.measurePatience(ctx); err != nil {
		return nil, nil, err
	}
	if finalists, err = s.climb(ctx); err != nil {
		return nil, nil, err
	}
	if finalists, err = s.refine(ctx, finalists); err != nil {
		return nil, nil, err
	}
	// If the last measurement shows that the goal is missed after all, the search goes on
	// for policies that reach it with a margin.
	for _, s.least = range []float64{0, safeMargin} {
		if s.least > 0 {
			s.stretch = s.neededStretch(finalists[0])
			if finalists, err = s.rank(ctx, candidatesOf(survivors(finalists, fewest)), s.options.Seeds); err != nil {
				return nil, nil, err
			}
		}
		if finalists, err = s.exploreSurely(ctx, finalists); err != nil {
			return nil, nil, err
		}
		s.fresh = 2 << 32
		simplest, err := s.strip(ctx, finalists[0].candidate)
		if err != nil {
			return nil, nil, err
		}
		list, err := s.decide(ctx, append([]standing{simplest}, finalists...))
		if err != nil {
			return nil, nil, err
		}
		if len(checked) > 0 && preferred([]standing{list[0], checked[0]}) == 1 {
			list, checked = checked, list
		}
		if checked = append(list, checked...); checked[0].reached() || !looksReachable(finalists) {
			break
		}
		s.fresh = 0
	}
	return s.putNaiveFirst(checked), finalists, nil
}

// safeMargin is the margin for which the search looks if the last measurement of its
// first result misses the goal: a fifth fewer failures, or times that are a fifth shorter.
const safeMargin = 0.2

// looksReachable reports whether at least one of the standings reaches the goal, or may
// reach it with more runs.
func looksReachable(list []standing) bool {
	return slices.ContainsFunc(list, func(st standing) bool {
		return st.lasts && !st.missesSurely()
	})
}
