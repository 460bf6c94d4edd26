package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tideover/tideover/cmd/tideover/internal/client"
	"github.com/tideover/tideover/cmd/tideover/internal/control"
	"github.com/tideover/tideover/cmd/tideover/internal/process"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/textfmt"
)

// bulkOptions are for verbs that change one run or many.
type bulkOptions struct {
	remote
	filterFlags
	yes    bool
	latest bool // with the current definition
}

type retryOptions struct {
	bulkOptions
	dead  bool
	from  once
	input once
}

const retryLong = `Puts dead runs back to work: steps that failed get a new set of attempts, what
succeeded is kept.

A run keeps the definition that it was started with. With --latest it continues with
the current one, so that a mistake can be repaired in the file: a new run takes its
place and keeps the results of the steps that are the same. Steps that failed, that
are new or have changed, and those that come after them run. If a step that succeeded
was renamed or removed, the answer names it, and --from STEP must say with which step
of the current definition to begin.

With --from, a run that has ended is started anew from a step, and takes over
what the steps before it returned. With --input it is started anew with another
input, over the default input of the file. These three print the id of the new run. It
takes the place of one that is dead, which is 'replaced' then; one that succeeded or was
canceled stays as it was.

With --dead, all dead runs are retried that the other flags mean; those that 'tideover
dead' leaves out only with --internal. On a terminal you are asked first; elsewhere
this needs --yes.`

const retryExample = `  tideover retry 01k9v3q0h2f8
  tideover retry order-4711 order-4712
  tideover retry --dead --workflow order --error-like 'connection refused' --yes
  tideover retry --latest order-4711
  tideover retry --dead --workflow order --latest --yes
  tideover retry --latest --from pay order-4711
  tideover retry --from ship order-4711
  tideover retry --input '{"id": 4711, "express": false}' order-4711`

func newRetry(io Streams) *cobra.Command {
	o := &retryOptions{bulkOptions: bulkOptions{remote: remote{io: io}}}
	cmd := &cobra.Command{
		Use:               "retry [flags] RUN...\n  tideover retry --dead [flags]",
		Short:             "Put dead runs back to work",
		Long:              retryLong,
		Example:           retryExample,
		ValidArgsFunction: o.completeRuns("dead"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(cmd, args); err != nil {
				return err
			}
			return o.ask(cmd, func(ctx context.Context, c *client.Client) error { return o.do(ctx, c, args) })
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.dead, "dead", false, "retry all dead runs that the flags below mean")
	o.register(cmd, "workflow", "error-like", "search", "since", "until", "min-attempts", "internal")
	f.BoolVarP(&o.yes, "yes", "y", false, "do not ask")
	f.BoolVar(&o.latest, "latest", false, "continue with the current definition of the workflow")
	o.from.kind, o.input.kind = "step", "JSON"
	f.Var(&o.from, "from", "start anew from this step")
	f.Var(&o.input, "input", "start anew with another input: JSON, @file, or - for standard input")
	o.command(cmd)
	o.completeFlags(cmd)
	return cmd
}

// filters are the flags that mean many runs.
var filters = []string{"state", "workflow", "error-like", "search", "since", "until", "min-attempts"}

// filtered returns the first of these flags that is given.
func filtered(cmd *cobra.Command) string {
	for _, name := range filters {
		if cmd.Flags().Changed(name) {
			return name
		}
	}
	return ""
}

// meaning refuses filters that are given and restrict nothing: a variable that
// was empty in a script would mean all runs.
func meaning(cmd *cobra.Command) error {
	for _, name := range filters {
		if f := cmd.Flags().Lookup(name); f != nil && f.Changed && slices.Contains([]string{"", "[]", "0"}, strings.TrimSpace(f.Value.String())) {
			return fmt.Errorf("--%s: says nothing, which would mean all runs; leave it out, or say more", name)
		}
	}
	return nil
}

// check refuses flags that contradict each other.
func (o *retryOptions) check(cmd *cobra.Command, args []string) error {
	name := filtered(cmd)
	switch {
	case o.dead && len(args) > 0:
		return errors.New("--dead and a run: one of them is enough")
	case !o.dead && len(args) == 0:
		return errors.New("retry: which run? name it, or use --dead")
	case !o.dead && name != "":
		return fmt.Errorf("--%s is for --dead", name)
	case o.from.given && o.input.given:
		return errors.New("--from and --input: one of them is possible")
	case (o.from.given || o.input.given) && len(args) != 1:
		return errors.New("--from and --input are for one run")
	}
	return meaning(cmd)
}

func (o *retryOptions) do(ctx context.Context, c *client.Client, args []string) error {
	switch {
	case o.dead:
		f, err := o.filter()
		if err != nil {
			return err
		}
		f.States = []string{"dead"}
		return o.many(ctx, c, "retry", f, func(ctx context.Context, b control.Bulk) (control.Done, error) {
			b.Latest = o.latest
			return c.RetryMany(ctx, b)
		})
	case o.latest:
		return o.continueLatest(ctx, c, args)
	case o.from.given:
		return o.anew(c.Rerun(ctx, args[0], o.from.text))
	case o.input.given:
		input, err := readInput(o.input.text, o.io.In)
		if err != nil {
			return fmt.Errorf("--input: %w", err)
		}
		return o.anew(c.Replay(ctx, args[0], input))
	}
	return o.each(ctx, args, func(ctx context.Context, id string) (control.Outcome, error) {
		out, err := c.Retry(ctx, id)
		if p, ok := errors.AsType[*control.Error](err); ok && p.Code == control.CodeState && p.Hint == "" {
			if run, err := c.Get(ctx, id); err == nil && run.State == engine.StateSucceeded {
				p.Hint = "--from STEP or --input JSON starts it anew"
			}
		}
		return out, err
	})
}

// continueLatest continues runs with the current definition, and prints the new ones.
func (o *retryOptions) continueLatest(ctx context.Context, c *client.Client, args []string) error {
	l := control.Latest{From: o.from.text}
	if o.input.given {
		var err error
		if l.Input, err = readInput(o.input.text, o.io.In); err != nil {
			return fmt.Errorf("--input: %w", err)
		}
	}
	return o.every(args, func(id string) error { return o.anew(c.RetryLatest(ctx, id, l)) })
}

// anew prints the id of a run that takes another's place.
func (o *remote) anew(run control.Started, err error) error {
	if err != nil {
		return err
	}
	if o.json {
		return o.printJSON(run)
	}
	return o.say("%s", run.ID)
}

// each does something with each run, and goes on when it fails with one.
func (o *remote) each(ctx context.Context, ids []string, do func(context.Context, string) (control.Outcome, error)) error {
	return o.every(ids, func(id string) error {
		outcome, err := do(ctx, id)
		switch {
		case err != nil:
			return err
		case o.json:
			return o.printJSON(outcome)
		}
		return o.say("%s %s", outcome.ID, outcome.State)
	})
}

// every calls do with each run, and goes on when the server refuses it for one.
func (o *remote) every(ids []string, do func(id string) error) error {
	failed := 0
	for _, id := range ids {
		err := do(id)
		if _, refused := errors.AsType[*control.Error](err); err != nil && (len(ids) == 1 || !refused) {
			return err
		}
		if err != nil {
			failed++
			o.warn("%s: %v", id, err)
		}
	}
	if failed > 0 {
		return &codedError{fmt.Errorf("%d of %d runs could not be changed", failed, len(ids)), codeDead}
	}
	return nil
}

// many does something with all runs of a filter, a thousand at a time.
func (o *bulkOptions) many(ctx context.Context, c *client.Client, what string, f control.Filter, do func(context.Context, control.Bulk) (control.Done, error)) error {
	page, err := c.List(ctx, control.Filter{
		States: f.States, Workflow: f.Workflow, Search: f.Search, Error: f.Error, Since: f.Since, Until: f.Until, MinAttempts: f.MinAttempts,
		Internal: f.Internal, Limit: 1000,
	})
	if err != nil {
		return err
	}
	o.missing(page.Silent)
	count := textfmt.Plural(len(page.Runs), "run")
	if page.Next != "" {
		count = "more than " + count
	}
	if len(page.Runs) == 0 {
		return o.done(what, control.Done{Failed: []control.Failed{}})
	}
	if err := o.confirm(ctx, what, count); err != nil {
		return err
	}
	if o.latest && f.Until.IsZero() {
		// These runs are replaced by new ones. Those that die at once are not meant.
		f.Until = newest(page.Runs).Add(time.Millisecond)
	}
	total := control.Done{Failed: []control.Failed{}}
	for bulk := (control.Bulk{Filter: &f}); ; {
		d, err := do(ctx, bulk)
		if err != nil {
			return err
		}
		total.Matched, total.Done, total.Failed = total.Matched+d.Matched, total.Done+d.Done, append(total.Failed, d.Failed...)
		if bulk.After = d.Next; bulk.After == "" {
			return o.done(what, total)
		}
	}
}

// newest returns when the newest of the runs was created.
func newest(runs []engine.Info) (at time.Time) {
	for i := range runs {
		if runs[i].Created.After(at) {
			at = runs[i].Created
		}
	}
	return at
}

// past are the verbs as they are told afterwards.
var past = map[string]string{"retry": "retried", "cancel": "canceled"}

func (o *bulkOptions) done(what string, d control.Done) error {
	var err error
	if o.json {
		err = o.printJSON(d)
	} else {
		for _, f := range d.Failed {
			o.warn("%s: %s", f.ID, f.Error)
		}
		err = o.say("%s %d of %s", past[what], d.Done, textfmt.Plural(d.Matched, "run"))
	}
	if err == nil && len(d.Failed) > 0 {
		return exitError{Code: codeDead}
	}
	return err
}

// confirm asks before many runs are changed.
func (o *bulkOptions) confirm(ctx context.Context, what, count string) error {
	if o.yes {
		return nil
	}
	if !process.IsTerminal(o.io.In) || !process.IsTerminal(o.io.Err) {
		return fmt.Errorf("this would %s %s: say --yes", what, count)
	}
	fmt.Fprintf(o.io.Err, "tideover: %s %s? [y/N] ", what, count)
	answer := make(chan string, 1)
	go func(in *os.File) {
		line, _ := bufio.NewReader(in).ReadString('\n')
		answer <- line
	}(o.io.In)
	select {
	case <-ctx.Done(): // the program ends, and with it the one who reads
		return context.Cause(ctx)
	case line := <-answer:
		switch strings.ToLower(strings.TrimSpace(line)) {
		case "y", "yes":
			return nil
		}
		return &codedError{errors.New("nothing was changed"), codeOwn}
	}
}

const cancelLong = `Ends runs. Their steps are told, and what they still return is dropped. A dead run
that is canceled is one that nobody will retry.

Without a run, all are canceled that the flags mean: of those that are not over,
unless --state says something else, and not those of sessions and messages, unless
--internal or --workflow does. On a terminal you are asked first; elsewhere this
needs --yes.`

const cancelExample = `  tideover cancel 01k9v3q0h2f8
  tideover cancel --workflow order --state waiting --yes`

func newCancel(io Streams) *cobra.Command {
	o := &bulkOptions{remote: remote{io: io}}
	cmd := &cobra.Command{
		Use:               "cancel [flags] RUN...\n  tideover cancel [flags]",
		Short:             "End runs",
		Long:              cancelLong,
		Example:           cancelExample,
		ValidArgsFunction: o.completeRuns("scheduled", "queued", "running", "waiting", "needs-handler", "paused"),
		RunE: func(cmd *cobra.Command, args []string) error {
			name := filtered(cmd)
			switch {
			case len(args) == 0 && name == "":
				return errors.New("cancel: which run? name it, or use a flag such as --workflow")
			case len(args) > 0 && name != "":
				return fmt.Errorf("--%s and a run: one of them is enough", name)
			}
			if err := meaning(cmd); err != nil {
				return err
			}
			f, err := o.filter()
			if err != nil {
				return err
			}
			return o.ask(cmd, func(ctx context.Context, c *client.Client) error {
				if len(args) > 0 {
					return o.each(ctx, args, c.Cancel)
				}
				if len(f.States) == 0 {
					f.States = []string{"scheduled", "queued", "running", "waiting", "needs-handler", "paused"}
				}
				return o.many(ctx, c, "cancel", f, c.CancelMany)
			})
		},
	}
	o.register(cmd, filters...)
	o.register(cmd, "internal")
	cmd.Flags().BoolVarP(&o.yes, "yes", "y", false, "do not ask")
	o.command(cmd)
	o.completeFlags(cmd)
	return cmd
}

func newWake(io Streams) *cobra.Command {
	o := &remote{io: io}
	cmd := &cobra.Command{
		Use:               "wake [flags] RUN...",
		Short:             "End the waits of runs, so that the next attempts begin now",
		Long:              "Ends the waits of runs: the next attempts begin now. No attempt is gained or lost\nby it.",
		Example:           "  tideover wake 01k9v3q0h2f8",
		Args:              some("run"),
		ValidArgsFunction: o.completeRuns("waiting", "scheduled"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.ask(cmd, func(ctx context.Context, c *client.Client) error { return o.each(ctx, args, c.Wake) })
		},
	}
	o.command(cmd)
	o.completeFlags(cmd)
	return cmd
}
