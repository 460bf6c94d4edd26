package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tideover/tideover/cmd/tideover/internal/admin"
	"github.com/tideover/tideover/cmd/tideover/internal/client"
	"github.com/tideover/tideover/cmd/tideover/internal/output"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/console/control"
	"github.com/tideover/tideover/internal/textfmt"
)

const showLong = `Shows a run: its state, every attempt of every step, every wait between them and who
set it, the input and the output. Of for-each, it shows the items that failed or have
not ended, and some others. Of a workflow that is Go code, it shows the operations of its
function.
If the run asks a question, it shows the choices, who may answer, and how.

With --output it prints the output of an attempt instead: what its command wrote to
standard output and standard error, or the response to its request, after the command
line or the request. Of a long output, the beginning and the end are stored. Without
--step and --attempt it is the last attempt of the step that failed or ran last.

If a retry of the run has executed a step again, --output prints the output of the last
execution. --operation selects another one; its number is in .steps[].number of --json.

With --history it prints what the run has stored, as a line of JSON; several runs can be
given then. In a Go test, enginetest.Replay reads this, and tells whether new code of the
workflow would park the run. It has the data of the run: its input, results, errors and
signals.

RUN is an id, the beginning of one, or the key of the run. With --json, names that end
in _ns are in nanoseconds.`

const showExample = `  tideover show 01k9v3q0h2f8
  tideover show order-4711
  tideover show order-4711 --output
  tideover show order-4711 --output --step fetch --attempt 2
  tideover show order-4711 --output --step fetch --operation 1
  tideover show order-4711 order-4712 --history > testdata/order.json
  tideover show order-4711 --json | jq '.steps[].attempts[] | select(.error)'`

func newShow(io Streams) *cobra.Command {
	o := newRemote(io)
	var showsOutput, showsHistory bool
	var which admin.OutputQuery
	show := query(&o, func(ctx context.Context, c *client.Client, args []string) (*engine.Info, error) {
		return c.Get(ctx, args[0])
	}, renderShow)
	showOutput := query(&o, func(ctx context.Context, c *client.Client, args []string) (admin.Output, error) {
		which.Run = args[0]
		return c.Output(ctx, which)
	}, renderOutput)
	cmd := &cobra.Command{
		Use:     "show [flags] RUN...",
		Short:   "Show a run with its history, or the output of an attempt",
		Long:    showLong,
		Example: showExample,
		Args: func(cmd *cobra.Command, args []string) error {
			if showsHistory {
				return atLeastOne("run")(cmd, args)
			}
			return exactlyOne("run")(cmd, args)
		},
		ValidArgsFunction: single(completeRuns(&o)),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch flags := cmd.Flags(); {
			case showsOutput && showsHistory:
				return errors.New("--output and --history: give one of them")
			case showsOutput:
				if err := checkOutputQuery(flags, &which); err != nil {
					return err
				}
				return showOutput(cmd, args)
			case flags.Changed("step") || flags.Changed("operation") || flags.Changed("attempt"):
				return errors.New("--step, --operation and --attempt need --output")
			case showsHistory:
				return printHistories(&o, cmd, args)
			}
			return show(cmd, args)
		},
	}
	cmd.Flags().BoolVar(&showsOutput, "output", false, "print the output of an attempt")
	cmd.Flags().StringVar(&which.Step, "step", "", "with --output: the `STEP` or operation, STEP#INDEX for an item of for-each, undo:STEP for an undo; default the one that failed or ran last")
	cmd.Flags().IntVar(&which.Operation, "operation", 0, "with --output and --step: the number `N` of the execution, if a retry has executed the step again; default the last")
	cmd.Flags().IntVar(&which.Attempt, "attempt", 0, "with --output: the number `N` of the attempt; default the last that has ended")
	cmd.Flags().BoolVar(&showsHistory, "history", false, "print the histories of the runs as JSON, for enginetest.Replay")
	return o.command(cmd, exits{CodeUnknown: "unknown run, or the name matches several; with --output: there is no such output"})
}

// checkOutputQuery returns an error for flags that select no output.
func checkOutputQuery(flags *pflag.FlagSet, q *admin.OutputQuery) error {
	switch {
	case flags.Changed("attempt") && q.Attempt < 1:
		return fmt.Errorf("--attempt: %d is not the number of an attempt: want 1 or more", q.Attempt)
	case flags.Changed("operation") && q.Operation < 1:
		return fmt.Errorf("--operation: %d is not the number of an operation: want 1 or more", q.Operation)
	case q.Operation > 0 && q.Step == "":
		return errors.New("--operation needs --step")
	}
	return nil
}

// printHistories prints the histories of runs, each as a line of JSON.
func printHistories(r *remote, cmd *cobra.Command, runs []string) error {
	return r.withClient(cmd, func(ctx context.Context, c *client.Client) error {
		for _, run := range runs {
			h, err := c.History(ctx, run)
			if err == nil {
				err = r.printJSON(h)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// renderOutput returns the output of an attempt as lines, without escape sequences and with other
// control characters made visible.
func renderOutput(o admin.Output, s *screen) []string {
	end := optional(", ", o.Status, "")
	if o.Exit != nil {
		end = fmt.Sprintf(", exit code %d", *o.Exit)
	}
	title := fmt.Sprintf("%s, attempt %d, ended %s%s%s", o.Step, o.Attempt, s.stamp(o.Ended), end, optional(", stored by ", o.Member, ""))
	lines := []string{s.paint("1", visible(title))}
	if does := cmp.Or(o.Request, o.Command); does != "" {
		lines = append(lines, visible(does))
	}
	for i := range o.Streams {
		st := &o.Streams[i]
		if st.Size == 0 && !st.More {
			continue
		}
		lines = append(lines, "", s.paint("1", visible(st.Name))+", "+textfmt.Plural(int(st.Size), "byte"))
		lines = append(lines, outputLines(st.Head)...)
		switch {
		case st.Omitted > 0:
			lines = append(lines, s.paint("33", "… "+textfmt.Plural(int(st.Omitted), "byte")+" omitted …"))
		case st.More:
			lines = append(lines, s.paint("33", "… the rest was not read"))
		}
		lines = append(lines, outputLines(st.Tail)...)
	}
	if len(lines) == 1 {
		lines = append(lines, "no output")
	}
	return lines
}

// outputLines returns the lines of a part of an output.
func outputLines(text string) []string {
	if text == "" {
		return nil
	}
	lines := strings.Split(strings.TrimSuffix(output.Plain([]byte(text)), "\n"), "\n")
	for i, line := range lines {
		cells := strings.Split(line, "\t") // visible would escape tabs, which are harmless here
		for k, cell := range cells {
			cells[k] = visible(cell)
		}
		lines[i] = strings.Join(cells, "\t")
	}
	return lines
}

// details builds the text that describes one run, session or provider.
type details struct {
	*screen
	lines []string
}

// runDetails builds the text that describes a run.
type runDetails struct {
	details
	info *engine.Info
}

func renderShow(info *engine.Info, s *screen) []string {
	p := &runDetails{details{screen: s}, info}
	p.head()
	p.questions()
	if function, ops, steps := control.Operations(info); function != nil {
		p.flow(function, ops, steps)
	} else {
		for i := range info.Steps {
			p.step(&info.Steps[i])
		}
	}
	p.notes()
	p.payload("input", info.Input)
	p.payload("output", info.Output)
	return p.lines
}

// line adds a line. The caller must pass text from other parties through visible.
func (p *details) line(format string, args ...any) {
	p.lines = append(p.lines, fmt.Sprintf(format, args...))
}

// field adds a name and a value, unless the value is empty.
func (p *details) field(name, text string) {
	if text != "" {
		p.line("  %-11s %s", name, visible(text))
	}
}

// moment formats a time with its zone, followed by "in 5m" or "5m ago"; empty for nil.
func (p *details) moment(t *time.Time) string {
	switch {
	case t == nil:
		return ""
	case t.After(p.now):
		return p.stamp(*t) + " (in " + textfmt.CoarseDuration(t.Sub(p.now)) + ")"
	default:
		return p.stamp(*t) + " (" + p.ago(*t) + " ago)"
	}
}

func (p *runDetails) head() {
	i := p.info
	p.line("%s  %s  %s", p.paint("1", visible(i.ID)), visible(i.Workflow), p.paint(stateColours[i.State], visible(i.State)))
	p.field("key", i.Key)
	p.field("status", i.Status)
	p.field("tags", strings.Join(control.TagList(i), "  "))
	p.field("version", i.Version)
	p.field("started", p.moment(&i.Created)+optional(" by ", i.Source, ""))
	if i.WorkflowPaused != nil {
		p.field("waits", "workflow "+pausedWorkflowText(i.WorkflowPaused, p.screen))
	}
	p.field("next", p.moment(i.Next))
	if i.Ended == nil {
		p.field("deadline", p.moment(i.Deadline))
	} else {
		p.field("ended", p.moment(i.Ended)+", after "+textfmt.CoarseDuration(i.Ended.Sub(i.Created)))
	}
	p.field("reason", i.Reason)
	p.field("error", i.Error)
	if i.Omitted > 0 {
		p.field("history", textfmt.PluralOf(i.Omitted, "entry", "entries")+" in the middle were dropped")
	}
	p.field("retry of", i.ReplayOf)
	if i.Origin != i.ReplayOf {
		p.field("origin", i.Origin)
	}
	p.field("origin key", i.OriginKey)
	p.field("replaced by", i.ReplacedBy)
	p.field("continued", optional("by ", i.ContinuedBy, ""))
	p.field("parent", i.Parent)
}

func (p *runDetails) step(s *engine.StepInfo) {
	p.line("\n%s  %s  %s", p.paint("1", visible(s.Name)), p.state(s), p.paint("2", visible(s.Policy)))
	if len(s.Needs) > 0 {
		p.line("  after %s", visible(strings.Join(s.Needs, ", ")))
	}
	omitted := s.Omitted
	for k := range s.Attempts {
		p.omitted(s.Attempts[k].Omitted)
		omitted -= s.Attempts[k].Omitted
		p.attempt(&s.Attempts[k])
	}
	p.omitted(omitted)
	if s.Quarantine != "" {
		p.line("  %s", p.paint("35", fmt.Sprintf("quarantine: %s (lost %d, max-lost %d)", visible(s.Quarantine), s.Lost, s.MaxLost)))
	}
	if s.Held != nil && s.Quarantine == "" {
		p.line("  %s", p.paint("35", fmt.Sprintf("due since %s, and waits: %s", p.moment(&s.Held.Since), visible(s.Held.String()))))
	}
	if s.Next != nil && s.Next.After(p.now) && len(s.Attempts) == 0 {
		p.line("  starts %s", p.moment(s.Next))
	}
	if len(s.Progress) > 0 && s.Status == "running" {
		p.line("  progress %s", visible(string(s.Progress)))
	}
	if len(s.Output) > 0 && len(p.info.Steps) > 1 {
		p.line("  returned %s", visible(textfmt.ClipWithin(string(s.Output), 200, "…")))
	}
}

// omitted adds a line that says how many attempts are missing at this point of the history.
func (p *runDetails) omitted(n int) {
	if n > 0 {
		p.line("  … %s not stored: of a long history, only the beginning and the end are kept", textfmt.Plural(n, "attempt"))
	}
}

func (p *runDetails) attempt(a *engine.AttemptInfo) {
	took := " for " + textfmt.CoarseDuration(max(p.now.Sub(a.Started), 0))
	if a.Ended != nil {
		took = " after " + textfmt.CoarseDuration(a.Ended.Sub(a.Started))
	}
	text := fmt.Sprintf("  #%d %s %s%s", a.Number, p.clock(a.Started), p.paint(stateColours[a.Outcome], visible(a.Outcome)), took)
	if a.Alone {
		text += ", with no other attempt in the process"
	}
	p.line("%s%s", text, optional(": ", visible(a.Error), ""))
	if w := a.Wait; w != nil {
		p.line("     %s", p.paint("33", p.wait(a, w)))
	}
	if a.Reason != "" {
		p.line("     gave up: %s", visible(a.Reason))
	}
}

// wait describes the wait w after the attempt a: how long, until when, and who set it.
func (p *runDetails) wait(a *engine.AttemptInfo, w *engine.WaitInfo) string {
	by := ", set by the " + visible(w.By)
	if w.By == "human" {
		by = ", set by an operator"
	}
	switch {
	case w.Woken != "":
		from := w.Until
		if a.Ended != nil {
			from = *a.Ended
		}
		return fmt.Sprintf("waited %s of %s until %s%s; ended early by %s", textfmt.CoarseDuration(w.Until.Sub(from)), textfmt.CoarseDuration(w.Delay), p.clock(w.Until), by, visible(w.Woken))
	case w.Until.After(p.now):
		return fmt.Sprintf("waits %s until %s%s; %s left", textfmt.CoarseDuration(w.Delay), p.clock(w.Until), by, textfmt.CoarseDuration(w.Until.Sub(p.now)))
	default:
		return fmt.Sprintf("waited %s until %s%s", textfmt.CoarseDuration(w.Delay), p.clock(w.Until), by)
	}
}

// clock formats a time of day, with the date if it is not the day on which the run was started.
func (p *runDetails) clock(t time.Time) string {
	t, start := t.In(p.zone), p.info.Created.In(p.zone)
	if t.YearDay() != start.YearDay() || t.Year() != start.Year() {
		return t.Format("2006-01-02 15:04:05.000")
	}
	return t.Format("15:04:05.000")
}

// notes adds a section with the events of the run as a whole, except its start.
func (p *runDetails) notes() {
	notes := slices.DeleteFunc(slices.Clone(p.info.Notes), func(n engine.Note) bool { return n.What == "started" })
	if len(notes) == 0 {
		return
	}
	p.line("\n%s", p.paint("1", "notes"))
	for _, n := range notes {
		text := n.What + optional(" ", n.Step, "") + optional(": ", n.Text, "")
		p.line("  %s %s", p.clock(n.At), visible(text))
	}
}

func (p *details) payload(name string, data json.RawMessage) {
	if len(data) == 0 {
		return
	}
	var b bytes.Buffer
	if json.Indent(&b, data, "  ", "  ") != nil {
		b.Reset()
		b.Write(data)
	}
	p.line("\n%s\n  %s", p.paint("1", name), visibleLines(b.String()))
}
