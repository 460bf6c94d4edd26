package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tideover/tideover/cmd/tideover/internal/admin"
	"github.com/tideover/tideover/cmd/tideover/internal/client"
	"github.com/tideover/tideover/cmd/tideover/internal/session"
	"github.com/tideover/tideover/internal/console/control"
	"github.com/tideover/tideover/internal/textfmt"
)

const deadLong = `Lists dead runs: those that gave up and have not been retried or canceled. --groups
prints one line for all runs with a similar error; pass that error to
'tideover retry --dead --error-like' to retry them.

'tideover sessions ls' lists sessions that gave up. Messages that could not be sent
are not listed but counted below the list; --internal lists them, too.`

const deadExample = `  tideover dead
  tideover dead --groups
  tideover dead --workflow order --limit 100`

func newDead(io Streams) *cobra.Command {
	o := &runsOptions{remote: newRemote(io), order: "newest"}
	var groups bool
	cmd := &cobra.Command{
		Use:     "dead [flags]",
		Short:   "List runs that gave up",
		Long:    deadLong,
		Example: deadExample,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if name := firstFilterFlag(cmd); groups && name != "" {
				return fmt.Errorf("--%s can't be used with --groups", name)
			}
			f, err := o.filter()
			if err != nil {
				return err
			}
			f.States = []string{"dead"}
			return o.withClient(cmd, func(ctx context.Context, c *client.Client) error {
				if groups {
					err = o.printGroups(ctx, c)
				} else {
					err = o.list(ctx, c, f)
				}
				if err == nil && !o.internal && !o.json && firstFilterFlag(cmd) == "" {
					err = o.printUnlisted(ctx, c)
				}
				return err
			})
		},
	}
	f := cmd.Flags()
	f.BoolVar(&groups, "groups", false, "print one line for all runs with a similar error")
	o.register(cmd, "workflow", "search", "error-like", "since", "until", "min-attempts", "tag", "internal")
	f.IntVarP(&o.limit, "limit", "n", 20, "list at most `N` runs; the maximum is 1000")
	return o.command(cmd, exitsWorkflow)
}

func (o *runsOptions) printGroups(ctx context.Context, c *client.Client) error {
	if err := o.checkLimit(); err != nil {
		return err
	}
	dead, err := c.Dead(ctx, o.limit, o.internal)
	o.warnSilentShards(dead.Silent)
	return printFetched(&o.resultPrinter, dead, err, func(dead control.Dead, s *screen) []string {
		return renderGroups(dead.Groups, s)
	})
}

// printUnlisted prints how many dead runs are not in the list.
func (o *runsOptions) printUnlisted(ctx context.Context, c *client.Client) error {
	st, err := c.Status(ctx)
	if err != nil {
		return err
	}
	for _, line := range unlistedDeadRuns(&st) {
		err = errors.Join(err, o.printLine("%s", line))
	}
	return err
}

// unlistedDeadRuns returns lines that count the dead runs that are listed only with --internal:
// messages that could not be sent, and runs that on-give-up has started.
func unlistedDeadRuns(st *admin.Status) (lines []string) {
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
		lines = append(lines, textfmt.Plural(reactions, "run")+" started by on-give-up failed: tideover dead --internal")
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
