package cli

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tideover/tideover/cmd/tideover/internal/simulate"
	"github.com/tideover/tideover/sim"
)

// codeImpossible is the exit code of sim for what can't be simulated.
const codeImpossible = 2

// simOptions is what the flags of sim say.
type simOptions struct {
	policies []string
	show     bool
	seed     uint64
	seeds    int
	workers  int
	ascii    bool
	json     bool
	svg      string
	html     string
}

const simLong = `Runs policies through a failure that is simulated, and shows side by side what
becomes of the calls and of the service. The policies are real: the code that
decides about a retry here is the one that does so everywhere else. Only time,
clients and services are made up.

SCENARIO is one that is built in, or a YAML file; --show prints one that is built
in, to start a file from, and docs/sim.md has all keys. Without SCENARIO, those
that are built in are listed:
SCENARIOS
--policy is a policy in its text form or the name of a preset, as in "tideover help
policy"; with a name and an equals sign before it, that is what it is called. The
policies of a file come first. Without any there are a few to learn from.

Each policy runs once for each seed, and all policies meet the same arrivals,
service times and failures. Numbers are means over the seeds; ± is half of the 95 %
interval. A value is marked as the best if the difference to each other policy,
taken seed by seed, can't be chance. The same seeds show the same, byte for byte,
however many workers, on every machine with the same kind of processor.

With --json the output is one object; times are in seconds. scenario, seed, seeds,
bucket_s, events, and results, one for each policy, with name, policy, the measures
(success, goodput, amplification, recovery_s ...: mean, half of the interval, and
seeds that have a value), never_recovers, versus (the same, minus the first
policy's), series (one value for each bucket) and cdf.

Exit codes:
  0      done
  2      the scenario or a policy is not possible, and nothing was run; or it takes
         more memory than there is for a run
  125    an error of ours: a bad flag, a file that can't be read or written
  128+n  signal n told us to end, 130 by Ctrl-C; nothing was written`

const simExample = `  tideover sim                                 the scenarios
  tideover sim outage                          with policies to learn from
  tideover sim metastable --policy http --policy "http budget=ratio(0.1)"
  tideover sim herd --policy fast="fixed(10ms) attempts=5" --policy default
  tideover sim brownout --html brownout.html   a page to pass on
  tideover sim --show outage > mine.yaml       a file to start from
  tideover sim mine.yaml --seeds 20
  tideover sim outage --json | jq '.results[] | {name, success: .success.mean}'`

func newSim(io Streams) *cobra.Command {
	var o simOptions
	cmd := &cobra.Command{
		Use:                   "sim [flags] [SCENARIO]",
		Short:                 "Run policies through a simulated failure, side by side",
		Long:                  strings.Replace(simLong, "SCENARIOS\n", simScenarios(), 1),
		Example:               simExample,
		DisableFlagsInUseLine: true,
		Args:                  oneScenario,
		ValidArgsFunction:     completeScenarios,
		RunE: func(cmd *cobra.Command, args []string) error {
			return runSim(cmd, io, o, args)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringArrayVarP(&o.policies, "policy", "p", nil, "let `POLICY` take part, or NAME=POLICY; may be repeated")
	f.Uint64Var(&o.seed, "seed", 0, "begin with seed `N`; the next runs have the next ones")
	f.IntVar(&o.seeds, "seeds", sim.DefaultSeeds, "run each policy `N` times, each time with another seed")
	f.IntVar(&o.workers, "workers", 0, "run `N` simulations at once; 0 is one for each processor")
	f.BoolVar(&o.ascii, "ascii", false, "draw with plain characters, as is done when the locale is not UTF-8")
	f.StringVar(&o.html, "html", "", "write a page with all drawings to `FILE` too; it needs nothing else")
	f.StringVar(&o.svg, "svg", "", "write a drawing to `FILE` too; - writes it to standard output instead of the table")
	f.BoolVar(&o.json, "json", false, "print JSON")
	f.BoolVar(&o.show, "show", false, "print SCENARIO as YAML, with the policies, and run nothing")
	_ = cmd.MarkFlagFilename("svg", "svg")
	_ = cmd.MarkFlagFilename("html", "html", "htm")
	_ = cmd.RegisterFlagCompletionFunc("policy", func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return completePresets(nil, o.policies, "")
	})
	for _, name := range []string{"seed", "seeds", "workers"} {
		_ = cmd.RegisterFlagCompletionFunc(name, cobra.NoFileCompletions)
	}
	return cmd
}

func oneScenario(_ *cobra.Command, args []string) error {
	switch {
	case len(args) < 2:
		return nil
	case policyLike(args[1]):
		return fmt.Errorf("sim: %q is a policy; write --policy before it", args[1])
	}
	return fmt.Errorf("sim: one scenario at a time, and %q is another", args[1])
}

func policyLike(text string) bool {
	_, err := simulate.ParsePolicy(text)
	return err == nil
}

// simScenarios lists the scenarios for the help.
func simScenarios() string {
	var b strings.Builder
	for name, about := range sim.Presets {
		b.WriteString(hanging(fmt.Sprintf("  %-12s", name), about, 80))
	}
	return b.String()
}

// hanging writes a text behind its name, in lines of the width.
func hanging(name, text string, width int) string {
	var b strings.Builder
	b.WriteString(name)
	column := len(name)
	for word := range strings.FieldsSeq(text) {
		if column+1+len(word) > width {
			b.WriteString("\n" + strings.Repeat(" ", len(name)))
			column = len(name)
		}
		b.WriteString(" " + word)
		column += 1 + len(word)
	}
	return b.String() + "\n"
}

// completeScenarios offers the names, and files.
func completeScenarios(_ *cobra.Command, args []string, _ string) (list []cobra.Completion, _ cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	for name, about := range sim.Presets {
		list = append(list, cobra.CompletionWithDesc(name, about))
	}
	return list, cobra.ShellCompDirectiveDefault
}

func runSim(cmd *cobra.Command, io Streams, o simOptions, args []string) error {
	if err := o.check(cmd, args); err != nil {
		return err
	}
	if len(args) == 0 {
		return listScenarios(io.Out)
	}
	file, err := o.file(args[0])
	if err != nil {
		return err
	}
	if o.show {
		_, err := fmt.Fprint(io.Out, file.YAML())
		return err
	}
	report, err := o.run(cmd, io, file)
	if err != nil {
		return err
	}
	return o.write(io.Out, &simulate.View{
		Scenario: file.Scenario, Contestants: file.Policies, Report: report, Command: o.command(args[0]),
	})
}

// check refuses flags that would have no effect, or can't have one.
func (o *simOptions) check(cmd *cobra.Command, args []string) error {
	given := cmd.Flags().Changed
	if o.seeds < 1 || o.seeds > sim.MaxSeeds {
		return fmt.Errorf("--seeds: %d is not between 1 and %d", o.seeds, sim.MaxSeeds)
	}
	if err := (sim.Options{Workers: o.workers}).Validate(); err != nil {
		return fmt.Errorf("--%w", err)
	}
	for _, name := range []string{"svg", "html"} {
		file := cmd.Flag(name).Value.String()
		if _, err := os.Stat(filepath.Dir(file)); err != nil { // rather than after the run
			return fmt.Errorf("--%s: %w", name, err)
		}
		if len(args) > 0 && sameFile(file, args[0]) {
			return fmt.Errorf("--%s: %s is the scenario; name another file", name, file)
		}
	}
	switch {
	case o.html == "-":
		return errors.New("--html: a page is for a file; name one")
	case o.json && o.svg == "-":
		return errors.New("--json and --svg - both want standard output; give --svg a file")
	case o.ascii && (o.json || o.svg == "-"):
		return errors.New("--ascii is for the table, which is not printed here")
	}
	for _, name := range []string{"policy", "seed", "seeds", "workers", "html", "svg", "json", "show"} {
		if given(name) && len(args) == 0 {
			return fmt.Errorf("--%s needs a scenario, as in tideover sim outage", name)
		}
		if given(name) && o.show && name != "show" && name != "policy" {
			return fmt.Errorf("--%s has no effect with --show, which runs nothing", name)
		}
	}
	return nil
}

// sameFile reports whether both name one file that is there.
func sameFile(a, b string) bool {
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	return errX == nil && errY == nil && os.SameFile(x, y)
}

// listScenarios prints those that are built in.
func listScenarios(out *os.File) error {
	s := screenOf(out)
	width := max(cmp.Or(s.width, 80), 40)
	var b strings.Builder
	for name, about := range sim.Presets {
		b.WriteString(strings.Replace(hanging(fmt.Sprintf("%-10s", name), about, width), name, s.paint("1", name), 1))
	}
	b.WriteString("\nTry 'tideover sim outage'. To write one of your own, begin with\n'tideover sim --show outage > mine.yaml'.\n")
	_, err := out.WriteString(b.String())
	return err
}

// file returns the scenario and the policies that are to go through it.
func (o *simOptions) file(name string) (simulate.File, error) {
	f, err := scenario(name)
	if err != nil {
		return f, err
	}
	if _, builtIn := sim.Preset(name); builtIn && len(o.policies) > 0 {
		f.Policies = nil // they were only there to learn from
	}
	var errs []error
	for _, text := range o.policies {
		c, err := simulate.ParsePolicy(text)
		if err == nil && slices.ContainsFunc(f.Policies, func(p sim.Contestant) bool { return p.Name == c.Name }) {
			err = fmt.Errorf("there is a policy %q already; give this one another name, as in NAME=POLICY", c.Name)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("--policy: %w", err))
			continue
		}
		f.Policies = append(f.Policies, c)
	}
	if len(errs) > 0 {
		return f, &codedError{errors.Join(errs...), codeImpossible}
	}
	if len(f.Policies) == 0 {
		f.Policies = simulate.Policies(f.Scenario)
	}
	if err := sim.Check(f.Scenario, f.Policies); err != nil {
		return f, &codedError{f.Explain(err), codeImpossible}
	}
	return f, nil
}

// scenario returns the one that is built in, or that in a file.
func scenario(name string) (simulate.File, error) {
	if f, ok := simulate.Preset(name); ok {
		return f, nil
	}
	f, err := simulate.Read(name)
	switch {
	case errors.Is(err, os.ErrNotExist):
		var names []string
		for n := range sim.Presets {
			names = append(names, n)
		}
		return f, fmt.Errorf("there is no scenario %q, nor such a file; there are %s", name, strings.Join(names, ", "))
	case simulate.Impossible(err):
		return f, &codedError{err, codeImpossible}
	}
	return f, err
}
