package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tideover/tideover/cmd/tideover/internal/session"
)

const sessionsLogsLong = `Prints the stored output of a session's commands: the last 40 MB. A line that begins
with --- and a time precedes the output of each command.

With --follow it continues until it is interrupted or the session ends.`

const sessionsLogsExample = `  tideover sessions logs nightly-refactor
  tideover sessions logs -n 50 nightly-refactor
  tideover sessions logs -f nightly-refactor`

// logsEvery is the interval at which --follow checks for more output.
const logsEvery = 500 * time.Millisecond

// sessionLogs holds the flags of sessions logs, and the source of the output.
type sessionLogs struct {
	sessionsOptions
	follow bool
	lines  int // number of last lines to print; -1 means all

	// read returns the output after a position. An empty position is the beginning.
	read func(ctx context.Context, after string) (session.OutputPart, error)
	// over reports whether the session has ended.
	over func(ctx context.Context) (bool, error)
}

func newSessionsLogs(io Streams) *cobra.Command {
	o := &sessionLogs{sessionsOptions: sessionsOptions{remote: newRemote(io)}}
	cmd := &cobra.Command{
		Use: "logs [flags] NAME", Short: "Print the output of a session", Long: sessionsLogsLong, Example: sessionsLogsExample,
		Args: exactlyOne("session"), ValidArgsFunction: o.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.lines < -1 {
				return fmt.Errorf("--lines: %d is not a number of lines: want 0 or more, or -1 for all", o.lines)
			}
			if o.json {
				return errors.New("--json is not supported: the output of a session is not JSON")
			}
			return o.withHosts(cmd, func(ctx context.Context, hosts []*sessionHost) error {
				if err := o.locate(ctx, hosts, args[0]); err != nil {
					return err
				}
				return o.print(ctx)
			})
		},
	}
	cmd.Flags().BoolVarP(&o.follow, "follow", "f", false, "continue with new output")
	cmd.Flags().IntVarP(&o.lines, "lines", "n", -1, "print at most `N` of the last lines; -1 means all")
	return o.command(cmd)
}

// locate sets read and over. They ask the process that runs the session or, if its watch is not
// running, read from the folder of the watch.
func (o *sessionLogs) locate(ctx context.Context, hosts []*sessionHost, name string) error {
	p, err := o.findRunningHost(ctx, hosts, name)
	if err == nil {
		o.read = func(ctx context.Context, after string) (session.OutputPart, error) {
			return p.client.SessionOutput(ctx, name, after)
		}
		o.over = func(ctx context.Context) (bool, error) {
			st, err := p.client.Session(ctx, name)
			return st.Over(), err
		}
		return nil
	}
	st, ok := o.unwatchedByName(ctx, name)
	if !ok || o.server != "" {
		return err
	}
	logs := session.Logs{Dir: st.folder}
	o.read = func(_ context.Context, after string) (session.OutputPart, error) { return logs.Read(name, after) }
	o.over = func(context.Context) (bool, error) { return true, nil }
	return nil
}

// print prints the output: all of it, or the last lines. With --follow it continues until the
// session or the context ends.
func (o *sessionLogs) print(ctx context.Context) error {
	var last []string // with --lines, the last lines of the output that was read so far
	after := ""
	emit := func(text string) error {
		_, err := o.io.Out.WriteString(session.PlainText(text))
		return err
	}
	for {
		over, err := true, error(nil)
		if o.follow {
			if over, err = o.over(ctx); err != nil {
				return err
			}
		}
		part, err := o.read(ctx, after)
		if err != nil {
			return err
		}
		if part.Lost {
			o.warn("part of the output is missing: it is older than what is stored")
		}
		after = part.Next
		if o.lines >= 0 {
			last = lastLines(last, part.Text, o.lines)
			if !part.More {
				err, last, o.lines = emit(strings.Join(last, "")), nil, -1
			}
		} else {
			err = emit(part.Text)
		}
		switch {
		case err != nil:
			return err
		case part.More:
			continue
		case !o.follow || over:
			return nil
		}
		select {
		case <-time.After(logsEvery):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// lastLines appends the lines of text to lines and returns the last n. If the last line of lines
// has no line break, text continues that line.
func lastLines(lines []string, text string, n int) []string {
	if len(lines) > 0 && !strings.HasSuffix(lines[len(lines)-1], "\n") {
		text = lines[len(lines)-1] + text
		lines = lines[:len(lines)-1]
	}
	for line := range strings.Lines(text) {
		lines = append(lines, line)
	}
	return slices.Clone(lines[max(len(lines)-n, 0):])
}
