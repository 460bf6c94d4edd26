package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tideover/tideover/cmd/tideover/internal/exitcode"
	"github.com/tideover/tideover/internal/oneline"
	"github.com/tideover/tideover/retry"
)

// execOptions is what the flags of exec say.
type execOptions struct {
	policyText     string
	attempts       string
	attemptTimeout string
	totalTimeout   string
	seed           uint64
	seeded         bool

	retryOn       exitcode.Flag
	stopOn        exitcode.Flag
	throttleOn    exitcode.Flag
	retryStderr   pattern
	retryTimeouts bool
	untilOutput   pattern

	buffer      bool
	grace       duration
	stdinLimit  size
	giveUpCode  int
	giveUpGiven bool

	events      string
	dryRun      bool
	quiet       bool
	noCountdown bool
	notify      []string
	name        string
	config      string

	policy retry.Policy // of all the flags above
}

// execRefuses are the keys that mean nothing to a command: it states no delays
// as a server does, and two copies of it at once are rarely wanted.
var execRefuses = []string{"server-wait", "server-slack", "reset-after", "hedge"}

// tempFail is the exit code by which programs say "try again later".
const tempFail = 75

const execDefaultPolicy = "exponential(1s..30s) jitter=50% attempts=5"

const execLong = `Runs a command, and runs it again if it fails, until it succeeds or the policy
gives up.

The command is run as it is, without a shell. It gets the terminal, the signals
and the input that it would have got without us, and its output is not touched.
Piped input is kept and given whole to every attempt. When an attempt has failed,
timed out or was interrupted, whatever it left running is ended, first with TERM
and after a grace with KILL, before the next one starts. A command that succeeds
may leave a daemon behind.

The command sees TIDEOVER_ATTEMPT (1, 2, ...), TIDEOVER_ATTEMPTS (a number or
"unlimited") and TIDEOVER_LAST_EXIT (the exit code of the attempt before; empty
in the first).

A policy is a family of delays or the name of a preset, followed by keys:
  exponential(1s..30s) jitter=50% attempts=5
  fixed(2s) attempts=unlimited total-timeout=10m
  http attempts=6
"tideover help policy" has all of it. Presets: PRESETS.

Exit codes:
  0        the command succeeded
  N        the command's own code, in its last attempt
  1        it exited with 0, but --until-output never matched
  124      it was ended by --attempt-timeout or --total-timeout, or the total
           timeout left no room for another attempt
  125      an error of ours: a bad flag or policy, and nothing was started; or
           output that goes through us could not be written
  126      the command can't be executed (not retried)
  127      the command was not found (not retried)
  128+n    the command died of signal n, or signal n told us to end
           (then we die of it too)
  --give-up-code replaces the code when the attempts, the time or the budget are
  used up.

Piped input is read for the attempts to come even if the command reads none. In
a "while read" loop, give the command its own: tideover exec -- ... </dev/null`

const execExample = `  # five attempts, 1 s to 30 s apart
  tideover exec -- curl -fsS https://example.com/health

  # a flaky test, three times, each at most two minutes
  tideover exec --attempts 3 --attempt-timeout 2m -- go test ./...

  # wait for a service to come up, for at most a minute
  tideover exec --policy 'fixed(1s) attempts=unlimited total-timeout=1m' -- nc -z db 5432

  # retry only what is worth it, and pass on only the output that counts
  tideover exec --retry-on 75,100-110 --stop-on 2 --buffer -- ./fetch > result.json

  # until a job reports that it is done
  tideover exec --until-output '^status: done$' -- ./job status

  # what would happen
  tideover exec --policy http --dry-run`

func newExec(io Streams) *cobra.Command {
	o := &execOptions{grace: duration(10 * time.Second), stdinLimit: 64 << 20}
	cmd := &cobra.Command{
		Use:                   "exec [flags] [--] command [argument...]",
		Short:                 "Run a command through failure",
		Long:                  withPresets(execLong),
		Example:               execExample,
		DisableFlagsInUseLine: true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 && !o.dryRun {
				return errors.New("exec: no command")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			o.seeded = cmd.Flags().Changed("seed")
			o.giveUpGiven = cmd.Flags().Changed("give-up-code")
			if err := o.resolve(); err != nil {
				return quoted(err, o.policyText, args)
			}
			if o.dryRun {
				return printSchedule(io, o)
			}
			return runExec(io, o, args)
		},
	}
	// What follows the command's name is the command's, with or without "--".
	cmd.Flags().SetInterspersed(false)
	execFlags(cmd, o)
	return cmd
}

func execFlags(cmd *cobra.Command, o *execOptions) {
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVarP(&o.policyText, "policy", "p", execDefaultPolicy, "`policy` in text form, or a preset with keys")
	f.StringVarP(&o.attempts, "attempts", "n", "", "`number` of attempts in all, or unlimited; overrides the policy")
	f.StringVar(&o.attemptTimeout, "attempt-timeout", "", "`duration` after which an attempt gets TERM, and KILL after --grace; overrides the policy")
	f.StringVar(&o.totalTimeout, "total-timeout", "", "`duration` after which everything ends: TERM, and KILL after --grace; overrides the policy")
	f.Uint64Var(&o.seed, "seed", 0, "`number` that makes the jitter reproducible")
	group(f, "Policy", "policy", "attempts", "attempt-timeout", "total-timeout", "seed")

	f.Var(&o.retryOn, "retry-on", "retry only these exit codes, such as 1,5-9; signal n counts as 128+n")
	f.Var(&o.stopOn, "stop-on", "never retry these exit codes, whatever --retry-on says")
	f.Var(&o.retryStderr, "retry-stderr", "retry only if a line of stderr matches, which makes stderr a pipe")
	f.BoolVar(&o.retryTimeouts, "retry-timeouts", true, "retry attempts that timed out, whatever the other filters say")
	f.Var(&o.untilOutput, "until-output", "succeed only when a line of stdout matches too, which makes stdout a pipe")
	f.Var(&o.throttleOn, "throttle-on", "exit codes that ask for less, after which waits start from the policy's throttle-base; none for none (default 75)")
	group(f, "What to retry", "retry-on", "stop-on", "retry-stderr", "retry-timeouts", "until-output", "throttle-on")

	f.BoolVar(&o.buffer, "buffer", false, "pass on only the stdout of the attempt that succeeds")
	f.Var(&o.grace, "grace", "how long an attempt may take to end after TERM, before KILL")
	f.Var(&o.stdinLimit, "stdin-limit", "how much piped input to keep for retries; longer input gets one attempt")
	f.IntVar(&o.giveUpCode, "give-up-code", 0, "exit `code` when the attempts, the time or the budget are used up")
	group(f, "How to run", "buffer", "grace", "stdin-limit", "give-up-code")

	f.StringVar(&o.events, "events", "", "append events as JSON lines to a `file`, or to the descriptor with that number: 1 is standard output")
	f.StringArrayVar(&o.notify, "notify", nil, "`name` of a notifier of the configuration that is told how it goes; may be given again")
	f.StringVar(&o.name, "name", "", "`name` of the command in messages and events (default: that of its file)")
	f.StringVarP(&o.config, "config", "c", "", "the configuration `file` that has the notifiers")
	f.BoolVar(&o.dryRun, "dry-run", false, "print the schedule and start nothing")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "say nothing but errors of our own")
	f.BoolVar(&o.noCountdown, "no-countdown", false, "no countdown on a terminal")
	group(f, "What to tell", "events", "notify", "name", "config", "dry-run", "quiet", "no-countdown")
	groupedHelp(cmd, "Policy", "What to retry", "How to run", "What to tell")
	completeExec(cmd)
}

// resolve puts the policy together and checks what no single flag can.
func (o *execOptions) resolve() error {
	p, err := retry.Parse(o.policyText)
	if err != nil {
		return fmt.Errorf("--policy: %w", err)
	}
	for _, f := range []struct{ key, value string }{
		{"attempts", o.attempts},
		{"attempt-timeout", o.attemptTimeout},
		{"total-timeout", o.totalTimeout},
	} {
		if f.value == "" {
			continue
		}
		if p, err = p.With(f.key, f.value); err != nil {
			return fmt.Errorf("--%w", err)
		}
	}
	if p.Attempts == 0 {
		return fmt.Errorf("--policy: %q has no attempts, so that nothing would be retried: add attempts=N or attempts=unlimited", o.policyText)
	}
	if err := errors.Join(p.Validate(), p.Refuse("exec", execRefuses...)); err != nil {
		return fmt.Errorf("--policy: %s", oneline.Error(err))
	}
	if o.giveUpCode < 0 || o.giveUpCode > 255 {
		return fmt.Errorf("--give-up-code: %d is not between 0 and 255", o.giveUpCode)
	}
	if o.retryOn.Has(0) && o.untilOutput.Regexp == nil {
		return errors.New("--retry-on: 0 is success, which is not retried; --until-output says what else success needs")
	}
	if !o.throttleOn.Given() {
		o.throttleOn.Add(tempFail)
	}
	o.policy = p
	return nil
}

// quoted adds to an error about a policy that its keys seem to have become the
// command, because the quotes were forgotten.
func quoted(err error, policy string, args []string) error {
	if len(args) == 0 {
		return err
	}
	if key, _, ok := strings.Cut(args[0], "="); ok && slices.Contains(retry.Keys(), key) {
		return fmt.Errorf("%w; a policy is one argument, in quotes: %q", err, policy+" "+args[0])
	}
	return err
}

// withPresets fills in the names of the presets.
func withPresets(text string) string {
	return strings.Replace(text, "PRESETS", wrap(presetNames(), 68, "  "), 1)
}

func presetNames() string {
	var names []string
	for name := range retry.Presets {
		names = append(names, name)
	}
	return strings.Join(names, ", ")
}

func completeExec(cmd *cobra.Command) {
	policies := []cobra.Completion{"exponential(", "fixed(", "linear(", "decorrelated("}
	for name, use := range retry.Presets {
		policies = append(policies, cobra.CompletionWithDesc(name, use))
	}
	fixed := func(values ...cobra.Completion) cobra.CompletionFunc {
		return cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)
	}
	for flag, complete := range map[string]cobra.CompletionFunc{
		"policy":       fixed(policies...),
		"attempts":     fixed("3", "5", "10", "unlimited"),
		"retry-on":     fixed(),
		"stop-on":      fixed(),
		"throttle-on":  fixed(),
		"retry-stderr": fixed(),
		"until-output": fixed(),
		"grace":        fixed("0s", "5s", "10s", "30s"),
		"stdin-limit":  fixed("64MiB", "1GiB"),
	} {
		if err := cmd.RegisterFlagCompletionFunc(flag, complete); err != nil {
			panic(err) // the flag does not exist, which every test would see
		}
	}
}

// wrap breaks a text into lines of at most width characters.
func wrap(text string, width int, indent string) string {
	var b strings.Builder
	column := 0
	for i, word := range strings.Fields(text) {
		switch {
		case i == 0:
		case column+len(word) >= width:
			b.WriteString("\n" + indent)
			column = 0
		default:
			b.WriteByte(' ')
		}
		b.WriteString(word)
		column += len(word) + 1
	}
	return b.String()
}
