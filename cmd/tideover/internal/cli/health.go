package cli

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tideover/tideover/cmd/tideover/internal/client"
	"github.com/tideover/tideover/cmd/tideover/internal/control"
)

const healthLong = `Asks the server whether it can do its work, for whoever watches over it: a container,
a load balancer, a script. It is unhealthy while something keeps it from working, such
as a full disk; it waits and goes on by itself. A scheduled start that was refused does
not make it unhealthy, and is printed as a warning. "tideover status" has the rest.

Exit codes:
  0    it works
  1    it answers, and can't work; the line says why
  125  there is no server, or a bad flag`

func newHealth(io Streams) *cobra.Command {
	o := &remote{io: io}
	cmd := &cobra.Command{
		Use:               "health [flags]",
		Short:             "Say whether the server can work, by the exit code",
		Example:           "  tideover health\n  tideover health --server http://127.0.0.1:7878",
		Args:              none,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return o.ask(cmd, func(ctx context.Context, c *client.Client) error {
			h, err := c.Healthy(ctx)
			if err != nil {
				return err
			}
			return o.tellHealth(h)
		})
	}
	o.command(cmd)
	cmd.Long = healthLong + "\n" + remoteServer // it has exit codes of its own
	o.completeFlags(cmd)
	return cmd
}

// codeUnhealthy is the exit code for a server that answers and can't work.
const codeUnhealthy = 1

func (r *remote) tellHealth(h control.Health) error {
	text := "healthy"
	if !h.OK {
		text = strings.Join(append([]string{"unhealthy"}, h.Troubles...), ": ")
	}
	tell := func() error {
		err := r.say("%s", text)
		for _, w := range h.Warnings {
			err = errors.Join(err, r.say("warning: %s", w))
		}
		return err
	}
	if r.json {
		tell = func() error { return r.printJSON(h) }
	}
	if err := tell(); err != nil || h.OK {
		return err
	}
	return exitError{Code: codeUnhealthy}
}
