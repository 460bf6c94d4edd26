package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tideover/tideover/cmd/tideover/internal/client"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/textfmt"
)

const showLong = `Shows a run: where it is, every attempt of every step, every wait between them
and who set it, what went in and what came out.

RUN is an id, the beginning of one, or the key the run was started with. With
--json, delays are in nanoseconds.`

const showExample = `  tideover show 01k9v3q0h2f8
  tideover show order-4711
  tideover show order-4711 --json | jq '.steps[].attempts[] | select(.error)'`

func newShow(io Streams) *cobra.Command {
	o := &remote{io: io}
	cmd := &cobra.Command{
		Use:               "show [flags] RUN",
		Short:             "Show a run with its whole history",
		Long:              showLong,
		Example:           showExample,
		Args:              one("run"),
		ValidArgsFunction: single(o.completeRuns()),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.ask(cmd, func(ctx context.Context, c *client.Client) error {
				info, err := c.Get(ctx, args[0])
				if err != nil {
					return err
				}
				if o.json {
					return o.printJSON(info)
				}
				s := screenOf(io.Out)
				_, err = io.Out.WriteString(renderShow(info, &s))
				return err
			})
		},
	}
	o.command(cmd)
	o.completeFlags(cmd)
	return cmd
}

// single completes one argument.
func single(complete cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return complete(cmd, args, prefix)
	}
}

// portrait is a run as text.
type portrait struct {
	strings.Builder
	*screen
	info *engine.Info
}

func renderShow(info *engine.Info, s *screen) string {
	p := &portrait{screen: s, info: info}
	p.head()
	for i := range info.Steps {
		p.step(&info.Steps[i])
	}
	p.notes()
	p.payload("input", info.Input)
	p.payload("output", info.Output)
	return p.String()
}

// line adds a line. What others wrote is visible in the arguments already.
func (p *portrait) line(format string, args ...any) { fmt.Fprintf(p, format+"\n", args...) }

// fact adds a named fact, unless it is empty.
func (p *portrait) fact(name, text string) {
	if text != "" {
		p.line("  %-11s %s", name, visible(text))
	}
}

// moment writes a time with its zone, and how far away it is.
func (p *portrait) moment(t *time.Time) string {
	switch {
	case t == nil:
		return ""
	case t.After(p.now):
		return p.stamp(*t) + " (in " + textfmt.CoarseDuration(t.Sub(p.now)) + ")"
	default:
		return p.stamp(*t) + " (" + p.ago(*t) + " ago)"
	}
}

func (p *portrait) head() {
	i := p.info
	p.line("%s  %s  %s", p.paint("1", visible(i.ID)), visible(i.Workflow), p.paint(stateColours[i.State], visible(i.State)))
	p.fact("key", i.Key)
	started := p.moment(&i.Created)
	if i.Source != "" {
		started += " by " + i.Source
	}
	p.fact("started", started)
	p.fact("next", p.moment(i.Next))
	if i.Ended == nil {
		p.fact("deadline", p.moment(i.Deadline))
	} else {
		p.fact("ended", p.moment(i.Ended)+", after "+textfmt.CoarseDuration(i.Ended.Sub(i.Created)))
	}
	p.fact("reason", i.Reason)
	p.fact("error", i.Error)
	if i.Omitted > 0 {
		p.fact("history", textfmt.PluralOf(i.Omitted, "entry", "entries")+" in its middle not kept")
	}
	p.fact("replay of", i.ReplayOf)
	if i.Origin != i.ReplayOf {
		p.fact("origin", i.Origin)
	}
	p.fact("origin key", i.OriginKey)
	p.fact("replaced by", i.ReplacedBy)
}

func (p *portrait) step(s *engine.StepInfo) {
	p.line("\n%s  %s  %s", p.paint("1", visible(s.Name)), p.paint(stateColours[s.Status], visible(s.Status)), p.paint("2", visible(s.Policy)))
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

// omitted says that attempts are not listed here.
func (p *portrait) omitted(n int) {
	if n > 0 {
		p.line("  … %s not shown: a long history keeps its beginning and its end", textfmt.Plural(n, "attempt"))
	}
}

func (p *portrait) attempt(a *engine.AttemptInfo) {
	took := " for " + textfmt.CoarseDuration(max(p.now.Sub(a.Started), 0))
	if a.Ended != nil {
		took = " after " + textfmt.CoarseDuration(a.Ended.Sub(a.Started))
	}
	text := fmt.Sprintf("  #%d %s %s%s", a.Number, p.clock(a.Started), p.paint(stateColours[a.Outcome], visible(a.Outcome)), took)
	if a.Alone {
		text += ", alone in the process"
	}
	if a.Error != "" {
		text += ": " + visible(a.Error)
	}
	p.line("%s", text)
	if w := a.Wait; w != nil {
		p.line("     %s", p.paint("33", p.wait(a, w)))
	}
	if a.Reason != "" {
		p.line("     gave up: %s", visible(a.Reason))
	}
}

// wait tells a gap between attempts: how long, until when, and who set it.
func (p *portrait) wait(a *engine.AttemptInfo, w *engine.WaitInfo) string {
	by := ", set by the " + visible(w.By)
	if w.By == "human" {
		by = ", set by hand"
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

// clock writes a time of the history: with the day, if it is another than that of
// the start.
func (p *portrait) clock(t time.Time) string {
	t, start := t.In(p.zone), p.info.Created.In(p.zone)
	if t.YearDay() != start.YearDay() || t.Year() != start.Year() {
		return t.Format("2006-01-02 15:04:05.000")
	}
	return t.Format("15:04:05.000")
}

// notes tells what happened to the run as a whole, the start apart.
func (p *portrait) notes() {
	notes := slices.DeleteFunc(slices.Clone(p.info.Notes), func(n engine.Note) bool { return n.What == "started" })
	if len(notes) == 0 {
		return
	}
	p.line("\n%s", p.paint("1", "notes"))
	for _, n := range notes {
		text := n.What
		if n.Step != "" {
			text += " " + n.Step
		}
		if n.Text != "" {
			text += ": " + n.Text
		}
		p.line("  %s %s", p.clock(n.At), visible(text))
	}
}

func (p *portrait) payload(name string, data json.RawMessage) {
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
