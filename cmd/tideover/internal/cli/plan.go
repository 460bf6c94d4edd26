package cli

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tideover/tideover/cmd/tideover/internal/plan"
	"github.com/tideover/tideover/cmd/tideover/internal/process"
	"github.com/tideover/tideover/retry"
)

// planOptions is what the flags of plan say.
type planOptions struct {
	json  bool
	svg   string
	list  int
	seed  uint64
	ascii bool
	log   bool
}

const planLong = `Shows what a policy will do before anything runs: the delay before each retry,
the band that jitter draws the wait from, what the waits add up to at best and
at worst, and how long the whole call can take.

Each POLICY is one argument: a family or a preset with its keys, in quotes.
Several are shown side by side, on one scale. Without any, the presets are
listed.

An attempt is one try, the first included; a retry is an attempt after the
first. The sums are those of a call that never succeeds. Delays that a server
states are not in them: such a one takes the place of the policy's own, up to
server-wait (default 2m), and a longer one ends the call.

Of a policy with more than 100 retries, or with attempts=unlimited, the first 8
are listed, and more until the delays stop growing, 20 at most; --retries lists
another number.

With --json the output is an array with one object for each policy. Times are in
nanoseconds and stop at the largest 64-bit integer, 292 years.
  name             the argument
  use              what it is for, if it is a preset
  policy           the text form, presets spelled out
  attempts         the first included; -1 is unlimited
  retries          those listed, each with
    n                its number, from 1
    delay_ns         without jitter
    low_ns, high_ns  the band that jitter draws from
    sample_ns        one wait drawn from it, with --seed
    sum_ns, low_sum_ns, high_sum_ns
                     of the waits so far, this one included
    never            true if total-timeout ends the call before it in any case
  total_ns, low_total_ns, high_total_ns
                   of all waits, listed or not, whatever total-timeout leaves of
                   them; absent if there is no end to them, or if the delays are
                   still growing after 100000 retries, as linear ones may
  sample_total_ns  of the sample, if all retries are listed
  worst_case_ns    of the call with all attempts and waits; absent without
                   attempt-timeout or total-timeout to bound it
  notes            sentences on what else the policy does`

const planExample = `  tideover plan                                  the presets
  tideover plan http                             one of them
  tideover plan "http attempts=7 attempt-timeout=30s"
  tideover plan http "exponential(50ms..20s) jitter=full attempts=8"
  tideover plan contention daemon --log          of different magnitude
  tideover plan http --seed 1                    as it might happen
  tideover plan http http-batch --svg plan.svg
  tideover plan task --json | jq '.[0].total_ns / 1e9'`

func newPlan(io Streams) *cobra.Command {
	var o planOptions
	cmd := &cobra.Command{
		Use:                   "plan [flags] [POLICY...]",
		Short:                 "Show what a policy will do, before anything runs",
		Long:                  planLong,
		Example:               planExample,
		DisableFlagsInUseLine: true,
		ValidArgsFunction:     completePresets,
		RunE: func(cmd *cobra.Command, args []string) error {
			return runPlan(cmd, io.Out, o, args)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.IntVar(&o.list, "retries", 0, "list `N` retries of each policy at most")
	f.Uint64Var(&o.seed, "seed", 0, "add a sample of the waits, drawn from seed `N`")
	f.BoolVar(&o.log, "log", false, "draw on a logarithmic scale")
	f.BoolVar(&o.ascii, "ascii", false, "draw with plain characters, as is done when the locale is not UTF-8")
	f.StringVar(&o.svg, "svg", "", "write a drawing to `FILE` too; - writes it to standard output instead of the table")
	f.BoolVar(&o.json, "json", false, "print JSON")
	_ = cmd.MarkFlagFilename("svg", "svg")
	return cmd
}

// completePresets offers the names of the presets that are not given yet.
func completePresets(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var names []cobra.Completion
	for name, use := range retry.Presets {
		if !slices.Contains(args, name) {
			names = append(names, cobra.CompletionWithDesc(name, use))
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

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
	if o.svg != "" && o.svg != "-" {
		if err := plan.WriteFile(o.svg, drawing.Bytes()); err != nil {
			return fmt.Errorf("--svg: %w", err)
		}
	}
	_, err = out.Write(text.Bytes())
	return err
}

// check refuses flags that would have no effect.
func (o *planOptions) check(cmd *cobra.Command, args []string) error {
	given := cmd.Flags().Changed
	if given("retries") && (o.list < 1 || o.list > plan.MaxList) {
		return fmt.Errorf("--retries: %d is not between 1 and %d", o.list, plan.MaxList)
	}
	if _, preset := retry.Preset(o.svg); preset && len(args) == 0 {
		return fmt.Errorf("--svg: %q is a policy; name the file first, as in --svg plan.svg %s", o.svg, o.svg)
	}
	if o.json && o.svg == "-" {
		return errors.New("--json and --svg - both want standard output; give --svg a file")
	}
	if o.ascii && (o.json || o.svg == "-") {
		return errors.New("--ascii is for the table, which is not printed here")
	}
	if o.log && o.json && o.svg == "" {
		return errors.New("--log is for drawings, of which --json has none")
	}
	if len(args) > 0 || o.json || o.svg != "" {
		return nil
	}
	for _, name := range []string{"retries", "seed", "log"} {
		if given(name) {
			return fmt.Errorf("--%s needs a policy, as in tideover plan http", name)
		}
	}
	return nil
}

// plans plans the policies in the arguments, or all presets.
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
			err = fmt.Errorf("%w; a policy is one argument, in quotes: %q", err, args[i-1]+" "+arg)
		}
		plans, errs = append(plans, p), append(errs, err)
	}
	return plans, errors.Join(errs...)
}

// planStyle fits the layout to where the output goes.
func planStyle(out *os.File, o planOptions) plan.Style {
	s := plan.Style{ASCII: o.ascii || !utf8Locale(), Log: o.log}
	s.Width, _ = strconv.Atoi(os.Getenv("COLUMNS"))
	if process.IsTerminal(out) {
		s.Colour = os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
		s.Width = max(columns(out), 0)
	}
	if s.Width <= 0 {
		s.Width = 80
	}
	return s
}

// utf8Locale reports whether the reader's terminal shows UTF-8, as far as the
// environment tells.
func utf8Locale() bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := strings.ToLower(os.Getenv(name)); v != "" {
			return strings.Contains(v, "utf-8") || strings.Contains(v, "utf8")
		}
	}
	return runtime.GOOS == "windows" // which has no such variables
}
