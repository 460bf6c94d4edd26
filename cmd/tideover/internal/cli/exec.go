package cli

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tideover/tideover/cmd/tideover/internal/chart"
	"github.com/tideover/tideover/cmd/tideover/internal/exitcode"
	"github.com/tideover/tideover/internal/oneline"
	"github.com/tideover/tideover/retry"
)

// execOptions holds the flags of exec.
type execOptions struct {
	policyText, attempts         string
	attemptTimeout, totalTimeout string
	seed                         uint64
	seeded                       bool

	retryOn, stopOn, throttleOn exitcode.Flag
	retryStderr, untilOutput    pattern
	retryTimeouts               bool

	buffer      bool
	holdOutput  bool
	grace       duration
	stdinLimit  size
	giveUpCode  int
	giveUpGiven bool

	events, name, config       string
	dryRun, quiet, noCountdown bool
	json                       bool
	notify                     []string

	policy retry.Policy // built from the flags by resolve
}

// execRejectedKeys are policy keys that exec does not support. A command can't state a delay, as a
// server can with Retry-After, and running two copies of a command at once is rarely wanted.
var execRejectedKeys = []string{"server-wait", "server-slack", "reset-after", "hedge"}

const execDefaultPolicy = "exponential(1s..30s) jitter=50% attempts=5"

const execLong = `Runs a command and retries it until it succeeds or the policy gives up.

The command runs as it is, without a shell. It gets the terminal, the signals and
the input that it would have got without tideover, and its output is not changed.
Piped input is stored and replayed for every attempt. After an attempt that failed,
timed out or was interrupted, all processes that it left running are ended before
the next attempt: with TERM, and with KILL after a grace period. A command that
succeeds may leave a daemon behind.

The command sees these variables:
  TIDEOVER_ATTEMPT    number of the attempt: 1, 2, ...
  TIDEOVER_ATTEMPTS   number of attempts allowed, or "unlimited"
  TIDEOVER_LAST_EXIT  exit code of the previous attempt; empty in the first

A policy is a family of delays or the name of a preset, followed by keys:
  exponential(1s..30s) jitter=50% attempts=5
  fixed(2s) attempts=unlimited total-timeout=10m
  http attempts=6
"tideover help policy" explains all keys. Presets: PRESETS.

--give-up-code replaces the exit code if the attempts, the time or the budget are used
up.

Piped input is read for later attempts even if the command does not read it. In a
"while read" loop, redirect the input: tideover exec -- ... </dev/null`

const execExample = `  # five attempts, 1 s to 30 s apart
  tideover exec -- curl -fsS https://example.com/health

  # a flaky test: three attempts of at most two minutes
  tideover exec --attempts 3 --attempt-timeout 2m -- go test ./...

  # wait for a service to start, for at most a minute
  tideover exec --policy 'fixed(1s) attempts=unlimited total-timeout=1m' -- nc -z db 5432

  # retry only some exit codes, and print only the output of the successful attempt
  tideover exec --retry-on 75,100-110 --stop-on 2 --buffer -- ./fetch > result.json

  # for cron: print nothing unless all attempts fail
  tideover exec --hold-output -- /usr/local/bin/backup

  # poll until a job reports that it is done
  tideover exec --until-output '^status: done$' -- ./job status

  # print the delays without running anything
  tideover exec --policy http --dry-run`

func newExec(io Streams) *cobra.Command {
	o := &execOptions{grace: duration(10 * time.Second), stdinLimit: 64 << 20}
	cmd := &cobra.Command{
		Use:     "exec [flags] [--] command [argument...]",
		Short:   "Run a command and retry it until it succeeds",
		Long:    withPresets(execLong),
		Example: execExample,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 && !o.dryRun {
				return errors.New("exec: no command given: write it after the flags")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			o.seeded = cmd.Flags().Changed("seed")
			o.giveUpGiven = cmd.Flags().Changed("give-up-code")
			if err := o.resolve(); err != nil {
				return hintMissingPolicyQuotes(err, o.policyText, args)
			}
			if o.dryRun {
				return printSchedule(io, o)
			}
			return runExec(io, o, args)
		},
	}
	// Flags after the name of the command belong to the command, with or without "--".
	cmd.Flags().SetInterspersed(false)
	execFlags(cmd, o)
	return execExits.declare(cmd)
}

var execExits = exits{
	codeSuccess:       "the command succeeded",
	codeOfCommand:     "the exit code of the last attempt",
	CodeFailed:        "the command exited with 0, but --until-output never matched",
	codeTimeout:       "ended by --attempt-timeout or --total-timeout, or --total-timeout left no time for another attempt",
	CodeOwn:           "tideover's own error: a bad flag or policy, and nothing was started; or the output could not be written",
	codeNotExecutable: "the command can't be executed (not retried)",
	codeNotFound:      "the command was not found (not retried)",
	codeSignal:        "the command was killed by signal n, or tideover was ended by signal n (tideover then also dies of that signal)",
}

func execFlags(cmd *cobra.Command, o *execOptions) {
	f := orderedFlags(cmd)
	f.StringVarP(&o.policyText, "policy", "p", execDefaultPolicy, "`policy` in text form, or a preset with keys")
	f.StringVarP(&o.attempts, "attempts", "n", "", "total `number` of attempts, or unlimited; overrides the policy")
	f.StringVar(&o.attemptTimeout, "attempt-timeout", "", "`duration` after which an attempt gets TERM, and KILL after --grace; overrides the policy")
	f.StringVar(&o.totalTimeout, "total-timeout", "", "`duration` after which the whole call ends: TERM, and KILL after --grace; overrides the policy")
	f.Uint64Var(&o.seed, "seed", 0, "`number` that makes the jitter reproducible")
	groupFlags(f, "Policy", "policy", "attempts", "attempt-timeout", "total-timeout", "seed")

	f.Var(&o.retryOn, "retry-on", "retry only these exit codes, such as 1,5-9; signal n counts as 128+n")
	f.Var(&o.stopOn, "stop-on", "never retry these exit codes; takes precedence over --retry-on")
	f.Var(&o.retryStderr, "retry-stderr", "retry only if a line of stderr matches; stderr becomes a pipe")
	f.BoolVar(&o.retryTimeouts, "retry-timeouts", true, "retry attempts that timed out; takes precedence over the other filters")
	f.Var(&o.untilOutput, "until-output", "succeed only if a line of stdout matches, too; stdout becomes a pipe")
	f.Var(&o.throttleOn, "throttle-on", "exit codes that mean throttled: the next delay starts from the policy's throttle-base; none for no code (default 75)")
	groupFlags(f, "What to retry", "retry-on", "stop-on", "retry-stderr", "retry-timeouts", "until-output", "throttle-on")

	f.BoolVar(&o.buffer, "buffer", false, "print only the stdout of the attempt that succeeds")
	f.BoolVar(&o.holdOutput, "hold-output", false, "print the stdout and stderr of all attempts when it gives up, and nothing if it succeeds; they become pipes to a temporary file")
	f.Var(&o.grace, "grace", "time between TERM and KILL")
	f.Var(&o.stdinLimit, "stdin-limit", "how much piped input to store for retries; longer input gets one attempt")
	f.IntVar(&o.giveUpCode, "give-up-code", 0, "exit `code` if the attempts, the time or the budget are used up")
	groupFlags(f, "Execution", "buffer", "hold-output", "grace", "stdin-limit", "give-up-code")

	f.StringVar(&o.events, "events", "", "append events as JSON lines to a `file`, or to a file descriptor by its number: 1 is standard output")
	f.StringArrayVar(&o.notify, "notify", nil, "`name` of a notifier of the configuration that gets messages about the command; can be repeated")
	f.StringVar(&o.name, "name", "", "`name` of the command in messages and events (default: the name of its file)")
	f.StringVarP(&o.config, "config", "c", "", "the configuration `file` that defines the notifiers")
	f.BoolVar(&o.dryRun, "dry-run", false, "print the delays and start nothing")
	f.BoolVarP(&o.json, "json", "j", false, "with --dry-run, print the delays as JSON, as 'tideover plan --json' does")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "print nothing but errors: one line if it gives up")
	f.BoolVar(&o.noCountdown, "no-countdown", false, "do not show a countdown on a terminal")
	groupFlags(f, "Reporting", "events", "notify", "name", "config", "dry-run", "json", "quiet", "no-countdown")
	setGroupedHelp(cmd, "Policy", "What to retry", "Execution", "Reporting")
	completeExec(cmd)
}

// resolve builds the policy from the flags and checks flags that depend on each other.
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
		if f.value != "" {
			if p, err = p.With(f.key, f.value); err != nil {
				return fmt.Errorf("--%w", err)
			}
		}
	}
	if p.Attempts == 0 {
		return fmt.Errorf("--policy: %q does not set attempts, so nothing would be retried: add attempts=N or attempts=unlimited", o.policyText)
	}
	if err := errors.Join(p.Validate(), p.Refuse("exec", execRejectedKeys...)); err != nil {
		return fmt.Errorf("--policy: %s", oneline.Error(err))
	}
	if !o.throttleOn.Given() {
		o.throttleOn.Add(exitcode.TempFail)
	}
	o.policy = p
	return o.check()
}

// check returns an error for flags with a wrong value, and for flags that contradict each other.
func (o *execOptions) check() error {
	if o.giveUpCode < 0 || o.giveUpCode > 255 {
		return fmt.Errorf("--give-up-code: %d is not between 0 and 255", o.giveUpCode)
	}
	if o.retryOn.Has(0) && o.untilOutput.Regexp == nil {
		return errors.New("--retry-on: exit code 0 is success and is not retried: to require more for success, use --until-output")
	}
	if o.buffer && o.holdOutput {
		return errors.New("--buffer and --hold-output can't be used together: give one of them")
	}
	if o.json && !o.dryRun {
		return errors.New("--json needs --dry-run: to get events as JSON lines, use --events FILE")
	}
	return nil
}

// hintMissingPolicyQuotes adds a hint to an error about a policy if the policy was probably not
// quoted: the first argument, which should be the command, is then a key of the policy.
func hintMissingPolicyQuotes(err error, policy string, args []string) error {
	if len(args) == 0 {
		return err
	}
	if key, _, ok := strings.Cut(args[0], "="); ok && slices.Contains(retry.Keys(), key) {
		return fmt.Errorf("%w; a policy is one argument, so put it in quotes: %q", err, policy+" "+args[0])
	}
	return err
}

// withPresets replaces PRESETS in a help text by the names of the presets.
func withPresets(text string) string {
	lines := strings.TrimSpace(chart.Wrap(joinNames(retry.Presets), 67, ""))
	return strings.Replace(text, "PRESETS", strings.ReplaceAll(lines, "\n", "\n  "), 1)
}

// joinNames returns the names with commas between them.
func joinNames(all iter.Seq2[string, string]) string {
	var names []string
	for name := range all {
		names = append(names, name)
	}
	return strings.Join(names, ", ")
}

func completeExec(cmd *cobra.Command) {
	completeNoFiles(cmd, "retry-on", "stop-on", "throttle-on", "retry-stderr", "until-output")
	policies := []cobra.Completion{"exponential(", "fixed(", "linear(", "decorrelated("}
	for name, use := range retry.Presets {
		policies = append(policies, cobra.CompletionWithDesc(name, use))
	}
	completeFixed(cmd, "policy", policies...)
	completeFixed(cmd, "attempts", "3", "5", "10", "unlimited")
	completeFixed(cmd, "grace", "0s", "5s", "10s", "30s")
	completeFixed(cmd, "stdin-limit", "64MiB", "1GiB")
}
