package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tideover/tideover/cmd/tideover/internal/client"
	"github.com/tideover/tideover/cmd/tideover/internal/control"
	"github.com/tideover/tideover/cmd/tideover/internal/session"
	"github.com/tideover/tideover/internal/textfmt"
)

const deadLong = `Lists the dead letters: runs that have given up, and that nobody has retried or
canceled yet. With --groups, those that failed alike are one line; its error can
be given to 'tideover retry --dead --error-like'.

Sessions that gave up are in 'tideover sessions ls'. Messages that could not be sent
are left out, and counted below the list; --internal lists them, too.`

const deadExample = `  tideover dead
  tideover dead --groups
  tideover dead --workflow order --limit 100`

func newDead(io Streams) *cobra.Command {
	o := &runsOptions{remote: remote{io: io}, order: "newest"}
	var groups bool
	cmd := &cobra.Command{
		Use:               "dead [flags]",
		Short:             "List runs that have given up",
		Long:              deadLong,
		Example:           deadExample,
		Args:              none,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if name := filtered(cmd); groups && name != "" {
				return fmt.Errorf("--%s is not for --groups", name)
			}
			f, err := o.filter()
			if err != nil {
				return err
			}
			f.States = []string{"dead"}
			return o.ask(cmd, func(ctx context.Context, c *client.Client) error {
				if groups {
					err = o.groups(ctx, c)
				} else {
					err = o.list(ctx, c, f)
				}
				if err == nil && !o.internal && !o.json && filtered(cmd) == "" {
					err = o.unlisted(ctx, c)
				}
				return err
			})
		},
	}
	f := cmd.Flags()
	f.BoolVar(&groups, "groups", false, "one line for all that failed alike")
	o.register(cmd, "workflow", "search", "error-like", "since", "until", "min-attempts", "internal")
	f.IntVar(&o.limit, "limit", 20, "list at most `N`, 1000 at most")
	o.command(cmd)
	o.completeFlags(cmd)
	return cmd
}

func (o *runsOptions) groups(ctx context.Context, c *client.Client) error {
	if o.limit < 1 || o.limit > 1000 {
		return fmt.Errorf("--limit: %d is not between 1 and 1000", o.limit)
	}
	dead, err := c.Dead(ctx, o.limit, o.internal)
	if err != nil {
		return err
	}
	o.missing(dead.Silent)
	if o.json {
		return o.printJSON(dead)
	}
	s := screenOf(o.io.Out)
	_, err = fmt.Fprintln(o.io.Out, strings.Join(renderGroups(dead.Groups, &s), "\n"))
	return err
}

// unlisted says how many dead runs the list leaves out.
func (o *runsOptions) unlisted(ctx context.Context, c *client.Client) error {
	st, err := c.Status(ctx)
	if err != nil {
		return err
	}
	for _, line := range leftOut(&st) {
		if err := o.say("%s", line); err != nil {
			return err
		}
	}
	return nil
}

// leftOut says which dead runs are in no list unless they are asked for.
func leftOut(st *control.Status) (lines []string) {
	messages, reactions := 0, 0
	for _, w := range st.Workflows {
		switch n := w.States["dead"]; {
		case control.Message(w.Name):
			messages += n
		case control.Internal(w.Name) && !strings.HasPrefix(w.Name, session.Prefix):
			reactions += n
		}
	}
	if messages > 0 {
		lines = append(lines, textfmt.Plural(messages, "message")+" could not be sent: tideover dead --internal")
	}
	if reactions > 0 {
		lines = append(lines, textfmt.Plural(reactions, "run")+" of on-give-up gave up: tideover dead --internal")
	}
	return lines
}

func renderGroups(groups []control.Group, s *screen) []string {
	if len(groups) == 0 {
		return []string{"no dead runs"}
	}
	t := &table{heads: []string{"RUNS", "WORKFLOW", "STEP", "FIRST", "LAST", "ERROR"}}
	for _, g := range groups {
		t.add(cell{strconv.Itoa(g.Count), "31"}, plain(g.Workflow), plain(g.Step), plain(s.ago(g.First)), plain(s.ago(g.Last)), plain(firstLine(g.Error)))
	}
	return t.render(s)
}
