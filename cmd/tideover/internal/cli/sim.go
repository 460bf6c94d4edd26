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
	"github.com/tideover/tideover/internal/textfmt"
	"github.com/tideover/tideover/sim"
)

// simOptions holds the flags of sim.
type simOptions struct {
	policies          []string
	seed              uint64
	seeds, workers    int
	show, ascii, json bool
	svg, html         string
}

const simLong = `Compares policies in a simulated failure and shows how the calls and the service
fare with each. The code that decides about retries is the same as in real use;
only time, clients and services are simulated.

SCENARIO is a built-in one or a YAML file. --show prints a built-in one as a
starting point for a file; docs/sim.md lists all keys. Without SCENARIO, the
built-in ones are listed:
SCENARIOS
--policy is a policy in its text form or the name of a preset, see "tideover help
policy". Write NAME=POLICY to give it a name. The policies of a file come first.
Without any policy, a few examples are used.

Each policy runs once per seed, and all policies get the same arrivals, service
times and failures. Numbers are means over the seeds; ± is half of the 95 %
interval. A value is marked as the best if its difference to each other policy,
seed by seed, is significant. The same seeds give the same output, byte for
byte, with any number of workers, on every machine with the same type of
processor.

With --json the output is one object; times are in seconds. It has scenario,
seed, seeds, bucket_s, events, and results, one for each policy, with name,
policy, the measures (success, goodput, amplification, recovery_s ...: mean,
half of the interval, and the number of seeds with a value), never_recovers,
versus (the difference to the first policy), series (one value per bucket) and
cdf.`

const simExample = `  tideover sim                                 list the scenarios
  tideover sim outage                          with example policies
  tideover sim metastable --policy http --policy "http budget=ratio(0.1)"
  tideover sim herd --policy fast="fixed(10ms) attempts=5" --policy default
  tideover sim brownout --html brownout.html   an HTML page to share
  tideover sim --show outage > mine.yaml       a file to start from
  tideover sim mine.yaml --seeds 20
  tideover sim outage --json | jq '.results[] | {name, success: .success.mean}'`

func newSim(io Streams) *cobra.Command {
	var o simOptions
	cmd := &cobra.Command{
		Use:               "sim [flags] [SCENARIO]",
		Short:             "Compare policies in a simulated failure",
		Long:              strings.Replace(simLong, "SCENARIOS\n", hangingList(sim.Presets, "  %-12s"), 1),
		Example:           simExample,
		Args:              oneScenario,
		ValidArgsFunction: single(completeNames(sim.Presets, cobra.ShellCompDirectiveDefault)),
		RunE:              func(cmd *cobra.Command, args []string) error { return runSim(cmd, io, o, args) },
	}
	f := orderedFlags(cmd)
	f.StringArrayVarP(&o.policies, "policy", "p", nil, "`POLICY` to compare, or NAME=POLICY; can be repeated")
	f.Uint64Var(&o.seed, "seed", 0, "first seed `N`; later runs use the following numbers")
	f.IntVar(&o.seeds, "seeds", sim.DefaultSeeds, "run each policy `N` times, each with its own seed")
	f.IntVar(&o.workers, "workers", 0, "run `N` simulations at once; 0 means one per processor")
	f.BoolVar(&o.ascii, "ascii", false, "use ASCII characters only (default if the locale is not UTF-8)")
	f.StringVar(&o.html, "html", "", "also write an HTML page with all charts to `FILE`; it is self-contained")
	f.StringVar(&o.svg, "svg", "", "also write a chart to `FILE`; - writes it to standard output instead of the table")
	f.BoolVarP(&o.json, "json", "j", false, "print JSON")
	f.BoolVar(&o.show, "show", false, "print SCENARIO with its policies as YAML, and run nothing")
	_ = cmd.MarkFlagFilename("svg", "svg")
	_ = cmd.MarkFlagFilename("html", "html", "htm")
	_ = cmd.RegisterFlagCompletionFunc("policy", func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return completePresets(nil, o.policies, "")
	})
	completeNoFiles(cmd, "seed", "seeds", "workers")
	return exits{
		CodeOwn:    "tideover's own error: a bad flag or policy, a file that can't be read or written, an impossible scenario, or a run that needs more memory than is allowed",
		codeSignal: "ended by signal n (130: Ctrl-C); nothing was written",
	}.declare(cmd)
}

// oneScenario accepts at most one argument. If a second argument is a policy, the error suggests
// --policy.
func oneScenario(cmd *cobra.Command, args []string) error {
	if len(args) > 1 {
		if _, err := simulate.ParsePolicy(args[1]); err == nil {
			return fmt.Errorf("sim: %q is a policy: write --policy before it", args[1])
		}
	}
	return atMostOne("scenario")(cmd, args)
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

// check returns an error for flags with a wrong value, without effect, or in contradiction to each
// other.
func (o *simOptions) check(cmd *cobra.Command, args []string) error {
	given := cmd.Flags().Changed
	if o.seeds < 1 || o.seeds > sim.MaxSeeds {
		return fmt.Errorf("--seeds: %d is not between 1 and %d", o.seeds, sim.MaxSeeds)
	}
	if err := (sim.Options{Workers: o.workers}).Validate(); err != nil {
		return fmt.Errorf("--%w", err)
	}
	for _, name := range []string{"svg", "html"} {
		if err := checkTarget(name, cmd.Flag(name).Value.String(), args); err != nil {
			return err
		}
	}
	if o.html == "-" {
		return errors.New("--html: standard output is not supported: name a file")
	}
	if err := checkFormats(o.json, o.ascii, o.svg); err != nil {
		return err
	}
	for _, name := range []string{"policy", "seed", "seeds", "workers", "html", "svg", "json", "show"} {
		if given(name) && len(args) == 0 {
			return fmt.Errorf("--%s needs a scenario, such as tideover sim outage", name)
		}
		if given(name) && o.show && name != "show" && name != "policy" {
			return fmt.Errorf("--%s has no effect: --show runs nothing", name)
		}
	}
	return nil
}

// checkTarget returns an error if the file of a flag can't be written, or is the scenario.
func checkTarget(name, file string, args []string) error {
	if _, err := os.Stat(filepath.Dir(file)); err != nil { // fail now, not after a long simulation
		return fmt.Errorf("--%s: %w", name, err)
	}
	if len(args) > 0 && sameFile(file, args[0]) {
		return fmt.Errorf("--%s: %s is the scenario file: name another file", name, file)
	}
	return nil
}

// sameFile reports whether both paths name the same existing file.
func sameFile(a, b string) bool {
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	return errX == nil && errY == nil && os.SameFile(x, y)
}

// listScenarios prints the built-in scenarios.
func listScenarios(out *os.File) error {
	s := screenOf(out)
	width := max(cmp.Or(s.width, 80), 40)
	var b strings.Builder
	for name, about := range sim.Presets {
		b.WriteString(strings.Replace(hanging(fmt.Sprintf("%-10s", name), about, width), name, s.paint("1", name), 1))
	}
	b.WriteString("\nTry 'tideover sim outage'. To write your own, start with\n'tideover sim --show outage > mine.yaml'.\n")
	_, err := out.WriteString(b.String())
	return err
}

// file returns the scenario with this name, and the policies to compare.
func (o *simOptions) file(name string) (simulate.File, error) {
	f, err := scenario(name)
	if err != nil {
		return f, err
	}
	if _, builtIn := sim.Preset(name); builtIn && len(o.policies) > 0 {
		f.Policies = nil // drop the example policies
	}
	var errs flagErrors
	for _, text := range o.policies {
		c, err := simulate.ParsePolicy(text)
		if err == nil && slices.ContainsFunc(f.Policies, func(p sim.Contestant) bool { return p.Name == c.Name }) {
			err = fmt.Errorf("policy %q is given twice: give one of them another name with NAME=POLICY", c.Name)
		}
		if errs.add("policy", err); err == nil {
			f.Policies = append(f.Policies, c)
		}
	}
	if len(errs) > 0 {
		return f, errors.Join(errs...)
	}
	if len(f.Policies) == 0 {
		f.Policies = simulate.Policies(f.Scenario)
	}
	if err := sim.Check(f.Scenario, f.Policies); err != nil {
		return f, &codedError{f.Explain(err), CodeOwn}
	}
	return f, nil
}

// scenario returns the built-in scenario with this name, or reads the scenario from the file with
// this name.
func scenario(name string) (simulate.File, error) {
	if f, ok := simulate.Preset(name); ok {
		return f, nil
	}
	f, err := simulate.Read(name)
	switch {
	case errors.Is(err, os.ErrNotExist) && filepath.Ext(name) == "" && filepath.Base(name) == name:
		return f, unknownScenario(name)
	case errors.Is(err, os.ErrNotExist):
		return f, fmt.Errorf("scenario %s: no such file: check the path, or name a built-in scenario: 'tideover sim' lists them", name)
	case simulate.Impossible(err):
		return f, &codedError{err, CodeOwn}
	}
	return f, err
}

// unknownScenario returns the error for a name that is neither that of a built-in scenario nor that
// of a file.
func unknownScenario(name string) error {
	var known []string
	for preset := range sim.Presets {
		known = append(known, preset)
	}
	err := unknownWord("scenario", name, known)
	if textfmt.Nearest(name, known) == "" {
		err = fmt.Errorf("%w; or name a file", err)
	}
	return err
}
