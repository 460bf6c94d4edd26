package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tideover/tideover/cmd/tideover/internal/client"
	"github.com/tideover/tideover/cmd/tideover/internal/process"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/console/control"
	"github.com/tideover/tideover/internal/textfmt"
)

// bulkOptions holds the flags of commands that change one run or many.
type bulkOptions struct {
	remote
	filterFlags
	yes    bool
	latest bool // use the current definition of the workflow
}

type retryOptions struct {
	bulkOptions
	dead        bool
	from, input singleFlag
}

const retryLong = `Retries dead runs. Steps that failed get a new set of attempts; steps that succeeded
keep their results.

A run keeps the definition of its workflow that it was started with. --latest uses
the current definition instead, for example after you have fixed a mistake in the
file. A new run replaces the dead one and keeps the results of the steps that are
unchanged. Steps that failed, are new or have changed run again, and so do all steps
after them. If a step that succeeded was renamed or removed, the error names it, and
--from STEP must name the step of the current definition to begin with.

--from starts a finished run again from a step and keeps the results of the steps
before it. --input starts it again with another input, merged over the default input
of the file. --latest, --from and --input print the id of the new run. The new run
replaces a dead one, which then has the state 'replaced'. A run that succeeded or
was canceled stays as it is.

--dead retries all dead runs that match the other flags. Runs that 'tideover dead'
does not list are included only with --internal. On a terminal you are asked for
confirmation; in a script this needs --yes.`

const retryExample = `  tideover retry 01k9v3q0h2f8
  tideover retry order-4711 order-4712
  tideover retry --dead --workflow order --error-like 'connection refused' --yes
  tideover retry --latest order-4711
  tideover retry --dead --workflow order --latest --yes
  tideover retry --latest --from pay order-4711
  tideover retry --from ship order-4711
  tideover retry --input '{"id": 4711, "express": false}' order-4711`

func newRetry(io Streams) *cobra.Command {
	o := &retryOptions{bulkOptions: bulkOptions{remote: newRemote(io)}}
	cmd := &cobra.Command{
		Use:               "retry [flags] RUN...\n  tideover retry --dead [flags]",
		Short:             "Retry dead runs",
		Long:              retryLong,
		Example:           retryExample,
		ValidArgsFunction: completeRuns(&o.remote, "dead"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(cmd, args); err != nil {
				return err
			}
			return o.withClient(cmd, func(ctx context.Context, c *client.Client) error { return o.execute(ctx, c, args) })
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.dead, "dead", false, "retry all dead runs that match the flags below")
	o.register(cmd, "workflow", "error-like", "search", "since", "until", "min-attempts", "tag", "internal")
	f.BoolVarP(&o.yes, "yes", "y", false, "do not ask for confirmation")
	f.BoolVar(&o.latest, "latest", false, "continue with the current definition of the workflow")
	o.from.kind, o.input.kind = "step", "JSON"
	f.Var(&o.from, "from", "start again from this step")
	f.Var(&o.input, "input", "start again with another input: JSON, @file, or - for standard input")
	return o.command(cmd, exitsRuns)
}

// filterFlagNames are the flags that select runs.
var filterFlagNames = []string{"state", "workflow", "error-like", "search", "since", "until", "min-attempts", "tag"}

// firstFilterFlag returns the name of the first filter flag that is given; empty if none is.
func firstFilterFlag(cmd *cobra.Command) string {
	for _, name := range filterFlagNames {
		if cmd.Flags().Changed(name) {
			return name
		}
	}
	return ""
}

// rejectEmptyFilters returns an error if a filter flag is given without a value. An unset variable
// in a script would otherwise select all runs.
func rejectEmptyFilters(cmd *cobra.Command) error {
	for _, name := range filterFlagNames {
		if f := cmd.Flags().Lookup(name); f != nil && f.Changed && slices.Contains([]string{"", "[]", "0"}, strings.TrimSpace(f.Value.String())) {
			return fmt.Errorf("--%s: the value %q would select all runs: give another one, or leave out the flag", name, f.Value.String())
		}
	}
	return nil
}

// check returns an error if flags and arguments contradict each other.
func (o *retryOptions) check(cmd *cobra.Command, args []string) error {
	name := firstFilterFlag(cmd)
	switch {
	case o.dead && len(args) > 0:
		return errors.New("--dead and a run can't be used together: give one of them")
	case !o.dead && len(args) == 0:
		return errors.New("retry: no run given: name one, or use --dead")
	case !o.dead && name != "":
		return fmt.Errorf("--%s needs --dead", name)
	case o.from.given && o.input.given:
		return errors.New("--from and --input can't be used together: give one of them")
	case (o.from.given || o.input.given) && len(args) != 1:
		return errors.New("--from and --input need exactly one run")
	}
	return rejectEmptyFilters(cmd)
}

func (o *retryOptions) execute(ctx context.Context, c *client.Client, args []string) error {
	if o.dead {
		f, err := o.filter()
		if err != nil {
			return err
		}
		f.States = []string{"dead"}
		return o.changeMatching(ctx, c, "retry", f, func(ctx context.Context, b control.Bulk) (control.Done, error) {
			b.Latest = o.latest
			return c.RetryMany(ctx, b)
		})
	}
	input, err := readInput(o.input.text, o.io.In)
	if err != nil {
		return fmt.Errorf("--input: %w", err)
	}
	switch {
	case o.latest:
		latest := control.Latest{From: o.from.text, Input: input}
		return o.forEachRun(args, func(id string) error { return o.printNewRun(c.RetryLatest(ctx, id, latest)) })
	case o.from.given:
		return o.printNewRun(c.Rerun(ctx, args[0], o.from.text))
	case o.input.given:
		return o.printNewRun(c.Replay(ctx, args[0], input))
	}
	return o.changeEach(ctx, args, func(ctx context.Context, id string) (control.Outcome, error) {
		out, err := c.Retry(ctx, id)
		if p, ok := errors.AsType[*control.Error](err); ok && p.Code == control.CodeState && p.Hint == "" {
			if run, err := c.Get(ctx, id); err == nil && run.State == engine.StateSucceeded {
				p.Hint = "to start it again, use --from STEP or --input JSON"
			}
		}
		return out, err
	})
}

// printNewRun prints the id of a new run. If err is not nil, it prints nothing and returns err.
func (o *remote) printNewRun(run control.Started, err error) error {
	if err != nil {
		return err
	}
	return o.printJSONOrLine(run, "%s", run.ID)
}

// changeEach calls do for each run and prints the state that do returns. It treats errors like
// forEachRun.
func (o *remote) changeEach(ctx context.Context, ids []string, do func(context.Context, string) (control.Outcome, error)) error {
	return o.forEachRun(ids, func(id string) error {
		outcome, err := do(ctx, id)
		if err != nil {
			return err
		}
		return o.printJSONOrLine(outcome, "%s %s", outcome.ID, outcome.State)
	})
}

// forEachRun calls do for each run. If there are several runs and the server rejects the change of
// one, it prints the error and continues with the next run. Any other error ends the loop.
func (o *remote) forEachRun(ids []string, do func(id string) error) error {
	failed := 0
	for _, id := range ids {
		err := do(id)
		if _, refused := errors.AsType[*control.Error](err); err != nil && (len(ids) == 1 || !refused) {
			return err
		}
		if err != nil {
			failed++
			if o.json {
				e := newJSONError(err, CodeFailed)
				e.Run = id
				e.write(o.io.Err)
				continue
			}
			o.warn("%s: %v", id, err)
		}
	}
	if failed > 0 {
		return &codedError{fmt.Errorf("%d of %d runs could not be changed", failed, len(ids)), CodeFailed}
	}
	return nil
}

// changeMatching asks for confirmation and then changes all runs that match the filter. what is the
// verb in messages. do changes one batch of runs and returns the position after it.
func (o *bulkOptions) changeMatching(ctx context.Context, c *client.Client, what string, f control.Filter, do func(context.Context, control.Bulk) (control.Done, error)) error {
	first := f
	first.Limit = 1000
	page, err := c.List(ctx, first)
	if err != nil {
		return err
	}
	o.warnSilentShards(page.Silent)
	count := textfmt.Plural(len(page.Runs), "run")
	if page.Next != "" {
		count = "more than " + count
	}
	if len(page.Runs) == 0 {
		return o.printBulkResult(what, control.Done{Failed: []control.Failed{}})
	}
	if err := o.confirm(ctx, o.yes, what, count); err != nil {
		return err
	}
	if o.latest && f.Until.IsZero() {
		// Each of these runs is replaced by a new one. The filter must not match new runs: one that
		// fails at once would be retried again.
		newest := slices.MaxFunc(page.Runs, func(a, b engine.Info) int { return a.Created.Compare(b.Created) })
		f.Until = newest.Created.Add(time.Millisecond)
	}
	total := control.Done{Failed: []control.Failed{}}
	for bulk := (control.Bulk{Filter: &f}); ; {
		d, err := do(ctx, bulk)
		if err != nil {
			return err
		}
		total.Matched, total.Done, total.Failed = total.Matched+d.Matched, total.Done+d.Done, append(total.Failed, d.Failed...)
		if bulk.After = d.Next; bulk.After == "" {
			return o.printBulkResult(what, total)
		}
	}
}

// pastTense maps the verbs of changeMatching to their past tense, for the result line.
var pastTense = map[string]string{"retry": "retried", "cancel": "canceled"}

func (o *bulkOptions) printBulkResult(what string, d control.Done) error {
	for _, f := range d.Failed {
		if !o.json {
			o.warn("%s: %s", f.ID, f.Error)
		}
	}
	err := o.printJSONOrLine(d, "%s %d of %s", pastTense[what], d.Done, textfmt.Plural(d.Matched, "run"))
	if err == nil && len(d.Failed) > 0 {
		return exitError{Code: CodeFailed}
	}
	return err
}

// confirm asks the user for confirmation, unless yes is set by --yes. Without a terminal it can't
// ask and returns an error.
func (p *resultPrinter) confirm(ctx context.Context, yes bool, what, count string) error {
	if yes {
		return nil
	}
	if !process.IsTerminal(p.io.In) || !process.IsTerminal(p.io.Err) {
		return fmt.Errorf("this would %s %s: add --yes to confirm", what, count)
	}
	fmt.Fprintf(p.io.Err, "tideover: %s %s? [y/N] ", what, count)
	answer := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(p.io.In).ReadString('\n')
		answer <- line
	}()
	select {
	case <-ctx.Done(): // the reading goroutine ends with the process
		return context.Cause(ctx)
	case line := <-answer:
		if !slices.Contains([]string{"y", "yes"}, strings.ToLower(strings.TrimSpace(line))) {
			return &codedError{errors.New("nothing was changed"), CodeOwn}
		}
		return nil
	}
}

const cancelLong = `Cancels runs. Attempts that are running are interrupted, and their results are
dropped. Canceling a dead run removes it from the list of dead runs.

A run with operations that can be undone undoes them first, and is in state undoing
until then. A second cancel does not stop that; --abandon does.

Without RUN, all runs that match the flags are canceled. Unless --state is given,
these are the runs that have not ended. Runs of sessions and messages are included
only with --internal or --workflow. On a terminal you are asked for confirmation;
in a script this needs --yes.`

const cancelExample = `  tideover cancel 01k9v3q0h2f8
  tideover cancel --abandon 01k9v3q0h2f8
  tideover cancel --workflow order --state waiting --yes`

func newCancel(io Streams) *cobra.Command {
	o := &bulkOptions{remote: newRemote(io)}
	abandon := false
	unended := []string{"scheduled", "queued", "running", "waiting", "needs-handler", "paused", "undoing"}
	cmd := &cobra.Command{
		Use:               "cancel [flags] RUN...\n  tideover cancel [flags]",
		Short:             "Cancel runs",
		Long:              cancelLong,
		Example:           cancelExample,
		ValidArgsFunction: completeRuns(&o.remote, unended...),
		RunE: func(cmd *cobra.Command, args []string) error {
			name := firstFilterFlag(cmd)
			switch {
			case len(args) == 0 && name == "":
				return errors.New("cancel: no run given: name one, or use a flag such as --workflow")
			case len(args) > 0 && name != "":
				return fmt.Errorf("--%s and a run can't be used together: give one of them", name)
			case len(args) == 0 && abandon:
				return errors.New("--abandon needs a run: name those that are not to be undone")
			}
			if err := rejectEmptyFilters(cmd); err != nil {
				return err
			}
			f, err := o.filter()
			if err != nil {
				return err
			}
			return o.withClient(cmd, func(ctx context.Context, c *client.Client) error {
				switch {
				case abandon:
					return o.changeEach(ctx, args, c.Abandon)
				case len(args) > 0:
					return o.changeEach(ctx, args, c.Cancel)
				}
				if len(f.States) == 0 {
					f.States = unended
				}
				return o.changeMatching(ctx, c, "cancel", f, c.CancelMany)
			})
		},
	}
	o.register(cmd, filterFlagNames...)
	o.register(cmd, "internal")
	cmd.Flags().BoolVarP(&o.yes, "yes", "y", false, "do not ask for confirmation")
	cmd.Flags().BoolVar(&abandon, "abandon", false, "end the runs at once, and undo nothing")
	return o.command(cmd, exitsRuns)
}

func newUndo(io Streams) *cobra.Command {
	o := newRemote(io)
	return o.command(&cobra.Command{
		Use:   "undo [flags] RUN...",
		Short: "Undo the operations of dead runs",
		Long: `Undoes the operations of dead runs that have an undo, the last one first. The runs are
dead again then. A run undoes them itself when it fails or is canceled; this is for
runs whose function has a bug, and panicked until its policy gave up.`,
		Example:           "  tideover undo 01k9v3q0h2f8",
		Args:              atLeastOne("run"),
		ValidArgsFunction: completeRuns(&o, "dead"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.withClient(cmd, func(ctx context.Context, c *client.Client) error { return o.changeEach(ctx, args, c.Undo) })
		},
	}, exitsRuns)
}

func newWake(io Streams) *cobra.Command {
	o := newRemote(io)
	return o.command(&cobra.Command{
		Use:               "wake [flags] RUN...",
		Short:             "Start the next attempts of waiting runs now",
		Long:              "Ends the waits of runs, so that their next attempts start now. The number of attempts\nthat are left does not change.",
		Example:           "  tideover wake 01k9v3q0h2f8",
		Args:              atLeastOne("run"),
		ValidArgsFunction: completeRuns(&o, "waiting", "scheduled"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.withClient(cmd, func(ctx context.Context, c *client.Client) error { return o.changeEach(ctx, args, c.Wake) })
		},
	}, exitsRuns)
}
