package gateway

import (
	"context"
	"fmt"
	"time"

	"github.com/tideover/tideover/internal/benchreport"
)

// Bench configures the measurements.
type Bench struct {
	Dir         string        // for configurations and logs of the processes
	Core        string        // processor core of the proxies; if empty, each has GOMAXPROCS=1 instead
	Length      time.Duration // duration of each measurement
	Connections int           // number of connections of all scenarios except streams
	Rate        int           // requests that become due in a second

	// Own returns the command of a process that calls [Child].
	Own func(part, upstream string) Command

	Caddy, Tideover string // paths of the programs; needed when they are measured

	// Builds are paths of other builds of tideover, by the name of the system.
	Builds map[string]string
}

// The systems that are measured, by name.
const (
	Direct   = "direct"
	Bare     = barePart
	Tuned    = tunedPart
	Caddy    = "caddy"
	Tideover = "tideover"
)

// scenario is one measurement.
type scenario struct {
	name    string
	measure func(*Bench, context.Context, *tally, endpoint, time.Duration) error
}

// scenarios are in the order in which they are measured.
var scenarios = []scenario{
	{"get", func(b *Bench, ctx context.Context, t *tally, e endpoint, length time.Duration) error {
		return b.closed(ctx, t, e, e.get(), length)
	}},
	{"post", func(b *Bench, ctx context.Context, t *tally, e endpoint, length time.Duration) error {
		return b.closed(ctx, t, e, e.post(smallPath), length)
	}},
	{"steady", (*Bench).steady},
	{"stream", (*Bench).stream},
}

const (
	// warmUp is the longest time that a process works before it is measured.
	warmUp = 500 * time.Millisecond

	// slice is the longest time for which a system is measured before the next
	// one. Other load on the machine lasts longer, and affects all systems.
	slice = 500 * time.Millisecond
)

// Round measures every scenario with every system, on fresh processes.
func (b *Bench) Round(ctx context.Context, round int, systems []string, report func(benchreport.Result) error) error {
	st := &testbed{bench: b, systems: systems, at: map[string]endpoint{}}
	defer st.stop()
	if err := st.startAll(ctx); err != nil {
		return err
	}
	var memory []benchreport.Result
	for _, s := range systems {
		values := map[string]float64{}
		if err := b.warmUpSystem(ctx, st.at[s], values); err != nil {
			return fmt.Errorf("warm-up of %s: %w%s", s, err, st.logTail(s))
		}
		memory = append(memory, benchreport.Result{Scenario: "memory", System: s, Values: values})
	}
	for _, what := range scenarios {
		tallies, err := b.slices(ctx, what, round, st)
		if err != nil {
			return err
		}
		for i, s := range systems {
			r, err := tallies[i].result(what.name, s, st.at[s])
			if err != nil {
				return fmt.Errorf("%s of %s: %w%s", what.name, s, err, st.logTail(s))
			}
			if err := report(r); err != nil {
				return err
			}
		}
	}
	for _, r := range memory {
		e := st.at[r.System]
		if e.pid == 0 {
			continue
		}
		if err := e.memory(r.Values, "loaded"); err != nil {
			return err
		}
		if err := report(r); err != nil {
			return err
		}
	}
	return nil
}

// slices measures a scenario in short slices, with one system after the other. The
// order of the systems rotates, so that no system always follows the slowest.
func (b *Bench) slices(ctx context.Context, what scenario, round int, st *testbed) ([]*tally, error) {
	n := len(st.systems)
	tallies := make([]*tally, n)
	for i := range tallies {
		tallies[i] = newTally()
	}
	slices := max(1, int(b.Length/slice))
	for turn := range slices * n {
		i := (round - 1 + turn + turn/n) % n
		s := st.systems[i]
		err := what.measure(b, ctx, tallies[i], st.at[s], b.Length/time.Duration(slices))
		if cause := context.Cause(ctx); cause != nil {
			err = cause // the context has ended: errors of the measurement follow from that
		}
		if err != nil {
			return nil, fmt.Errorf("%s of %s: %w%s", what.name, s, err, st.logTail(s))
		}
	}
	return tallies, nil
}

// warmUpSystem measures the memory of the process before it has done anything,
// and then sends it requests.
func (b *Bench) warmUpSystem(ctx context.Context, e endpoint, memory map[string]float64) error {
	if err := e.memory(memory, "started"); err != nil {
		return err
	}
	return b.closed(ctx, newTally(), e, e.get(), min(b.Length, warmUp))
}
