package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tideover/tideover/cmd/tideover/internal/admin"
	"github.com/tideover/tideover/cmd/tideover/internal/client"
	"github.com/tideover/tideover/cmd/tideover/internal/httpserver"
	"github.com/tideover/tideover/cmd/tideover/internal/session"
	"github.com/tideover/tideover/internal/console/control"
)

// sessionsOptions holds the flags that all commands about sessions have.
type sessionsOptions struct {
	remote
	timeout duration // how long to wait for the answer of the server and of each watch
	all     bool     // also list sessions that ended more than a day ago
}

const sessionsLong = `Lists sessions, and has commands to control them. A session is a long-running command
that 'tideover serve' or 'tideover watch' resumes after limits and failures.

` + sessionsListDetails

const sessionsExample = `  tideover sessions
  tideover sessions --watch
  tideover sessions show nightly-refactor
  tideover sessions logs -f nightly-refactor
  tideover sessions pause nightly-refactor --until 07:00
  tideover sessions stop nightly-refactor --tonight
  tideover sessions wake nightly-refactor
  tideover sessions rm claude-1f2e3d`

func newSessions(io Streams) *cobra.Command {
	cmd := newSessionsList(io, &cobra.Command{
		Use: "sessions [flags]", Short: "List and control sessions", Long: sessionsLong, Example: sessionsExample,
	})
	list := &cobra.Command{Use: "ls [flags]", Aliases: []string{"list"}, Short: "List sessions", Long: "Lists sessions.\n\n" + sessionsListDetails, Example: sessionsListExample}
	cmd.AddCommand(newSessionsList(io, list), newSessionsShow(io), newSessionsLogs(io), newSessionsAdopt(io), newSessionsRemove(io), newStatusLine(io), newSessionsHook(io))
	for _, v := range sessionVerbs() {
		cmd.AddCommand(v.command(io))
	}
	return cmd
}

// command adds the common flags and help to a command, and returns it.
func (o *sessionsOptions) command(cmd *cobra.Command) *cobra.Command {
	codes := exits{codeSignal: "ended by signal n; the session continues"}
	if cmd.ValidArgsFunction != nil {
		codes[CodeUnknown] = "unknown session, or several with the same name"
	}
	o.remote.command(cmd, codes)
	o.timeout = answerTimeout
	cmd.Flags().Var(&o.timeout, "timeout", "how long to wait for the answer of the server and of each watch")
	return cmd
}

// withHosts connects to all processes that run sessions and calls do.
func (o *sessionsOptions) withHosts(cmd *cobra.Command, do func(ctx context.Context, hosts []*sessionHost) error) error {
	if o.timeout <= 0 {
		return fmt.Errorf("--timeout: %v is too short: want more than 0", &o.timeout)
	}
	ctx, stop := contextUntilSignal(cmd.Context())
	defer stop()
	hosts, err := o.sessionHosts()
	if err != nil {
		return err
	}
	defer closeHosts(hosts)
	err = do(ctx, hosts)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// sessionVerb is a command that changes a session.
type sessionVerb struct {
	name, short, long, example string

	flags  func(*cobra.Command) // adds the flags of this command; nil if it has none
	do     func(c *client.Client, ctx context.Context, name string) (session.Status, error)
	ending func() string // returns the state that follows when the running command has ended; nil if do does not end it
}

func sessionVerbs() []sessionVerb {
	return []sessionVerb{
		pauseVerb(),
		{
			name: "resume", short: "Resume a session that is paused or has ended",
			long: `Resumes a session. A paused session continues with its command, or with the rest of its
wait. A session that gave up gets new attempts. A session that was completed or stopped
starts again from the beginning.`,
			example: "  tideover sessions resume nightly-refactor",
			do:      (*client.Client).ResumeSession,
		},
		{
			name: "wake", short: "Start the next command of a waiting session now",
			long: `Ends the wait of a session, so that its next command starts now. A paused session is
resumed, and a session that gave up gets new attempts.`,
			example: "  tideover sessions wake nightly-refactor",
			do:      (*client.Client).RetrySession,
		},
		stopVerb(),
		{
			name: "reset", short: "Reset the attempts and windows of a session",
			long: `Sets the counters of attempts and windows of a session to 0, so that it can use all of
them again. A wait continues.`,
			example: "  tideover sessions reset nightly-refactor",
			do:      (*client.Client).ResetSession,
		},
	}
}

func pauseVerb() sessionVerb {
	var until futureTime
	return sessionVerb{
		name: "pause", short: "Pause a session",
		long: `Pauses a session until it is resumed, or with --until until a time. Its running command is
ended, and the session continues from there.`,
		example: `  tideover sessions pause nightly-refactor
  tideover sessions pause nightly-refactor --until 07:00
  tideover sessions pause nightly-refactor --until 8h
  tideover sessions pause nightly-refactor --until 2026-11-15T07:00:00+01:00`,
		flags: func(cmd *cobra.Command) {
			cmd.Flags().Var(&until, "until", "resume at this time: 07:00 local time, a full time with date and zone, or a duration such as 8h")
			_ = cmd.RegisterFlagCompletionFunc("until", completeWords(nil))
		},
		do: func(c *client.Client, ctx context.Context, name string) (session.Status, error) {
			return c.PauseSession(ctx, name, admin.SessionPause{Until: until.at})
		},
		ending: func() string {
			if until.at.IsZero() {
				return "paused"
			}
			return "paused until " + until.at.Local().Format("Mon 15:04")
		},
	}
}

func stopVerb() sessionVerb {
	var tonight bool
	return sessionVerb{
		name: "stop", short: "Stop a session",
		long: `Stops a session and ends its running command. 'tideover sessions resume' starts it again
from the beginning.

With --tonight the session is only paused until the end of its quiet hours, or until
` + session.DefaultMorning + ` if it has none.`,
		example: `  tideover sessions stop nightly-refactor
  tideover sessions stop nightly-refactor --tonight`,
		flags: func(cmd *cobra.Command) {
			cmd.Flags().BoolVar(&tonight, "tonight", false, "only pause until the morning")
		},
		do: func(c *client.Client, ctx context.Context, name string) (session.Status, error) {
			return c.StopSession(ctx, name, tonight)
		},
		ending: func() string {
			if tonight {
				return "paused until the morning"
			}
			return "stopped"
		},
	}
}

func (v sessionVerb) command(io Streams) *cobra.Command {
	o := &sessionsOptions{remote: newRemote(io)}
	cmd := &cobra.Command{
		Use: v.name + " [flags] NAME", Short: v.short, Long: v.long, Example: v.example,
		Args: exactlyOne("session"), ValidArgsFunction: o.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.withHosts(cmd, func(ctx context.Context, hosts []*sessionHost) error {
				p, err := o.findRunningHost(ctx, hosts, args[0])
				if err != nil {
					return err
				}
				st, err := v.do(p.client, ctx, args[0])
				if err != nil {
					return err
				}
				return o.printRendered(p.locate(st), func(s *screen) []string {
					return []string{visible(v.result(st, s))}
				})
			})
		},
	}
	cmd.Aliases = otherNames(v.name)
	if v.flags != nil {
		v.flags(cmd)
	}
	return o.command(cmd)
}

// result returns the line that is printed after the change: the session and its new state.
func (v sessionVerb) result(st session.Status, s *screen) string {
	switch {
	case st.State == "running" && v.ending != nil:
		return st.Name + ": ending its command; then " + v.ending() + ", by " + httpserver.LocalName()
	case st.Next != nil:
		return st.Name + " " + st.State + " until " + s.stamp(*st.Next) + " (" + s.until(st.Next) + ")"
	}
	return st.Name + " " + st.State
}

// futureTime is the value of a flag: a time in the future.
type futureTime struct {
	text string
	at   time.Time
}

func (m *futureTime) String() string { return m.text }
func (m *futureTime) Type() string   { return "time" }

// Set implements [pflag.Value].
func (m *futureTime) Set(text string) (err error) {
	m.text = text
	m.at, err = parseUntil(text, time.Now())
	return err
}

// parseUntil parses a time in the future: a time of day, a full time, or a duration.
func parseUntil(text string, now time.Time) (time.Time, error) {
	if _, err := time.Parse("15:04", text); err == nil {
		return (&session.Hours{To: text}).End(now), nil
	}
	t, err := control.ParseMoment(text, +1)
	switch {
	case err != nil:
		return t, fmt.Errorf("%q is not a time: want one such as 07:00 or 2026-11-15T07:00:00Z, or a duration such as 8h", text)
	case !t.After(now):
		return t, fmt.Errorf("%s is in the past", text)
	}
	return t, nil
}

// completeNames completes the name of a session as the only argument.
func (o *sessionsOptions) completeNames(_ *cobra.Command, args []string, prefix string) (names []cobra.Completion, _ cobra.ShellCompDirective) {
	hosts, err := o.sessionHosts()
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer closeHosts(hosts)
	ctx, cancel := context.WithTimeout(context.Background(), completionTimeout)
	defer cancel()
	found, _, _ := querySessions(ctx, hosts)
	for _, s := range found {
		if strings.HasPrefix(s.Name, prefix) {
			names = append(names, cobra.CompletionWithDesc(visible(s.Name), visible(s.State)))
		}
	}
	return slices.Compact(names), cobra.ShellCompDirectiveNoFileComp
}
