package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tideover/tideover/cmd/tideover/internal/client"
	"github.com/tideover/tideover/cmd/tideover/internal/control"
	"github.com/tideover/tideover/cmd/tideover/internal/session"
)

// sessionsOptions are what all verbs for sessions have.
type sessionsOptions struct {
	remote
	timeout duration // for the answer of each process that keeps sessions
	all     bool     // list also those that ended long ago
}

const sessionsLong = `Looks at sessions and tells them what to do: long commands that 'tideover serve'
keeps going by its configuration, and those of every 'tideover watch' of yours.`

const sessionsExample = `  tideover sessions ls --watch
  tideover sessions show nightly-refactor
  tideover sessions logs -f nightly-refactor
  tideover sessions pause nightly-refactor --until 07:00
  tideover sessions stop nightly-refactor --tonight
  tideover sessions retry-now nightly-refactor
  tideover sessions rm claude-1f2e3d`

const sessionsPlaces = `
Sessions are looked for at the server, and at the sockets of every watch, which are
in tideover/watch in $XDG_STATE_HOME or ~/.local/state, or in watch of the data
folder that the configuration names. --server says that only this one is meant: a
server, or with unix:PATH a watch.`

const sessionsCodes = `
Exit codes:
  0      done
  3      there is no such session, or there are several of the name
  125    an error of ours: a bad flag, nobody to ask, something that was refused
  128+n  signal n told us to end; the session goes on`

func newSessions(io Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "sessions",
		Short:   "Look at sessions, and tell them what to do",
		Long:    sessionsLong,
		Example: sessionsExample,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newSessionsList(io), newSessionsShow(io), newSessionsLogs(io), newSessionsRemove(io), newStatusLine(io), newSessionsHook(io))
	for _, v := range sessionVerbs() {
		cmd.AddCommand(v.command(io))
	}
	return cmd
}

// command adds the flags and the common help to a verb.
func (o *sessionsOptions) command(cmd *cobra.Command) {
	long := strings.TrimSpace(cmd.Long)
	o.remote.command(cmd)
	o.timeout = answerTimeout
	cmd.Flags().Var(&o.timeout, "timeout", "how long to wait for the answer of the server and of each watch")
	o.completeFlags(cmd)
	cmd.Long = long + "\n" + sessionsPlaces + "\n" + sessionsCodes
}

// ask does something with everybody who keeps sessions.
func (o *sessionsOptions) ask(cmd *cobra.Command, do func(ctx context.Context, places []*place) error) error {
	if o.timeout <= 0 {
		return fmt.Errorf("--timeout: %v is not above 0", &o.timeout)
	}
	ctx, stop := o.context(cmd)
	defer stop()
	places, err := o.places()
	if err != nil {
		return err
	}
	defer closePlaces(places)
	err = do(ctx, places)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// sessionVerb is a verb that changes a session.
type sessionVerb struct {
	name, short, long, example string

	flags func(*cobra.Command)
	do    func(ctx context.Context, c *client.Client, name string) (session.Status, error)

	ending func() string // what a command that runs is told to end for; nil for nothing
}

func sessionVerbs() []sessionVerb {
	return []sessionVerb{
		pauseVerb(),
		{
			name: "resume", short: "Have a session go on that was paused, or has ended",
			long: `Has a session go on that was paused: with its command, or with what is left of its
wait. One that gave up is put back to work, with new attempts. One that was
completed or stopped begins anew.`,
			example: "  tideover sessions resume nightly-refactor",
			do: func(ctx context.Context, c *client.Client, name string) (session.Status, error) {
				return c.ResumeSession(ctx, name)
			},
		},
		{
			name: "retry-now", short: "End the wait of a session",
			long: `Ends the wait of a session, so that its next command begins now. One that is paused
goes on, and one that gave up is put back to work.`,
			example: "  tideover sessions retry-now nightly-refactor",
			do: func(ctx context.Context, c *client.Client, name string) (session.Status, error) {
				return c.RetrySession(ctx, name)
			},
		},
		stopVerb(),
		{
			name: "reset", short: "Forget what a session has spent",
			long: `Forgets the attempts and windows that a session has spent, so that it may spend them
again. Its wait goes on.`,
			example: "  tideover sessions reset nightly-refactor",
			do: func(ctx context.Context, c *client.Client, name string) (session.Status, error) {
				return c.ResetSession(ctx, name)
			},
		},
	}
}

func pauseVerb() sessionVerb {
	var until moment
	return sessionVerb{
		name: "pause", short: "Have a session do nothing for a while",
		long: `Has a session do nothing until it is resumed, or with --until until a time. A command
that runs is told to end; the session goes on from there.`,
		example: `  tideover sessions pause nightly-refactor
  tideover sessions pause nightly-refactor --until 07:00
  tideover sessions pause nightly-refactor --until 8h
  tideover sessions pause nightly-refactor --until 2026-11-15T07:00:00+01:00`,
		flags: func(cmd *cobra.Command) {
			cmd.Flags().Var(&until, "until", "go on at a time: 07:00 here, a whole one with date and zone, or after a duration such as 8h")
			_ = cmd.RegisterFlagCompletionFunc("until", list(nil))
		},
		do: func(ctx context.Context, c *client.Client, name string) (session.Status, error) {
			return c.PauseSession(ctx, name, control.SessionPause{Until: until.at})
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
		name: "stop", short: "End a session",
		long: `Ends a session. A command that runs is told to end. 'tideover sessions resume' begins
anew.

With --tonight it only does nothing until the end of its quiet hours, or until
` + session.DefaultMorning + ` if it has none.`,
		example: `  tideover sessions stop nightly-refactor
  tideover sessions stop nightly-refactor --tonight`,
		flags: func(cmd *cobra.Command) {
			cmd.Flags().BoolVar(&tonight, "tonight", false, "go on in the morning")
		},
		do: func(ctx context.Context, c *client.Client, name string) (session.Status, error) {
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
	o := &sessionsOptions{remote: remote{io: io}}
	cmd := &cobra.Command{
		Use: v.name + " [flags] NAME", Short: v.short, Long: v.long, Example: v.example,
		Args: one("session"), ValidArgsFunction: o.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.ask(cmd, func(ctx context.Context, places []*place) error {
				p, err := o.keeper(ctx, places, args[0])
				if err != nil {
					return err
				}
				st, err := v.do(ctx, p.client, args[0])
				if err != nil {
					return err
				}
				ending := ""
				if v.ending != nil {
					ending = v.ending()
				}
				return o.tell(p.locate(st), ending)
			})
		},
	}
	if v.flags != nil {
		v.flags(cmd)
	}
	o.command(cmd)
	return cmd
}

// tell prints where a session is after it was told something. The ending is what
// follows when a command that runs has ended, as it was told to.
func (o *sessionsOptions) tell(s located, ending string) error {
	if o.json {
		return o.printJSON(s)
	}
	sc := screenOf(o.io.Out)
	text := s.Name + " " + s.State
	if s.State == "running" && ending != "" {
		text = s.Name + ": its command is told to end; it is " + ending + ", by " + whoami()
	} else if s.Next != nil {
		text += " until " + sc.stamp(*s.Next) + " (" + sc.until(s.Next) + ")"
	}
	return o.say("%s", text)
}

// moment is a flag for a time to come.
type moment struct {
	text string
	at   time.Time
}

func (m *moment) String() string { return m.text }
func (m *moment) Type() string   { return "time" }

// Set implements [pflag.Value].
func (m *moment) Set(text string) (err error) {
	m.text = text
	m.at, err = parseUntil(text, time.Now())
	return err
}

// parseUntil reads a time to come: one of the day, a whole one, or a duration.
func parseUntil(text string, now time.Time) (time.Time, error) {
	if _, err := time.Parse("15:04", text); err == nil {
		return (&session.Hours{To: text}).End(now), nil
	}
	t, err := control.ParseMoment(text, +1)
	switch {
	case err != nil:
		return t, fmt.Errorf("%q is neither a time such as 07:00 or 2026-11-15T07:00:00Z nor a duration such as 8h", text)
	case !t.After(now):
		return t, fmt.Errorf("%s is over", text)
	}
	return t, nil
}

// completeNames offers the names of sessions, for one argument.
func (o *sessionsOptions) completeNames(_ *cobra.Command, args []string, prefix string) (names []cobra.Completion, _ cobra.ShellCompDirective) {
	places, err := o.places()
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer closePlaces(places)
	ctx, cancel := context.WithTimeout(context.Background(), completionTimeout)
	defer cancel()
	found, _, _ := survey(ctx, places)
	for _, s := range found {
		if strings.HasPrefix(s.Name, prefix) {
			names = append(names, cobra.CompletionWithDesc(visible(s.Name), visible(s.State)))
		}
	}
	return slices.Compact(names), cobra.ShellCompDirectiveNoFileComp
}
