package gateway

import (
	"cmp"
	"errors"
	"time"

	"github.com/tideover/tideover/internal/benchreport"
)

// tally sums up the slices of one scenario with one system.
type tally struct {
	outcome
	took, used time.Duration // wall time, and processor time of the measured process
	times      map[string]*samples
}

func newTally() *tally { return &tally{times: map[string]*samples{}} }

// outcome counts the results of the requests of a scenario.
type outcome struct {
	good, failed int
	why          error // the first failure
}

func (o *outcome) record(err error) {
	if err == nil {
		o.good++
		return
	}
	o.failed++
	o.why = cmp.Or(o.why, err)
}

func (o *outcome) add(more outcome) {
	o.good += more.good
	o.failed += more.failed
	o.why = cmp.Or(o.why, more.why)
}

// count runs the work, and adds its outcome, its duration and the processor time that the
// system used meanwhile.
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

// samples returns the named list of times.
func (t *tally) samples(name string) *samples {
	if t.times[name] == nil {
		t.times[name] = &samples{}
	}
	return t.times[name]
}

// result returns the sums as a Result.
func (t *tally) result(scenario, system string, e endpoint) (benchreport.Result, error) {
	if t.good == 0 {
		return benchreport.Result{}, errors.Join(errors.New("no request succeeded"), t.why)
	}
	r := benchreport.Result{Scenario: scenario, System: system, Values: map[string]float64{
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
		benchreport.Quantiles(r.Values, name, times.list)
	}
	return r, nil
}
