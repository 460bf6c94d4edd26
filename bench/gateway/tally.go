package gateway

import (
	"errors"
	"time"
)

// tally adds up the slices of one scenario with one system.
type tally struct {
	outcome
	took, used time.Duration // by the clock, and by the processor that is measured
	times      map[string]*samples
}

func newTally() *tally { return &tally{times: map[string]*samples{}} }

// outcome is what became of the requests of a scenario.
type outcome struct {
	good, failed int
	why          error // the first failure
}

func (o *outcome) note(err error) {
	if err == nil {
		o.good++
		return
	}
	o.failed++
	if o.why == nil {
		o.why = err
	}
}

func (o *outcome) add(more outcome) {
	o.good += more.good
	o.failed += more.failed
	if o.why == nil {
		o.why = more.why
	}
}

// count does the work and adds what it took.
func (t *tally) count(e endpoint, work func() (outcome, error)) error {
	before, err := e.processorTime()
	if err != nil {
		return err
	}
	start := time.Now()
	o, err := work()
	if err != nil {
		return err
	}
	t.took += time.Since(start)
	after, err := e.processorTime()
	t.used += after - before
	t.add(o)
	return err
}

// samples returns the times of a name, to add to.
func (t *tally) samples(name string) *samples {
	if t.times[name] == nil {
		t.times[name] = &samples{}
	}
	return t.times[name]
}

// result returns what was added up.
func (t *tally) result(scenario, system string, e endpoint) (Result, error) {
	if t.good == 0 {
		return Result{}, errors.Join(errors.New("not one good answer"), t.why)
	}
	r := Result{Scenario: scenario, System: system, Values: map[string]float64{
		scenario + "/s": float64(t.good) / t.took.Seconds(),
		"failed":        float64(t.failed),
	}}
	if t.why != nil {
		r.Failure = t.why.Error()
	}
	if e.pid != 0 {
		r.Values[scenario+" µs"] = float64(t.used.Microseconds()) / float64(t.good)
		r.Values[scenario+" busy"] = 100 * t.used.Seconds() / t.took.Seconds()
	}
	for name, times := range t.times {
		quantiles(r.Values, name, times.list)
	}
	return r, nil
}
