package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tideover/tideover/cmd/tideover/internal/client"
	"github.com/tideover/tideover/cmd/tideover/internal/control"
)

// completionTimeout limits the time that shell completion waits for a server.
const completionTimeout = 300 * time.Millisecond

// completeFromServer gets completions from the server. It returns none if there is an error: a
// message would disturb the command line that the user is typing.
func (r *remote) completeFromServer(ask func(ctx context.Context, c *client.Client) []cobra.Completion) ([]cobra.Completion, cobra.ShellCompDirective) {
	target, err := r.target()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	c, err := client.Dial(target)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), completionTimeout)
	defer cancel()
	return ask(ctx, c), cobra.ShellCompDirectiveNoFileComp
}

// completeWorkflows completes the name of a workflow as the only argument.
func (r *remote) completeWorkflows(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return r.offerWorkflows()
}

func (r *remote) offerWorkflows() ([]cobra.Completion, cobra.ShellCompDirective) {
	return r.completeFromServer(func(ctx context.Context, c *client.Client) (list []cobra.Completion) {
		flows, _ := c.Workflows(ctx)
		for _, w := range flows {
			list = append(list, visible(w.Name))
		}
		return list
	})
}

// completeRuns completes the ids of runs in these states; without any, of all runs.
func (r *remote) completeRuns(states ...string) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return r.completeFromServer(func(ctx context.Context, c *client.Client) (list []cobra.Completion) {
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
func (r *remote) completeFlags(cmd *cobra.Command) {
	for name, complete := range map[string]cobra.CompletionFunc{
		"state": completeWords(control.States()),
		"kind":  completeWords(control.Kinds()),
		"order": completeWords([]string{"newest", "oldest", "next"}),
		"workflow": func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return r.offerWorkflows()
		},
		"run":        r.completeRuns(),
		"server":     completeWords([]string{"unix:", "http://127.0.0.1:7878", "https://"}),
		"error-like": completeWords(nil),
		"search":     completeWords(nil),
	} {
		if cmd.Flags().Lookup(name) != nil {
			_ = cmd.RegisterFlagCompletionFunc(name, complete) // the flag is there
		}
	}
}

// completeWords completes one word of a comma-separated list.
func completeWords(words []string) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, prefix string) (out []cobra.Completion, _ cobra.ShellCompDirective) {
		before := ""
		if i := strings.LastIndex(prefix, ","); i >= 0 {
			before = prefix[:i+1]
		}
		for _, w := range words {
			out = append(out, before+w)
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}
