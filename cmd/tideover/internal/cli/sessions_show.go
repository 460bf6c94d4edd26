package cli

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/tideover/tideover/cmd/tideover/internal/detect"
	"github.com/tideover/tideover/cmd/tideover/internal/session"
)

const sessionsShowLong = `Shows a session: its state, until when it waits and who set the wait, its attempts and
windows, why its last command stopped and which line of output said so, and the last
lines of its output.

"run" is the id of the engine's run with the whole history. If the session runs in
serve, 'tideover show RUN' prints it.`

const sessionsShowExample = `  tideover sessions show nightly-refactor
  tideover sessions show nightly-refactor --lines 50
  tideover sessions show nightly-refactor --json | jq -r .last.line`

func newSessionsShow(io Streams) *cobra.Command {
	o := &sessionsOptions{remote: newRemote(io)}
	var lines int
	cmd := &cobra.Command{
		Use: "show [flags] NAME", Short: "Show a session and why it waits", Long: sessionsShowLong, Example: sessionsShowExample,
		Args: exactlyOne("session"), ValidArgsFunction: o.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			if lines < 0 {
				return fmt.Errorf("--lines: %d is negative", lines)
			}
			return o.withHosts(cmd, func(ctx context.Context, hosts []*sessionHost) error {
				return showSession(ctx, o, hosts, args[0], lines)
			})
		},
	}
	cmd.Flags().IntVarP(&lines, "lines", "n", 10, "show at most `N` of the last lines of its output")
	return o.command(cmd)
}

func showSession(ctx context.Context, o *sessionsOptions, hosts []*sessionHost, name string, lines int) error {
	p, err := o.findRunningHost(ctx, hosts, name)
	if err != nil {
		if st, ok := o.unwatchedByName(ctx, name); ok && o.server == "" {
			return printFetched(&o.resultPrinter, &st, nil, renderUnwatched)
		}
		return err
	}
	st, err := p.client.Session(ctx, name)
	st.Tail = st.Tail[max(len(st.Tail)-lines, 0):]
	return printFetched(&o.resultPrinter, p.locate(st), err, renderSession)
}

func renderSession(st hostedSession, s *screen) []string {
	p := &details{screen: s}
	p.line("%s  %s  %s", p.paint("1", visible(st.Name)), p.paint(sessionColour(st.State), visible(st.State)), p.paint("2", visible(st.In+" at "+st.At)))
	if st.Next != nil {
		p.field("next", p.moment(st.Next))
		p.field("set by", st.WaitSetter())
	}
	if l := st.Limit; l != nil {
		p.limit(l)
	}
	p.field("because", st.WaitFor)
	p.field("gave up", st.Reason)
	p.field("error", unlessEqual(st.Error, st.WaitFor))
	p.field("windows", outOf(st.Windows, st.MaxWindows))
	p.field("attempts", outOf(st.Spent, st.MaxAttempts))
	p.field("commands", fmt.Sprintf("%d, of which %d resumed", st.Commands, st.Resumes))
	p.field("session id", st.Session)
	p.field("resume", st.NoResume)
	p.field("run", st.Run)
	p.field("started", p.moment(st.Started))
	p.field("ended", p.moment(st.Ended))
	if st.Ended == nil {
		p.field("deadline", p.moment(st.Deadline))
	}
	p.field("policy", st.Policy)
	p.field("quiet hours", st.Quiet)
	if h := st.Handover; h != nil {
		p.field("handed over", fmt.Sprintf("to %s until %s", h.Assistant, p.moment(&h.Back)))
		p.field("its session", h.Session)
	}
	p.field("account", st.Account)
	p.field("its limit", st.AccountLimit)
	if st.Last != nil {
		p.stop(st.Last)
	}
	p.turns(st.Turns)
	p.output(&st.Status)
	return p.lines
}

// unlessEqual returns text, or an empty string if it equals said.
func unlessEqual(text, said string) string {
	if text == said {
		return ""
	}
	return text
}

// outOf formats a counter with its limit, such as "2 of 5"; a negative limit means unlimited.
func outOf(spent, limit int) string {
	if limit < 0 {
		return strconv.Itoa(spent) + ", no limit"
	}
	return fmt.Sprintf("%d of %d", spent, limit)
}

// limit adds the usage limit that an interactive session shows on its screen.
func (p *details) limit(l *session.ScreenLimit) {
	text := "no end is stated"
	switch {
	case l.Reason == detect.Terminal.String():
		text = "waiting does not help"
	case !l.Until.IsZero():
		text = "until " + p.moment(&l.Until)
	}
	p.field("limit", text+"; on its screen, still open")
	if l.Asks {
		p.field("it asks", "what to do: choose at its terminal")
	}
	p.field("it says", l.Line)
	p.field("since", p.moment(&l.At))
	if !l.Typed.IsZero() {
		p.field("continued", "the prompt was typed "+p.moment(&l.Typed))
	}
}

// stop adds a section that says why the last command stopped.
func (p *details) stop(s *session.Stop) {
	p.line("\n%s", p.paint("1", "last stop"))
	p.field("reason", s.Reason)
	p.field("line", s.Line)
	p.field("rule", s.Rule)
	if !s.Until.IsZero() {
		p.field("stated end", p.moment(&s.Until))
	}
	p.field("exit code", strconv.Itoa(s.Exit))
	p.field("at", p.moment(&s.At))
}

// turns adds a section with the times at which each assistant worked.
func (p *details) turns(list []session.Turn) {
	if len(list) == 0 {
		return
	}
	p.line("\n%s", p.paint("1", "assistants"))
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
		p.field(visible(t.Assistant), text)
	}
}

// output adds a section with the path of the log and the last lines of the output.
func (p *details) output(st *session.Status) {
	if st.Log == "" && len(st.Tail) == 0 {
		return
	}
	p.line("\n%s  %s", p.paint("1", "output"), visible(st.Log))
	for _, line := range st.Tail {
		p.line("  %s", visible(line))
	}
}
