package cli

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/tideover/tideover/cmd/tideover/internal/detect"
	"github.com/tideover/tideover/cmd/tideover/internal/session"
)

const sessionsShowLong = `Shows a session: where it is, until when it waits and who says so, what it has spent,
why its last command stopped and by which line of output that was told, and the last
lines of its output.

RUN in it is the run of the engine that has the whole history; of a session that
serve keeps, 'tideover show RUN' prints it.`

const sessionsShowExample = `  tideover sessions show nightly-refactor
  tideover sessions show nightly-refactor --lines 50
  tideover sessions show nightly-refactor --json | jq -r .last.line`

func newSessionsShow(io Streams) *cobra.Command {
	o := &sessionsOptions{remote: remote{io: io}}
	var lines int
	cmd := &cobra.Command{
		Use: "show [flags] NAME", Short: "Show a session, and why it waits", Long: sessionsShowLong, Example: sessionsShowExample,
		Args: one("session"), ValidArgsFunction: o.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			if lines < 0 {
				return fmt.Errorf("--lines: %d is negative", lines)
			}
			return o.ask(cmd, func(ctx context.Context, places []*place) error { return o.show(ctx, places, args[0], lines) })
		},
	}
	cmd.Flags().IntVar(&lines, "lines", 10, "show at most `N` of the last lines of its output")
	o.command(cmd)
	return cmd
}

func (o *sessionsOptions) show(ctx context.Context, places []*place, name string, lines int) error {
	p, err := o.keeper(ctx, places, name)
	if err != nil {
		if st, ok := o.idleNamed(ctx, name); ok && o.server == "" {
			return o.showIdle(&st)
		}
		return err
	}
	st, err := p.client.Session(ctx, name)
	if err != nil {
		return err
	}
	st.Tail = st.Tail[max(len(st.Tail)-lines, 0):]
	if o.json {
		return o.printJSON(p.locate(st))
	}
	s := screenOf(o.io.Out)
	_, err = o.io.Out.WriteString(renderSession(p.locate(st), &s))
	return err
}

// showIdle shows a session that nobody watches.
func (o *sessionsOptions) showIdle(st *idle) error {
	if o.json {
		return o.printJSON(st)
	}
	s := screenOf(o.io.Out)
	_, err := o.io.Out.WriteString(renderIdle(st, &s))
	return err
}

func renderSession(st located, s *screen) string {
	p := &portrait{screen: s}
	p.line("%s  %s  %s", p.paint("1", visible(st.Name)), p.paint(sessionColour(st.State), visible(st.State)), p.paint("2", visible(st.In+" at "+st.At)))
	if st.Next != nil {
		p.fact("next", p.moment(st.Next))
		p.fact("set by", setBy(st.WaitBy))
	}
	if l := st.Limit; l != nil {
		p.limit(l)
	}
	p.fact("because", st.WaitFor)
	p.fact("gave up", st.Reason)
	p.fact("error", other(st.Error, st.WaitFor))
	p.fact("windows", outOf(st.Windows, st.MaxWindows))
	p.fact("attempts", outOf(st.Spent, st.MaxAttempts))
	p.fact("commands", fmt.Sprintf("%d, of which %d resumed", st.Commands, st.Resumes))
	p.fact("session id", st.Session)
	p.fact("resume", st.NoResume)
	p.fact("run", st.Run)
	p.fact("started", p.moment(st.Started))
	p.fact("ended", p.moment(st.Ended))
	if st.Ended == nil {
		p.fact("deadline", p.moment(st.Deadline))
	}
	p.fact("policy", st.Policy)
	p.fact("quiet hours", st.Quiet)
	if h := st.Handover; h != nil {
		p.fact("handed over", fmt.Sprintf("to %s until %s", h.Assistant, p.moment(&h.Back)))
		p.fact("its session", h.Session)
	}
	p.fact("account", st.Account)
	p.fact("its limit", st.AccountLimit)
	if st.Last != nil {
		p.stop(st.Last)
	}
	p.turns(st.Turns)
	p.output(&st.Status)
	return p.String()
}

// other returns the text, unless it was said already.
func other(text, said string) string {
	if text == said {
		return ""
	}
	return text
}

// setBy says who set a wait.
func setBy(who string) string {
	switch who {
	case "":
		return ""
	case "human":
		return "hand"
	case "handler":
		return "the session itself"
	}
	return "the " + who
}

// outOf writes how much of something is spent, for people.
func outOf(spent, limit int) string {
	if limit < 0 {
		return strconv.Itoa(spent) + ", without limit"
	}
	return fmt.Sprintf("%d of %d", spent, limit)
}

// limit tells of a limit on the screen of a session that is still open.
func (p *portrait) limit(l *session.ScreenLimit) {
	text := "no end is stated"
	switch {
	case l.Reason == detect.Terminal.String():
		text = "no wait helps"
	case !l.Until.IsZero():
		text = "until " + p.moment(&l.Until)
	}
	p.fact("limit", text+"; on its screen, still open")
	p.fact("it says", l.Line)
	p.fact("since", p.moment(&l.At))
	if !l.Typed.IsZero() {
		p.fact("continued", "the prompt was typed "+p.moment(&l.Typed))
	}
}

// stop tells why the last command stopped.
func (p *portrait) stop(s *session.Stop) {
	p.line("\n%s", p.paint("1", "last stop"))
	p.fact("reason", s.Reason)
	p.fact("line", s.Line)
	p.fact("rule", s.Rule)
	if !s.Until.IsZero() {
		p.fact("stated end", p.moment(&s.Until))
	}
	p.fact("exit code", strconv.Itoa(s.Exit))
	p.fact("at", p.moment(&s.At))
}

// turns shows who worked when.
func (p *portrait) turns(list []session.Turn) {
	if len(list) == 0 {
		return
	}
	p.line("\n%s", p.paint("1", "who worked when"))
	for _, t := range list {
		text := p.stamp(t.From) + " to "
		if t.To.IsZero() {
			text += "now"
		} else {
			text += p.stamp(t.To) + ", " + t.Ended
		}
		if !t.Until.IsZero() {
			text += " until " + p.stamp(t.Until)
		}
		p.fact(visible(t.Assistant), text)
	}
}

// output shows the last lines of the output.
func (p *portrait) output(st *session.Status) {
	if st.Log == "" && len(st.Tail) == 0 {
		return
	}
	p.line("\n%s  %s", p.paint("1", "output"), visible(st.Log))
	for _, line := range st.Tail {
		p.line("  %s", visible(line))
	}
}
