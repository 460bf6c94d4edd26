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
	"github.com/tideover/tideover/internal/console/control"
	"github.com/tideover/tideover/internal/textfmt"
)

// maxInput limits how many bytes of an input are read. The server accepts even less.
const maxInput = 8 << 20

// singleFlag is a text flag that can be given only once: with two timeouts, it would be unclear
// which one applies. An empty value is rejected.
type singleFlag struct {
	text  string
	kind  string // name of the value in the help
	given bool
}

func (o *singleFlag) String() string { return o.text }
func (o *singleFlag) Type() string   { return o.kind }

// Set implements [pflag.Value].
func (o *singleFlag) Set(s string) error {
	if o.given {
		return errors.New("given twice: give it once")
	}
	if s == "" {
		return errors.New("the value is empty")
	}
	o.text, o.given = s, true
	return nil
}

type runOptions struct {
	remote
	input, key, timeout, in, at singleFlag
	wait, follow                bool
}

const runLong = `Starts a run of a workflow and prints its id. When the id is printed, the run is
stored and continues even if the server or this machine fails.

--wait waits for the end and prints the result of the run as JSON. --follow prints
the events of the run; with both, the events go to standard error. You can interrupt
either: the run continues. If the server is unreachable, the command reconnects.

With --key, a second start with the same key starts nothing and prints the id of the
first run. If that run has another input, a warning is printed; with --json, see the
fields "existing" and "input_differs".`

const runExample = `  tideover run nightly-report
  tideover run order --input '{"id": 4711}' --key order-4711
  tideover run order --input @order.json --wait
  jq .order all.json | tideover run order --input - --timeout 2m --follow
  tideover run nightly-report --in 2h
  tideover run nightly-report --at 2026-11-16T03:00:00+01:00`

func newRun(io Streams) *cobra.Command {
	o := &runOptions{remote: newRemote(io)}
	cmd := &cobra.Command{
		Use:               "run [flags] WORKFLOW",
		Short:             "Start a run of a workflow",
		Long:              runLong,
		Example:           runExample,
		Args:              exactlyOne("workflow"),
		ValidArgsFunction: single(completeWorkflows(&o.remote)),
		RunE: func(cmd *cobra.Command, args []string) error {
			start, err := o.start(args[0])
			if err != nil {
				return err
			}
			return o.withClient(cmd, func(ctx context.Context, c *client.Client) error { return o.run(ctx, c, start) })
		},
	}
	f := cmd.Flags()
	o.input.kind, o.key.kind, o.timeout.kind, o.in.kind, o.at.kind = "JSON", "key", "duration", "duration", "time"
	f.Var(&o.input, "input", "input of the run: JSON, @file, or - for standard input")
	f.Var(&o.key, "key", "start only one run with this key")
	f.Var(&o.timeout, "timeout", "time limit of the run")
	f.Var(&o.in, "in", "start after this time")
	f.Var(&o.at, "at", "start at a time such as 2026-11-16T03:00:00+01:00")
	f.BoolVarP(&o.wait, "wait", "w", false, "wait for the end and print the result")
	f.BoolVarP(&o.follow, "follow", "f", false, "print events until the end")
	return o.command(cmd, exits{
		CodeFailed:   "with --wait or --follow: the run is dead, or was replaced",
		codeCanceled: "with --wait or --follow: the run was canceled",
		CodeUnknown:  "unknown workflow",
		codeSignal:   "ended by signal n; the run continues",
	})
}

// start builds the request from the flags and checks them before anything is sent.
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
		return s, errors.New("--at and --in can't be used together: give one of them")
	}
	if o.at.given {
		if s.At, err = time.Parse(time.RFC3339, o.at.text); err != nil {
			return s, fmt.Errorf("--at: %q is not a time: want one such as 2026-11-16T03:00:00+01:00", o.at.text)
		}
	}
	return s, nil
}

// readInput returns the JSON in text, in a file if text is @name, or on standard input if text is
// -. It returns nil if text is empty.
func readInput(text string, stdin *os.File) (json.RawMessage, error) {
	if text == "" {
		return nil, nil
	}
	var from io.Reader = strings.NewReader(text)
	hint := `: put a string in double quotes: '"text"'`
	if name, isFile := strings.CutPrefix(text, "@"); isFile {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		from, hint = f, ""
	} else if text == "-" {
		from, hint = stdin, ""
	}
	data, err := io.ReadAll(io.LimitReader(from, maxInput+1))
	switch {
	case err != nil:
		return nil, err
	case len(data) > maxInput:
		return nil, fmt.Errorf("input is too long: want at most %d bytes", maxInput)
	case !json.Valid(data):
		return nil, fmt.Errorf("%q is not JSON%s", textfmt.ClipWithin(visible(string(data)), 60, "…"), hint)
	}
	return data, nil
}

func (o *runOptions) run(ctx context.Context, c *client.Client, start control.Start) error {
	run, err := c.Start(ctx, start)
	if err != nil {
		return err
	}
	switch {
	case run.InputDiffers:
		o.warn("nothing was started: key %q belongs to run %s, which has another input: see 'tideover show %s', or use another key", start.Key, run.ID, run.ID)
	case run.Existing:
		o.warn("nothing was started: key %q belongs to this run", start.Key)
	}
	if !start.At.IsZero() && start.At.Before(time.Now()) && !run.Existing {
		o.warn("%s is in the past: the run starts at once", start.At.Local().Format(time.RFC3339))
	}
	if !o.wait && !o.follow {
		return o.printNewRun(run, nil)
	}
	err = o.waitForEnd(ctx, c, run.ID)
	if _, interrupted := errors.AsType[*interruptedError](err); interrupted {
		o.warn("run %s continues; see 'tideover show %s'", run.ID, run.ID)
	}
	return err
}

// waitForEnd waits for the end of the run. With --follow it prints the events, and with --wait the
// result.
func (o *runOptions) waitForEnd(ctx context.Context, c *client.Client, id string) error {
	if o.follow {
		var out io.Writer = o.io.Out
		if o.wait {
			out = bestEffortWriter{o.io.Err}
		}
		end, err := printRunEvents(ctx, c, id, out, o.json && !o.wait)
		if err != nil {
			return err
		}
		if !o.wait {
			return exitErrorFor(end.State)
		}
	}
	output, err := c.Result(ctx, id)
	p, ok := errors.AsType[*control.Error](err)
	switch {
	case o.json && ok && p.Outcome != nil:
		if err := o.printJSON(p.Outcome); err != nil {
			return err
		}
		return exitErrorFor(p.Outcome.State)
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

// bestEffortWriter ignores write errors. With --follow and --wait the events are written through
// it, so that the result is printed even if standard error can't be written.
type bestEffortWriter struct{ io.Writer }

func (b bestEffortWriter) Write(p []byte) (int, error) {
	_, _ = b.Writer.Write(p)
	return len(p), nil
}

// exitErrorFor returns the exit error for the final state of a run; nil if it succeeded.
func exitErrorFor(state string) error {
	switch state {
	case "dead", "replaced":
		return exitError{Code: CodeFailed}
	case "canceled":
		return exitError{Code: codeCanceled}
	}
	return nil
}

// printRunEvents prints the events of a run until the run ends or a write fails. It returns how the
// run ended.
func printRunEvents(ctx context.Context, c *client.Client, id string, out io.Writer, asJSON bool) (control.Outcome, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var failed error
	end, err := c.Follow(ctx, id, func(e control.Event) {
		if failed != nil {
			return
		}
		if asJSON {
			failed = writeJSON(out, e)
		} else {
			_, failed = fmt.Fprintf(out, "%s %s\n", e.Time.Local().Format("15:04:05.000"), visible(e.Message))
		}
		if failed != nil {
			stop(failed)
		}
	})
	return end, cmp.Or(failed, err)
}
