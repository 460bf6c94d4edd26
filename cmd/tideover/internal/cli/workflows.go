package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tideover/tideover/cmd/tideover/internal/client"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/console/control"
	"github.com/tideover/tideover/internal/textfmt"
)

const workflowsLong = `Lists the workflows that can be started, with their steps and policies, and has commands
to pause and resume them.`

const workflowsExample = `  tideover workflows
  tideover workflows pause order
  tideover workflows resume order
  tideover workflows --json | jq -r '.workflows[].name'`

func newWorkflows(io Streams) *cobra.Command {
	o := newRemote(io)
	cmd := o.command(&cobra.Command{
		Use:     "workflows [flags]",
		Short:   "List, pause and resume workflows",
		Long:    workflowsLong,
		Example: workflowsExample,
		RunE: query(&o, func(ctx context.Context, c *client.Client, _ []string) (control.Workflows, error) {
			all, err := c.Workflows(ctx)
			if all.Missing != "" {
				o.warn("schedules and pauses may be missing: %s", all.Missing)
			}
			return all, err
		}, func(all control.Workflows, s *screen) []string { return renderWorkflows(all.Workflows, s) }),
	}, nil)
	cmd.AddCommand(newWorkflowsPause(io), newWorkflowsResume(io))
	return cmd
}

const workflowsPauseLong = `Pauses a workflow: no attempt of its runs begins until it is resumed, also after a restart
of the server. Attempts that are running end as usual. Runs are still started, queued and
canceled; waits end at their times, signals are stored, and timeouts count. A run that
undoes its operations continues. To pause a paused workflow changes nothing.`

func newWorkflowsPause(io Streams) *cobra.Command {
	o := newRemote(io)
	return o.command(&cobra.Command{
		Use:               "pause [flags] NAME",
		Short:             "Pause a workflow",
		Long:              workflowsPauseLong,
		Example:           "  tideover workflows pause order",
		Args:              exactlyOne("workflow"),
		ValidArgsFunction: single(completeWorkflows(&o)),
		RunE: query(&o, func(ctx context.Context, c *client.Client, args []string) (control.Workflow, error) {
			return c.PauseWorkflow(ctx, args[0])
		}, renderWorkflowState),
	}, exitsWorkflow)
}

func newWorkflowsResume(io Streams) *cobra.Command {
	o := newRemote(io)
	return o.command(&cobra.Command{
		Use:   "resume [flags] NAME",
		Short: "Resume a workflow that is paused",
		Long: `Resumes a workflow. Attempts that have become due begin in the order of their times, as
many at once as the limits allow.`,
		Example:           "  tideover workflows resume order",
		Args:              exactlyOne("workflow"),
		ValidArgsFunction: single(completeWorkflows(&o)),
		RunE: query(&o, func(ctx context.Context, c *client.Client, args []string) (control.Workflow, error) {
			return c.ResumeWorkflow(ctx, args[0])
		}, renderWorkflowState),
	}, exitsWorkflow)
}

// renderWorkflowState returns the state of a workflow after a change.
func renderWorkflowState(w control.Workflow, s *screen) []string {
	if w.Paused != nil {
		return []string{visible(w.Name + " " + pausedWorkflowText(w.Paused, s))}
	}
	return []string{visible(w.Name + " is not paused")}
}

// pausedWorkflowText says by whom a workflow is paused, and since when.
func pausedWorkflowText(p *engine.PausedWorkflow, s *screen) string {
	text := pausedText(p.By, p.At, s)
	if p.Partly {
		text += ", but not in all shards: pause or resume it again"
	}
	return text
}

func renderWorkflows(list []control.Workflow, s *screen) (lines []string) {
	if len(list) == 0 {
		return []string{"no workflows"}
	}
	for i, w := range list {
		if i > 0 {
			lines = append(lines, "")
		}
		head := s.paint("1", visible(w.Name))
		if w.Timeout > 0 {
			head += "  timeout " + textfmt.CoarseDuration(w.Timeout)
		}
		if w.Next != nil {
			head += "  next start " + s.stamp(*w.Next) + " (in " + s.until(w.Next) + ")"
		}
		if w.Paused != nil {
			head += "  " + s.paint("33", visible(pausedWorkflowText(w.Paused, s)))
		}
		lines = append(lines, head)
		t := &table{heads: []string{"", "", "", ""}}
		for _, step := range w.Steps {
			after := optional("after ", strings.Join(step.Needs, ", "), "")
			t.add(plain(" "), plain(step.Name), plain(after), cell{step.Policy, "2"})
		}
		lines = append(lines, t.render(s)[1:]...)
	}
	return lines
}
