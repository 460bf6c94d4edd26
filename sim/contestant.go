package sim

import (
	"errors"
	"fmt"
	"time"

	"github.com/tideover/tideover/breaker"
	"github.com/tideover/tideover/retry"
)

// Contestant is a policy to compare, with the parts that a real client has
// beside it.
type Contestant struct {
	Name    string
	Policy  retry.Policy
	Breaker *breaker.Config // of each process; nil means none

	// Delay computes the delays instead of the policy's schedule, as
	// [retry.WithSchedule] does; u is a uniform random number. It must be a
	// pure function, and is called by several goroutines at once. nil means the
	// policy's schedule.
	Delay func(s retry.State, o retry.Outcome, u uint64) time.Duration

	// prepaid makes the budget that of the published simulations: every call
	// adds its credit when it begins, and no retry is refunded.
	prepaid bool

	// literal waits exactly for the server's Retry-After, without the library's
	// addition.
	literal bool

	// chained passes the last delay of Delay as the state's Prev, for published
	// schedules that depend on it.
	chained bool
}

// Validate reports everything that is wrong with the contestant, each problem
// with its field's name.
func (c Contestant) Validate() error {
	errs := []error{c.Policy.Validate(), c.Policy.Refuse("the simulator", "reset-after")}
	if c.Name == "" {
		errs = append(errs, errors.New("name: is empty"))
	}
	if c.Breaker != nil {
		if err := c.Breaker.Validate(); err != nil {
			errs = append(errs, fmt.Errorf("breaker: %w", err))
		}
	}
	return errors.Join(errs...)
}

// Check reports every problem of the contestants with the scenario, as [Run]
// does before it starts, including a run that would need more than [MaxMemory].
// It does not validate the scenario itself.
func Check(s Scenario, cs []Contestant) error {
	var p problems
	if len(cs) == 0 {
		p.add("contestants", "the list is empty: add at least one")
	}
	names := map[string]int{}
	for i, c := range cs {
		at := fmt.Sprintf("contestants[%d]", i)
		if err := c.Validate(); err != nil {
			p.add(at, "%w", err)
		}
		if j, ok := names[c.Name]; ok && c.Name != "" {
			p.add(at, "name: %q is the name of contestants[%d] already", c.Name, j)
		}
		names[c.Name] = i
		if s.Writers != nil || s.Group != nil {
			c.checkWriter(&p, at)
		}
	}
	if len(p) == 0 && s.Validate() == nil { // the size of an invalid scenario is unknown
		memory(s, cs).check(&p)
	}
	return errors.Join(p...)
}

// checkWriter reports the settings that have no meaning for a writer, which has
// no slow and no failed calls.
func (c Contestant) checkWriter(p *problems, at string) {
	if err := c.Policy.Refuse("a writer", "attempt-timeout", "throttle-base", "server-wait", "server-slack", "hedge"); err != nil {
		p.add(at, "%w", err)
	}
	p.checkUnused(at+": breaker", c.Breaker != nil, "allowed with services")
}
