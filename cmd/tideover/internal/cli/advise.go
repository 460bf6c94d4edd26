package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tideover/tideover/sim"
	"github.com/tideover/tideover/sim/advise"
)

const adviseLong = `Looks for a policy by simulation: hundreds of them go through what may happen to a
service, and the best is printed in its text form, with what each part of it is for,
what it costs, and what else there is.

Say what is known of the service, at least --rate and --latency, and what is wanted.
The policies then go through an ordinary day, an outage, and a time in which half of
the service is gone. --success and --p99 are for the ordinary day, --recovery is for
the time after a failure, --through for the outage, --load for all of them. Or name
scenarios, as for tideover sim; the goal is then for each of them.

Among the policies that reach the goal, the one is best that does no harm: no fewer calls
succeed than with one patient attempt, and the service recovers; among those alike, the
one that puts the least load on it; among those alike, the one whose slow calls are
fastest; among those alike, the simplest. If none reaches the goal the closest is
shown, with what it misses, by how much, and what the best of all could do there.

A reason is what gets worse when that part is taken away; a difference is only shown
if its 95 % interval does not contain zero.

With --json the output is one object: policy, breaker, reached, misses, outcomes,
reasons, trades, alternatives, each with estimates (mean, half the width of the 95 %
interval, seeds). Times are in seconds, unless their name ends in _ns, and shares
between 0 and 1.

Exit codes:
  0    the goal is reached
  1    no policy that was tried reaches it, or not beyond doubt
  2    a scenario that can't be
  125  an error of ours: a bad flag
  128+n  signal n told us to end`

const adviseExample = `  tideover advise --rate 200 --latency 100ms --success 99.9%
  tideover advise --rate 200 --capacity 300 --latency 100ms --errors 2% --success 99.9% --recovery 10s --load 1.2
  tideover advise --rate 20 --latency 2s --outage 5s --deadline 1m --through 99%
  tideover advise contention --success 99%
  tideover advise my-service.yaml --success 99% --json | jq -r .policy`

// adviseOptions is what the flags of advise say.
type adviseOptions struct {
	service          advise.Service
	goal             advise.Goal
	errors           share
	success, through share
	latency, outage  duration
	p99, recovery    duration
	deadline         duration
	options          advise.Options
	json             bool
}

func newAdvise(io Streams) *cobra.Command {
	var o adviseOptions
	cmd := &cobra.Command{
		Use: "advise [flags] [SCENARIO...]", Short: "Find a policy for a service and a goal", Long: adviseLong, Example: adviseExample,
		DisableFlagsInUseLine: true,
		ValidArgsFunction:     completeAdvised,
		RunE: func(cmd *cobra.Command, args []string) error {
			r := &remote{io: io}
			ctx, stop := r.context(cmd)
			defer stop()
			return coded(runAdvise(ctx, cmd, io, &o, args))
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.Float64Var(&o.service.Rate, "rate", 0, "calls per second")
	f.Float64Var(&o.service.Capacity, "capacity", 0, "calls per second that the service can do (default twice the rate)")
	f.Var(&o.latency, "latency", "mean time of an answer, when nothing is wrong")
	f.IntVar(&o.service.Processes, "processes", 0, "processes that call it, each with its own budget and breaker (default 10)")
	f.Var(&o.errors, "errors", "share of calls that fail on an ordinary day (default 1%)")
	f.Var(&o.outage, "outage", "how long the service may be down (default 30s)")
	group(f, "The service", serviceFlags...)
	f.Var(&o.success, "success", "share of the calls that succeed, at least")
	f.Var(&o.p99, "p99", "time within which 99 % of the calls have succeeded, at most")
	f.Var(&o.recovery, "recovery", "time after a failure until nearly all calls succeed again, at most")
	f.Float64Var(&o.goal.Amplification, "load", 0, "attempts per call, at most")
	f.Var(&o.through, "through", "share of the calls that succeed although there is an outage, at least")
	group(f, "The goal", goalFlags...)
	f.Var(&o.deadline, "deadline", "nobody waits longer for a call (default 30s)")
	f.Uint64Var(&o.options.Seed, "seed", 0, "of the randomness; the same seed gives the same advice")
	f.IntVar(&o.options.Seeds, "seeds", 0, "runs of each policy that is left at the end (default 8; 400 for writers, of whom there are few)")
	f.IntVar(&o.options.Workers, "workers", 0, "processors to use (default all)")
	f.BoolVar(&o.json, "json", false, "print JSON")
	groupedHelp(cmd, "The service", "The goal")
	return cmd
}

var (
	serviceFlags = []string{"rate", "capacity", "latency", "processes", "errors", "outage"}
	goalFlags    = []string{"success", "p99", "recovery", "load", "through"}
)

func runAdvise(ctx context.Context, cmd *cobra.Command, io Streams, o *adviseOptions, args []string) error {
	cases, err := o.cases(cmd, args)
	if err != nil {
		return err
	}
	if err := o.options.Validate(); err != nil {
		return fmt.Errorf("--%w", err)
	}
	show := newSimProgress(io.Err, 0)
	o.options.Progress = show.step
	a, err := advise.For(ctx, advise.Request{Cases: cases, Deadline: time.Duration(o.deadline)}, o.options)
	show.end()
	if err != nil {
		return err
	}
	if o.json {
		var text []byte
		if text, err = json.Marshal(a); err == nil {
			_, err = io.Out.Write(append(visibleJSON(text), '\n'))
		}
	} else {
		s := screenOf(io.Out)
		_, err = fmt.Fprintln(io.Out, strings.Join(adviceLines(a, &s), "\n"))
	}
	if err == nil && !a.Reached {
		return exitError{Code: codeMissed}
	}
	return err
}

// codeMissed is the exit code when no policy reaches the goal.
const codeMissed = 1

// cases returns what a policy must get through, by the flags or by the scenarios
// that are named.
func (o *adviseOptions) cases(cmd *cobra.Command, args []string) ([]advise.Case, error) {
	given := cmd.Flags().Changed
	o.goal.Success, o.goal.P99, o.goal.Recovery = float64(o.success), time.Duration(o.p99), time.Duration(o.recovery)
	if !slices.ContainsFunc(goalFlags, given) {
		return nil, errors.New("the goal: say what is wanted: --success, --p99, --recovery, --load or --through")
	}
	if len(args) == 0 {
		o.service.Errors, o.service.Latency, o.service.Outage = float64(o.errors), time.Duration(o.latency), time.Duration(o.outage)
		if !given("rate") || !given("latency") {
			return nil, errors.New("the service: say --rate and --latency at least, or name a scenario")
		}
		for _, name := range []string{"outage", "processes", "capacity"} {
			if f := cmd.Flags().Lookup(name); f.Changed && strings.Trim(f.Value.String(), "0s.") == "" {
				return nil, fmt.Errorf("--%s: must be above zero", name)
			}
		}
		if given("errors") && o.errors == 0 {
			o.service.Errors = 1e-9 // none, as zero means that nobody said
		}
		if err := o.service.Validate(); err != nil {
			return nil, fmt.Errorf("the service: %w", err)
		}
		return o.service.Cases(o.goal, float64(o.through)), nil
	}
	for _, name := range append(serviceFlags, "through") {
		if given(name) {
			return nil, fmt.Errorf("--%s is of a service that is described by flags; %s is a scenario, which has its own", name, args[0])
		}
	}
	var cases []advise.Case
	var errs []error
	for _, name := range args {
		f, err := scenario(name)
		if err == nil {
			err = possible(f.Scenario)
		}
		cases, errs = append(cases, advise.Case{Scenario: f.Scenario, Goal: o.goal}), append(errs, err)
	}
	return cases, errors.Join(errs...)
}

// possible reports what keeps any policy from going through the scenario.
func possible(s sim.Scenario) error {
	if err := sim.Check(s, []sim.Contestant{{Name: "one attempt"}}); err != nil {
		return &codedError{fmt.Errorf("scenario %q: %w", s.Name, err), codeImpossible}
	}
	return nil
}

// completeAdvised offers the names of scenarios, and files.
func completeAdvised(_ *cobra.Command, args []string, _ string) (names []cobra.Completion, _ cobra.ShellCompDirective) {
	for name, about := range sim.Presets {
		if !slices.Contains(args, name) {
			names = append(names, cobra.CompletionWithDesc(name, about))
		}
	}
	return names, cobra.ShellCompDirectiveDefault
}

// share is a part of a whole: 99.9%, or 0.999.
type share float64

func (s *share) String() string {
	if *s == 0 {
		return ""
	}
	return percent(float64(*s))
}

func (*share) Type() string { return "percent" }

// Set implements [pflag.Value].
func (s *share) Set(text string) error {
	number, isPercent := strings.CutSuffix(text, "%")
	v, err := strconv.ParseFloat(number, 64)
	if isPercent {
		v /= 100
	}
	if err != nil || !(v >= 0 && v <= 1) {
		return fmt.Errorf("%q is not a share, such as 99.9%% or 0.999", text)
	}
	*s = share(v)
	return nil
}
