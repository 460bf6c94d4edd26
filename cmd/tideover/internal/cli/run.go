package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tideover/tideover/cmd/tideover/internal/client"
	"github.com/tideover/tideover/cmd/tideover/internal/control"
	"github.com/tideover/tideover/internal/textfmt"
)

// maxInput is how much of an input is read. The server takes less.
const maxInput = 8 << 20

// once is a flag of text that may not be given twice: of two timeouts, which one
// was meant?
type once struct {
	text  string
	kind  string
	given bool
}

func (o *once) String() string { return o.text }
func (o *once) Type() string   { return o.kind }

// Set implements [pflag.Value].
func (o *once) Set(s string) error {
	if o.given {
		return errors.New("is given twice")
	}
	if s == "" {
		return errors.New("is empty")
	}
	o.text, o.given = s, true
	return nil
}

type runOptions struct {
	remote
	input, key, timeout, in, at once
	wait, follow                bool
}

const runLong = `Starts a run of a workflow and prints its id. When the id is printed the run is
stored, and goes on whatever happens.

With --wait it waits for the end and prints what the run returned, as JSON. With
--follow it prints what happens to the run meanwhile; with both, that goes to
standard error. Whoever waits can be interrupted: the run goes on. Should the
server be away for a while, it is waited for.

With --key, a second start with the same key starts nothing and prints the id of
the first one's run. If that run has another input, a warning says so; with --json,
"existing" and "input_differs" do.`

const runExample = `  tideover run nightly-report
  tideover run order --input '{"id": 4711}' --key order-4711
  tideover run order --input @order.json --wait
  jq .order all.json | tideover run order --input - --timeout 2m --follow
  tideover run nightly-report --in 2h
  tideover run nightly-report --at 2026-11-16T03:00:00+01:00`

func newRun(io Streams) *cobra.Command {
	o := &runOptions{remote: remote{io: io}}
	cmd := &cobra.Command{
		Use:               "run [flags] WORKFLOW",
		Short:             "Start a run of a workflow",
		Long:              runLong,
		Example:           runExample,
		Args:              one("workflow"),
		ValidArgsFunction: o.completeWorkflows,
		RunE: func(cmd *cobra.Command, args []string) error {
			start, err := o.start(args[0])
			if err != nil {
				return err
			}
			return o.ask(cmd, func(ctx context.Context, c *client.Client) error { return o.run(ctx, c, start) })
		},
	}
	f := cmd.Flags()
	o.input.kind, o.key.kind, o.timeout.kind, o.in.kind, o.at.kind = "JSON", "key", "duration", "duration", "time"
	f.Var(&o.input, "input", "what the steps get: JSON, @file, or - for standard input")
	f.Var(&o.key, "key", "start at most once with this key")
	f.Var(&o.timeout, "timeout", "end the run if it takes longer")
	f.Var(&o.in, "in", "start after a while")
	f.Var(&o.at, "at", "start at a time such as 2026-11-16T03:00:00+01:00")
	f.BoolVarP(&o.wait, "wait", "w", false, "wait for the end, and print the output")
	f.BoolVarP(&o.follow, "follow", "f", false, "print what happens, until the end")
	o.command(cmd)
	o.completeFlags(cmd)
	return cmd
}

// start reads the flags. What is wrong with them is said before anything is sent.
func (o *runOptions) start(workflow string) (s control.Start, err error) {
	s = control.Start{Workflow: workflow, Key: o.key.text}
	if err := control.CheckKey(s.Key); err != nil {
		return s, fmt.Errorf("--key: %w", err)
	}
	if s.Input, err = readInput(o.input.text, o.io.In); err != nil {
		return s, fmt.Errorf("--input: %w", err)
	}
	for _, f := range []struct {
		name string
		text string
		to   *control.Span
	}{{"timeout", o.timeout.text, &s.Timeout}, {"in", o.in.text, &s.In}} {
		if f.text == "" {
			continue
		}
		d, err := control.ParseSpan(f.text)
		if err != nil {
			return s, fmt.Errorf("--%s: %w", f.name, err)
		}
		*f.to = control.Span(d)
	}
	if o.at.given && o.in.given {
		return s, errors.New("--at and --in: one of them is enough")
	}
	if o.at.given {
		if s.At, err = time.Parse(time.RFC3339, o.at.text); err != nil {
			return s, fmt.Errorf("--at: %q is not a time such as 2026-11-16T03:00:00+01:00", o.at.text)
		}
	}
	return s, nil
}

// readInput reads JSON from the command line, a file, or standard input.
func readInput(text string, stdin *os.File) (json.RawMessage, error) {
	var data []byte
	switch name, isFile := strings.CutPrefix(text, "@"); {
	case text == "":
		return nil, nil
	case text == "-":
		var err error
		if data, err = readAll(stdin); err != nil {
			return nil, err
		}
	case isFile:
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		if data, err = readAll(f); err != nil {
			return nil, err
		}
	default:
		data = []byte(text)
	}
	if !json.Valid(data) {
		hint := ""
		if text != "-" && !strings.HasPrefix(text, "@") {
			hint = `; a text stands in quotes of its own: '"text"'`
		}
		return nil, fmt.Errorf("%q is not JSON%s", textfmt.ClipWithin(visible(string(data)), 60, "…"), hint)
	}
	return data, nil
}

func readAll(f *os.File) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(f, maxInput+1))
	if err == nil && len(data) > maxInput {
		err = fmt.Errorf("more than %d bytes", maxInput)
	}
	return data, err
}

func (o *runOptions) run(ctx context.Context, c *client.Client, start control.Start) error {
	run, err := c.Start(ctx, start)
	if err != nil {
		return err
	}
	switch {
	case run.InputDiffers:
		o.warn("the key %q is known; nothing was started, and run %s has another input; see 'tideover show %s', or use another key", start.Key, run.ID, run.ID)
	case run.Existing:
		o.warn("the key %q is known; this is its run", start.Key)
	}
	if !start.At.IsZero() && start.At.Before(time.Now()) && !run.Existing {
		o.warn("%s is over, so the run starts at once", start.At.Local().Format(time.RFC3339))
	}
	if !o.wait && !o.follow {
		if o.json {
			return o.printJSON(run)
		}
		return o.say("%s", run.ID)
	}
	err = o.end(ctx, c, run.ID)
	if _, told := errors.AsType[*toldToEnd](err); told {
		o.warn("run %s goes on; see 'tideover show %s'", run.ID, run.ID)
	}
	return err
}

// end waits for the end of the run, and tells it.
func (o *runOptions) end(ctx context.Context, c *client.Client, id string) error {
	if o.follow {
		var out io.Writer = o.io.Out
		if o.wait {
			out = besideTheResult{o.io.Err}
		}
		end, err := follow(ctx, c, id, out, o.json && !o.wait)
		if err != nil {
			return err
		}
		if !o.wait {
			return endedAs(end.State)
		}
	}
	output, err := c.Result(ctx, id)
	p, ok := errors.AsType[*control.Error](err)
	switch {
	case o.json && ok && p.Outcome != nil:
		if err := o.printJSON(p.Outcome); err != nil {
			return err
		}
		return endedAs(p.Outcome.State)
	case err != nil:
		return err
	case o.json:
		outcome, err := c.Outcome(ctx, id)
		if err != nil {
			return err
		}
		outcome.Output = output
		return o.printJSON(outcome)
	}
	_, err = o.io.Out.Write(append(visibleJSON(output), '\n'))
	return err
}

// besideTheResult is where to write what matters less than the result, which
// must not get lost with it.
type besideTheResult struct{ io.Writer }

func (b besideTheResult) Write(p []byte) (int, error) {
	_, _ = b.Writer.Write(p)
	return len(p), nil
}

// endedAs is the exit code of a run whose end has been told.
func endedAs(state string) error {
	switch state {
	case "dead", "replaced":
		return exitError{Code: codeDead}
	case "canceled":
		return exitError{Code: codeCanceled}
	}
	return nil
}

// follow prints what happens to a run until its end, or until it can't be
// printed.
func follow(ctx context.Context, c *client.Client, id string, out io.Writer, asJSON bool) (control.Outcome, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var failed error
	end, err := c.Follow(ctx, id, func(e control.Event) {
		if failed != nil {
			return
		}
		if asJSON {
			text, _ := json.Marshal(e) // as it was read
			_, failed = out.Write(append(visibleJSON(text), '\n'))
		} else {
			_, failed = fmt.Fprintf(out, "%s %s\n", e.Time.Local().Format("15:04:05.000"), visible(e.Message))
		}
		if failed != nil {
			stop(failed)
		}
	})
	return end, cmp.Or(failed, err)
}
