package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/tideover/tideover/cmd/tideover/internal/client"
	"github.com/tideover/tideover/internal/console/control"
)

type tailOptions struct {
	remote
	follow               bool
	run, workflow, after string
	kinds                []string
}

const eventsLong = `Prints the latest events of the server, one line each. With --follow it prints new
events until it is interrupted; if the server is unreachable, it reconnects and
prints the events that it missed, as far as the server still has them.

With --json each line is an event as in the files of 'exec --events', with its number
and a sentence.`

const eventsExample = `  tideover events
  tideover events --follow --kind gave-up,attempt-lost
  tideover events --follow --workflow order --json | jq -r .message
  tideover events --run order-4711`

func newEvents(io Streams) *cobra.Command {
	o := &tailOptions{remote: newRemote(io)}
	cmd := &cobra.Command{
		Use:     "events [flags]",
		Short:   "Print the events of the server",
		Long:    eventsLong,
		Example: eventsExample,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, k := range o.kinds {
				if !slices.Contains(control.Kinds(), k) {
					return fmt.Errorf("--kind: %w", unknownWord("kind", k, control.Kinds()))
				}
			}
			return o.withClient(cmd, o.tail)
		},
	}
	f := cmd.Flags()
	f.BoolVarP(&o.follow, "follow", "f", false, "print new events as they happen")
	f.StringVar(&o.run, "run", "", "only events of this `run`")
	f.StringVar(&o.workflow, "workflow", "", "only events of the workflow with this `name`")
	f.StringSliceVar(&o.kinds, "kind", nil, "only events of these `kinds`")
	f.StringVar(&o.after, "after", "", "start after the event with this `number`; 0 prints all that the server still has")
	return o.command(cmd, exitsRun)
}

func (o *tailOptions) tail(ctx context.Context, c *client.Client) error {
	wish := client.EventFilter{After: o.after, Run: o.run, Workflow: o.workflow, Kinds: o.kinds, Once: !o.follow}
	if wish.After == "" && !o.follow {
		wish.After = "0"
	}
	var failed error
	err := c.Events(ctx, wish, func(e control.Event) bool {
		failed = o.printJSONOrLine(e, "%s", eventLine(&e))
		return failed == nil
	}, func(m control.Missed) {
		if m.Count > 0 {
			o.warn("%d events were missed: %s", m.Count, m.Why)
		} else {
			o.warn("events may be missing: %s", m.Why)
		}
	})
	return cmp.Or(failed, err)
}

// eventLine returns an event as one line.
func eventLine(e *control.Event) string {
	run := optional("", e.Run[:min(len(e.Run), shortID)], " ")
	return e.Time.Local().Format("2006-01-02 15:04:05.000") + " " + run + e.Name + ": " + e.Message
}
