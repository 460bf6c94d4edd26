package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tideover/tideover/cmd/tideover/internal/simulate"
	"github.com/tideover/tideover/retry"
	"github.com/tideover/tideover/sim"
	"github.com/tideover/tideover/sim/advise"
)

const adviseLong = `Finds a retry policy for a service by simulation. Some two hundred policies run through
the failures that the service may have. The first line says whether the best one
reaches the goal, and what the goal costs. The policy follows in its text form, with
the purpose of each part, its cost, and the alternatives.

Describe the service (at least --rate and --latency) and the goal. Each policy then
runs through three scenarios: an ordinary day, an outage, and a time at half of the
capacity. --success and --p99 apply to the ordinary day, --recovery to the time after
a failure, --through to the calls that begin during the outage, and --load to all of
them. To use scenarios of your own, name them as for "tideover sim"; the goal then
applies to each of them.

Policies that reach the goal are ranked in this order:
  1. its retries can't keep the service in an overload that begins by chance
  2. on an ordinary day, the most calls succeed
  3. does no harm: the service recovers, and in the other scenarios no fewer calls
     succeed than with one attempt that waits until the deadline
  4. has jitter and an attempt timeout
  5. puts the least load on the service
  6. has the fastest slow calls (p99)
  7. is the simplest
If no policy reaches the goal, the one that does the least harm is printed: on an
ordinary day, no policy lets more calls succeed. The text says what it misses, by how
much, and the best value that any policy reached there.

The advice is at least as good as one attempt that waits until the deadline, as
fixed(1s) attempts=3, as exponential(1s) jitter=full attempts=5, as each preset, and
as your own policies (--policy), on the goal and on an ordinary day. If the goal
forces a loss on an ordinary day, the first line says how large it is.

--show DIR writes the scenarios, with the advised policy, those of --policy and naive
ones, to files that "tideover sim" reads: see them side by side. The built-in scenarios of "tideover sim" are other services, so the advice is not
the best policy there.

The budget and the breaker of a policy belong to one process: each process has its
own, and the simulation has --processes of them.

The table shows the final measurement of the policy. The comparisons below it come
from the search, with fewer runs and other seeds: compare the two values in a line
with each other, not with the table.

A reason names the measure that gets worse without that part of the policy. A
difference is shown only if its 95 % interval does not contain zero. A setting is
arbitrary if another value makes no difference, robust if other values are worse, and
a trade-off if another value is better in one measure.

With --json the output is one object: policy, breaker, reached, misses, outcomes,
reasons, choices, trades, alternatives, each with estimates (mean, half the width of
the 95 % interval, seeds). Times are in seconds, except in fields whose name ends in
_ns. Shares are between 0 and 1.`

const adviseExample = `  tideover advise --rate 200 --latency 100ms --success 99.9%
  tideover advise --rate 200 --capacity 300 --latency 100ms --errors 2% --success 99.9% --recovery 10s --load 1.2
  tideover advise --rate 20 --latency 2s --outage 5s --deadline 1m --through 99%
  tideover advise --rate 200 --latency 100ms --success 99% --policy "fixed(1s) attempts=3" --show mine
  tideover advise contention --success 99%
  tideover advise my-service.yaml --success 99% --json | jq -r .policy`

// adviseOptions holds the flags of advise.
type adviseOptions struct {
	resultPrinter
	service  advise.Service
	goal     advise.Goal
	deadline duration
	policies []string // the caller's own
	own      []sim.Contestant
	show     string // folder for the scenarios
	html     string // folder for the pages
	options  advise.Options
}

func newAdvise(io Streams) *cobra.Command {
	o := &adviseOptions{resultPrinter: resultPrinter{io: io}}
	cmd := &cobra.Command{
		Use: "advise [flags] [SCENARIO...]", Short: "Find a policy for a service and a goal", Long: adviseLong, Example: adviseExample,
		ValidArgsFunction: completeNames(sim.Presets, cobra.ShellCompDirectiveDefault),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := contextUntilSignal(cmd.Context())
			defer stop()
			return coded(o.run(ctx, cmd, args))
		},
	}
	f := orderedFlags(cmd)
	f.Float64Var(&o.service.Rate, "rate", 0, "calls per second")
	f.Float64Var(&o.service.Capacity, "capacity", 0, "calls per second that the service can do (default twice the rate)")
	f.Var((*duration)(&o.service.Latency), "latency", "mean response time of the healthy service")
	f.StringVar((*string)(&o.service.Shape), "shape", "", "distribution of the response time: constant, exponential or lognormal (default exponential)")
	f.Float64Var(&o.service.Sigma, "sigma", 0, "of a lognormal response time: the standard deviation of the logarithm (default 1)")
	f.IntVar(&o.service.Queue, "queue", 0, "calls that may wait at the service; it rejects others (default any number)")
	f.BoolVar(&o.service.Shedding, "shedding", false, "the service drops waiting calls whose caller no longer waits")
	f.IntVar(&o.service.Processes, "processes", 0, "processes that call it, each with its own budget and breaker (default 10)")
	f.Var((*fraction)(&o.service.Errors), "errors", "share of calls that fail on an ordinary day (default 1%)")
	f.Var((*fraction)(&o.service.BlackHole), "black-holes", "share of calls that are never answered (default 0.1%)")
	f.Var((*duration)(&o.service.Outage), "outage", "length of an outage (default 30s)")
	groupFlags(f, "The service", serviceFlags...)
	f.Var((*fraction)(&o.goal.Success), "success", "lowest share of calls that must succeed")
	f.Var((*duration)(&o.goal.P99), "p99", "longest time in which 99 % of the calls must succeed")
	f.Var((*duration)(&o.goal.Recovery), "recovery", "longest time after a failure until nearly all calls succeed again")
	f.Float64Var(&o.goal.Amplification, "load", 0, "highest number of attempts per call")
	f.Var((*fraction)(&o.goal.Through), "through", "lowest share of the calls that begin during an outage and must succeed, during it or after it")
	groupFlags(f, "The goal", goalFlags...)
	f.Var(&o.deadline, "deadline", "longest time that a caller waits for a call (default 30s)")
	f.StringArrayVarP(&o.policies, "policy", "p", nil, "`POLICY` that you have now, or NAME=POLICY: the advice is at least as good; can be repeated")
	f.Uint64Var(&o.options.Seed, "seed", 0, "seed of the random numbers; the same seed gives the same advice")
	f.IntVar(&o.options.Seeds, "seeds", 0, "runs of each finalist (default 8; 400 in scenarios with writers, which have few calls)")
	f.IntVar(&o.options.Workers, "workers", 0, "number of processors to use (default: all)")
	f.StringVar(&o.show, "show", "", "also write each scenario, with the advice, to a file in `DIR` that \"tideover sim\" reads")
	f.StringVar(&o.html, "html", "", "also write an HTML page for each scenario to `DIR`, as \"tideover sim --html\" does")
	f.BoolVarP(&o.json, "json", "j", false, "print JSON")
	_ = cmd.MarkFlagDirname("show")
	_ = cmd.MarkFlagDirname("html")
	setGroupedHelp(cmd, "The service", "The goal")
	return exits{
		codeSuccess: "the goal is reached", CodeFailed: "no policy reaches the goal with certainty",
		CodeOwn: "tideover's own error: a bad flag or policy, a file that can't be read, or an impossible scenario",
	}.declare(cmd)
}

var (
	serviceFlags = []string{"rate", "capacity", "latency", "shape", "sigma", "queue", "shedding", "processes", "errors", "black-holes", "outage"}
	goalFlags    = []string{"success", "p99", "recovery", "load", "through"}
)

func (o *adviseOptions) run(ctx context.Context, cmd *cobra.Command, args []string) error {
	cases, err := o.cases(cmd, args)
	if err != nil {
		return err
	}
	if err := o.options.Validate(); err != nil {
		return fmt.Errorf("--%w", err)
	}
	own, err := o.ownPolicies()
	if err != nil {
		return err
	}
	if err := o.makeFolders(); err != nil {
		return err
	}
	progress := newSimProgress(o.io.Err, 0)
	progress.about, o.options.Progress = "about ", progress.step
	a, err := advise.For(ctx, advise.Request{Cases: cases, Deadline: time.Duration(o.deadline), Policies: own}, o.options)
	progress.finish()
	if err != nil {
		return err
	}
	files := o.writeFiles(ctx, cases, a)
	err = errors.Join(files, o.printRendered(a, func(s *screen) []string { return adviceLines(a, s) }))
	if err == nil && !a.Reached {
		return exitError{Code: CodeFailed}
	}
	return err
}

// ownPolicies parses the policies of the caller. Those without a name are called own-1, own-2 and so on.
func (o *adviseOptions) ownPolicies() (list []retry.Policy, err error) {
	var errs flagErrors
	for i, text := range o.policies {
		c, err := simulate.ParsePolicy(text)
		if c.Name == strings.Join(strings.Fields(text), " ") {
			c.Name = fmt.Sprintf("own-%d", i+1)
		}
		taken := func(p sim.Contestant) bool { return p.Name == c.Name }
		if err == nil && (c.Name == advisedName || slices.ContainsFunc(slices.Concat(naivePolicies(), o.own), taken)) {
			err = fmt.Errorf("the name %q is used already: give the policy another one with NAME=POLICY", c.Name)
		}
		errs.add("policy", err)
		o.own, list = append(o.own, c), append(list, c.Policy)
	}
	return list, errors.Join(errs...)
}

// cases returns the scenarios to simulate, each with its goal. Without args it builds the scenarios
// from the flags that describe the service; otherwise args names the scenarios.
func (o *adviseOptions) cases(cmd *cobra.Command, args []string) ([]advise.Case, error) {
	given := cmd.Flags().Changed
	if !slices.ContainsFunc(goalFlags, given) {
		return nil, errors.New("no goal: give at least one of --success, --p99, --recovery, --load and --through")
	}
	if len(args) == 0 {
		if !given("rate") || !given("latency") {
			return nil, errors.New("the service is not described: give at least --rate and --latency, or name a scenario")
		}
		for _, name := range []string{"outage", "processes", "capacity"} {
			if f := cmd.Flags().Lookup(name); f.Changed && strings.Trim(f.Value.String(), "0s.") == "" {
				return nil, fmt.Errorf("--%s: must be above zero", name)
			}
		}
		for name, share := range map[string]*float64{"errors": &o.service.Errors, "black-holes": &o.service.BlackHole} {
			if given(name) && *share == 0 {
				*share = 1e-9 // none; 0 would mean the default
			}
		}
		if err := o.service.Validate(); err != nil {
			return nil, fmt.Errorf("the service: %w", err)
		}
		return o.service.Cases(o.goal), nil
	}
	for _, name := range serviceFlags {
		if given(name) {
			return nil, fmt.Errorf("--%s describes a service, and scenario %s describes it too: leave out the flag or the scenario", name, args[0])
		}
	}
	var cases []advise.Case
	var errs []error
	for _, name := range args {
		f, err := scenario(name)
		if err == nil {
			err = checkScenario(f.Scenario)
		}
		cases, errs = append(cases, advise.Case{Scenario: f.Scenario, Goal: o.goal}), append(errs, err)
	}
	return cases, errors.Join(errs...)
}

// checkScenario returns an error if the scenario can't be simulated with any policy.
func checkScenario(s sim.Scenario) error {
	if err := sim.Check(s, []sim.Contestant{{Name: "one attempt"}}); err != nil {
		return &codedError{fmt.Errorf("scenario %q: %w", s.Name, err), CodeOwn}
	}
	return nil
}

// fraction is the value of a flag: a number between 0 and 1, written as 99.9% or 0.999.
type fraction float64

func (s *fraction) String() string {
	if *s == 0 {
		return "0" // help shows no default for it
	}
	return percent(float64(*s))
}

func (*fraction) Type() string { return "percent" }

// Set implements [pflag.Value].
func (s *fraction) Set(text string) error {
	number, isPercent := strings.CutSuffix(text, "%")
	v, err := strconv.ParseFloat(number, 64)
	if isPercent {
		v /= 100
	}
	if err != nil || !(v >= 0 && v <= 1) {
		return fmt.Errorf("%q is not a share: want a value such as 99.9%% or 0.999", text)
	}
	*s = fraction(v)
	return nil
}
