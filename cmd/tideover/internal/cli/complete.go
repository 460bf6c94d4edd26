package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tideover/tideover/cmd/tideover/internal/client"
	"github.com/tideover/tideover/internal/console/control"
)

// completionTimeout limits the time that shell completion waits for a server.
const completionTimeout = 300 * time.Millisecond

// completeFromServer gets completions from the server. It returns none if there is an error: a
// message would disturb the command line that the user is typing.
func completeFromServer(r *remote, ask func(ctx context.Context, c *client.Client) []cobra.Completion) ([]cobra.Completion, cobra.ShellCompDirective) {
	c, err := r.dial()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), completionTimeout)
	defer cancel()
	return ask(ctx, c), cobra.ShellCompDirectiveNoFileComp
}

// completeWorkflows completes the name of a workflow.
func completeWorkflows(r *remote) cobra.CompletionFunc {
	return func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return completeFromServer(r, func(ctx context.Context, c *client.Client) (list []cobra.Completion) {
			flows, _ := c.Workflows(ctx)
			for _, w := range flows.Workflows {
				list = append(list, visible(w.Name))
			}
			return list
		})
	}
}

// completeSchedules completes the name of a schedule.
func completeSchedules(r *remote) cobra.CompletionFunc {
	return func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return completeFromServer(r, func(ctx context.Context, c *client.Client) (list []cobra.Completion) {
			schedules, _ := c.Schedules(ctx)
			for _, s := range schedules {
				list = append(list, cobra.CompletionWithDesc(visible(s.Name), visible(s.Workflow+", "+s.Cron)))
			}
			return list
		})
	}
}

// completeRuns completes the ids of runs in these states; without states, of all runs.
func completeRuns(r *remote, states ...string) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return completeFromServer(r, func(ctx context.Context, c *client.Client) (list []cobra.Completion) {
			page, _ := c.List(ctx, control.Filter{States: states, Limit: 100})
			for _, run := range page.Runs {
				if strings.HasPrefix(run.ID, prefix) && !slices.Contains(args, run.ID) {
					list = append(list, cobra.CompletionWithDesc(run.ID, visible(run.Workflow+", "+run.State)))
				}
			}
			return list
		})
	}
}

// completeFlags registers completions for the flags that several commands have.
func completeFlags(r *remote, cmd *cobra.Command) {
	for name, complete := range map[string]cobra.CompletionFunc{
		"state":      completeWords(control.States()),
		"kind":       completeWords(control.Kinds()),
		"order":      completeWords([]string{"newest", "oldest", "next"}),
		"workflow":   completeWorkflows(r),
		"run":        completeRuns(r),
		"server":     completeWords([]string{"unix:", "http://127.0.0.1:7878", "https://"}),
		"error-like": completeWords(nil),
		"search":     completeWords(nil),
		"tag":        cobra.NoFileCompletions,
	} {
		if cmd.Flags().Lookup(name) != nil {
			_ = cmd.RegisterFlagCompletionFunc(name, complete) // can't fail: the flag exists
		}
	}
}
