package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/tideover/tideover/cmd/tideover/internal/client"
	"github.com/tideover/tideover/engine"
)

const schedulesLong = `Lists schedules with their next start, and has commands to control them. For a start
that was rejected it prints the reason, and for a paused schedule who has paused it.`

const schedulesExample = `  tideover schedules
  tideover schedules pause nightly
  tideover schedules resume nightly
  tideover schedules run nightly`

func newSchedules(io Streams) *cobra.Command {
	o := newRemote(io)
	cmd := o.command(&cobra.Command{
		Use:     "schedules [flags]",
		Short:   "List and control schedules",
		Long:    schedulesLong,
		Example: schedulesExample,
		RunE: query(&o, func(ctx context.Context, c *client.Client, _ []string) (map[string][]engine.Schedule, error) {
			list, err := c.Schedules(ctx)
			return map[string][]engine.Schedule{"schedules": list}, err
		}, func(all map[string][]engine.Schedule, s *screen) []string {
			return renderSchedules(all["schedules"], s)
		}),
	}, nil)
	cmd.AddCommand(newSchedulesPause(io), newSchedulesResume(io), newSchedulesRun(io))
	return cmd
}

func newSchedulesPause(io Streams) *cobra.Command {
	o := newRemote(io)
	return o.command(&cobra.Command{
		Use:   "pause [flags] NAME",
		Short: "Pause a schedule",
		Long: `Pauses a schedule: it starts no run until it is resumed, also after a restart of the
server. Runs that it has started continue. To pause a paused schedule changes nothing.`,
		Example:           "  tideover schedules pause nightly",
		Args:              exactlyOne("schedule"),
		ValidArgsFunction: single(completeSchedules(&o)),
		RunE: query(&o, func(ctx context.Context, c *client.Client, args []string) (engine.Schedule, error) {
			return c.PauseSchedule(ctx, args[0])
		}, renderSchedule),
	}, exitsSchedule)
}

func newSchedulesResume(io Streams) *cobra.Command {
	o := newRemote(io)
	return o.command(&cobra.Command{
		Use:   "resume [flags] NAME",
		Short: "Resume a schedule that is paused",
		Long: `Resumes a schedule. Its next start is the next time of the schedule; starts that it
missed while it was paused are not made up for.`,
		Example:           "  tideover schedules resume nightly",
		Args:              exactlyOne("schedule"),
		ValidArgsFunction: single(completeSchedules(&o)),
		RunE: query(&o, func(ctx context.Context, c *client.Client, args []string) (engine.Schedule, error) {
			return c.ResumeSchedule(ctx, args[0])
		}, renderSchedule),
	}, exitsSchedule)
}

func newSchedulesRun(io Streams) *cobra.Command {
	o := newRemote(io)
	return o.command(&cobra.Command{
		Use:   "run [flags] NAME",
		Short: "Start a run of a schedule now",
		Long: `Starts a run of a schedule's workflow now, with the input of the schedule, and prints
the id of the run. The next start of the schedule does not change, and a paused
schedule stays paused.`,
		Example:           "  tideover schedules run nightly",
		Args:              exactlyOne("schedule"),
		ValidArgsFunction: single(completeSchedules(&o)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.withClient(cmd, func(ctx context.Context, c *client.Client) error {
				return o.printNewRun(c.RunSchedule(ctx, args[0]))
			})
		},
	}, exitsSchedule)
}

// renderSchedule returns the state of a schedule after a change.
func renderSchedule(c engine.Schedule, s *screen) []string {
	if c.Paused != nil {
		return []string{visible(c.Name + " " + pausedText(c.Paused.By, c.Paused.At, s))}
	}
	return []string{visible(fmt.Sprintf("%s next start %s (in %s)", c.Name, s.stamp(c.Next), s.until(&c.Next)))}
}

// pausedText says by whom something is paused, and since when.
func pausedText(by string, since time.Time, s *screen) string {
	return "paused" + optional(" by ", by, "") + " since " + s.stamp(since)
}

func renderSchedules(list []engine.Schedule, s *screen) []string {
	if len(list) == 0 {
		return []string{"no schedules"}
	}
	t := &table{heads: []string{"NAME", "WORKFLOW", "SCHEDULE", "NEXT", "IN"}}
	for _, c := range list {
		next, in := s.stamp(c.Next), s.until(&c.Next)
		if c.Paused != nil {
			next, in = "paused", "-"
		}
		t.add(plain(c.Name), plain(c.Workflow), plain(c.Cron), plain(next), plain(in))
	}
	lines := t.render(s)
	for _, c := range list {
		if c.Paused != nil {
			lines = append(lines, visible(c.Name+": "+pausedText(c.Paused.By, c.Paused.At, s)))
		}
		if r := c.Refused; r != nil {
			lines = append(lines, s.paint("31", visible(fmt.Sprintf("%s: the start at %s was rejected%s: %s", c.Name, s.stamp(r.At), refusedInARow(r, s), r.Error))))
		}
	}
	return lines
}

// refusedInARow says how many starts in a row were rejected; empty if it was only one.
func refusedInARow(r *engine.RefusedStart, s *screen) string {
	if r.Count < 2 {
		return ""
	}
	return fmt.Sprintf(" (%d in a row, the first at %s)", r.Count, s.stamp(r.Since))
}
