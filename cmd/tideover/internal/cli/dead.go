package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tideover/tideover/cmd/tideover/internal/api"
)

const deadLong = `Lists the dead letters: runs that have given up, and that nobody has retried or
canceled yet. With --groups, those that failed alike are one line; its error can
be given to 'tideover retry --dead --error-like'.`

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
		Args:              cobra.NoArgs,
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
			return o.ask(cmd, func(ctx context.Context, c *api.Client) error {
				if groups {
					return o.groups(ctx, c)
				}
				return o.list(ctx, c, f)
			})
		},
	}
	f := cmd.Flags()
	f.BoolVar(&groups, "groups", false, "one line for all that failed alike")
	o.register(cmd, "workflow", "search", "error-like", "since", "until", "min-attempts")
	f.IntVar(&o.limit, "limit", 20, "list at most `N`, 1000 at most")
	o.command(cmd)
	o.completeFlags(cmd)
	return cmd
}

func (o *runsOptions) groups(ctx context.Context, c *api.Client) error {
	if o.limit < 1 || o.limit > 1000 {
		return fmt.Errorf("--limit: %d is not between 1 and 1000", o.limit)
	}
	groups, err := c.Dead(ctx, o.limit)
	if err != nil {
		return err
	}
	if o.json {
		return o.printJSON(map[string]any{"groups": groups})
	}
	s := screenOf(o.io.Out)
	_, err = fmt.Fprintln(o.io.Out, strings.Join(renderGroups(groups, &s), "\n"))
	return err
}

func renderGroups(groups []api.Group, s *screen) []string {
	if len(groups) == 0 {
		return []string{"no dead runs"}
	}
	t := &table{heads: []string{"RUNS", "WORKFLOW", "STEP", "FIRST", "LAST", "ERROR"}}
	for _, g := range groups {
		t.add(cell{strconv.Itoa(g.Count), "31"}, plain(g.Workflow), plain(g.Step), plain(s.ago(g.First)), plain(s.ago(g.Last)), plain(g.Error))
	}
	return t.render(s)
}
