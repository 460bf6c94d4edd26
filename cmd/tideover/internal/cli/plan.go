package cli

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tideover/tideover/cmd/tideover/internal/plan"
	"github.com/tideover/tideover/retry"
)

// planOptions holds the flags of plan.
type planOptions struct {
	json, ascii, log bool
	svg              string
	list             int
	seed             uint64
}

const planLong = `Shows the delays of a policy before you use it: the delay before each retry, the
range from which jitter draws, the shortest and longest sum of all delays, and the
longest time of the whole call.

Each POLICY is one argument: a family or a preset with its keys, in quotes. Several
are shown side by side, on one scale. Without any, the presets are listed.

An attempt is one try, including the first; a retry is an attempt after the first.
The sums are those of a call that never succeeds. They do not include delays that a
server states: such a delay replaces the policy's own, up to server-wait
(default 2m), and a longer one ends the call.

Of a policy with more than 100 retries, or with attempts=unlimited, the first 8 are
listed, and more until the delays stop growing, at most 20. --retries sets another
number.

With --json the output is an object with the field plans, which has an object for each
policy. Times are in nanoseconds, at most the largest 64-bit integer (292 years).
  name             the argument
  use              purpose, if it is a preset
  policy           the text form, with presets expanded
  attempts         including the first; -1 is unlimited
  retries          those listed, each with
    n                its number, from 1
    delay_ns         without jitter
    low_ns, high_ns  the range from which jitter draws
    sample_ns        one delay drawn from it, with --seed
    sum_ns, low_sum_ns, high_sum_ns
                     of the delays so far, including this one
    never            true if total-timeout always ends the call before it
  total_ns, low_total_ns, high_total_ns
                   of all delays, listed or not, limited by total-timeout; absent if
                   they have no limit, or if the delays still grow after 100000
                   retries, as linear ones may
  sample_total_ns  of the sample, if all retries are listed
  worst_case_ns    longest time of the call with all attempts and delays; absent
                   without attempt-timeout or total-timeout
  notes            sentences on other effects of the policy`

const planExample = `  tideover plan                                  list the presets
  tideover plan http                             one preset
  tideover plan "http attempts=7 attempt-timeout=30s"
  tideover plan http "exponential(50ms..20s) jitter=full attempts=8"
  tideover plan contention daemon --log          delays of different magnitude
  tideover plan http --seed 1                    with one random sample
  tideover plan http http-batch --svg plan.svg
  tideover plan task --json | jq '.plans[0].total_ns / 1e9'`

func newPlan(io Streams) *cobra.Command {
	var o planOptions
	cmd := &cobra.Command{
		Use:               "plan [flags] [POLICY...]",
		Short:             "Show the delays of a policy",
		Long:              planLong,
		Example:           planExample,
		ValidArgsFunction: completePresets,
		RunE:              func(cmd *cobra.Command, args []string) error { return runPlan(cmd, io.Out, o, args) },
	}
	f := orderedFlags(cmd)
	f.IntVar(&o.list, "retries", 0, "list at most `N` retries of each policy")
	f.Uint64Var(&o.seed, "seed", 0, "add one random sample of the delays, drawn with seed `N`")
	f.BoolVar(&o.log, "log", false, "draw on a logarithmic scale")
	f.BoolVar(&o.ascii, "ascii", false, "use ASCII characters only (default if the locale is not UTF-8)")
	f.StringVar(&o.svg, "svg", "", "also write a chart to `FILE`; - writes it to standard output instead of the table")
	f.BoolVarP(&o.json, "json", "j", false, "print JSON")
	_ = cmd.MarkFlagFilename("svg", "svg")
	return cmd
}

// completePresets completes the names of presets that are not in args yet.
var completePresets = completeNames(retry.Presets, cobra.ShellCompDirectiveNoFileComp)

func runPlan(cmd *cobra.Command, out *os.File, o planOptions, args []string) error {
	if err := o.check(cmd, args); err != nil {
		return err
	}
	plans, err := o.plans(cmd, args)
	if err != nil {
		return err
	}
	var text, drawing bytes.Buffer
	if o.svg != "" {
		if err := plan.SVG(&drawing, plans, o.log); err != nil {
			return err
		}
	}
	switch style := planStyle(out, o); {
	case o.svg == "-":
		text = drawing
	case o.json:
		err = plan.JSON(&text, plans)
	case len(args) == 0:
		err = plan.List(&text, plans, style)
	default:
		err = plan.Text(&text, plans, style)
	}
	if err != nil {
		return err
	}
	if err := writeTo("svg", o.svg, drawing.Bytes()); err != nil {
		return err
	}
	_, err = out.Write(text.Bytes())
	return err
}

// check returns an error for flags with a wrong value, and for flags that would have no effect.
func (o *planOptions) check(cmd *cobra.Command, args []string) error {
	given := cmd.Flags().Changed
	if given("retries") && (o.list < 1 || o.list > plan.MaxList) {
		return fmt.Errorf("--retries: %d is not between 1 and %d", o.list, plan.MaxList)
	}
	if _, preset := retry.Preset(o.svg); preset && len(args) == 0 {
		return fmt.Errorf("--svg: %q is a policy, not a file: write --svg plan.svg %s", o.svg, o.svg)
	}
	if err := checkFormats(o.json, o.ascii, o.svg); err != nil {
		return err
	}
	if o.log && o.json && o.svg == "" {
		return errors.New("--log has no effect: --json contains no chart")
	}
	if len(args) > 0 || o.json || o.svg != "" {
		return nil
	}
	for _, name := range []string{"retries", "seed", "log"} {
		if given(name) {
			return fmt.Errorf("--%s needs a policy, such as tideover plan http", name)
		}
	}
	return nil
}

// checkFormats returns an error if two of the flags --json, --ascii and --svg contradict each other.
func checkFormats(json, ascii bool, svg string) error {
	if json && svg == "-" {
		return errors.New("--json and --svg - both write to standard output: give --svg a file")
	}
	if ascii && (json || svg == "-") {
		return errors.New("--ascii has no effect: no table is printed")
	}
	return nil
}

// plans returns the plans of the policies in args; without args, the plans of all presets.
func (o *planOptions) plans(cmd *cobra.Command, args []string) ([]plan.Plan, error) {
	options := plan.Options{List: o.list}
	if cmd.Flags().Changed("seed") {
		options.Seed = &o.seed
	}
	if len(args) == 0 {
		return plan.Presets(options), nil
	}
	var plans []plan.Plan
	var errs []error
	for i, arg := range args {
		p, err := plan.Parse(arg, options)
		if name, _, _ := strings.Cut(arg, "="); err != nil && i > 0 && slices.Contains(retry.Keys(), name) {
			err = fmt.Errorf("%w; a policy is one argument, so put it in quotes: %q", err, args[i-1]+" "+arg)
		}
		plans, errs = append(plans, p), append(errs, err)
	}
	return plans, errors.Join(errs...)
}

// planStyle returns the layout for the terminal or file that the output goes to.
func planStyle(out *os.File, o planOptions) plan.Style {
	s := screenOf(out)
	return plan.Style{Width: cmp.Or(s.width, 80), Colour: s.colour, ASCII: o.ascii || !utf8Locale(), Log: o.log}
}

// utf8Locale reports whether the environment selects a UTF-8 locale.
func utf8Locale() bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := strings.ToLower(os.Getenv(name)); v != "" {
			return strings.Contains(v, "utf-8") || strings.Contains(v, "utf8")
		}
	}
	return runtime.GOOS == "windows" // Windows has no such variables
}

// printSchedule prints the delays of the policy of exec, as the plan command does. With --seed the
// sample has the delays that the same command uses without --dry-run.
func printSchedule(io Streams, o *execOptions) error {
	var options plan.Options
	if o.seeded {
		options.Seed = &o.seed
	}
	name := o.policyText
	if p, err := retry.Parse(name); err != nil || p != o.policy {
		name = o.policy.String() // flags such as --attempts have changed the policy
	}
	p := plan.New(name, o.policy, options)
	if o.json {
		return plan.JSON(io.Out, []plan.Plan{p})
	}
	return plan.Text(io.Out, []plan.Plan{p}, planStyle(io.Out, planOptions{}))
}
