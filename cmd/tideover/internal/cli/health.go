package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tideover/tideover/cmd/tideover/internal/client"
	"github.com/tideover/tideover/cmd/tideover/internal/control"
)

const healthLong = `Checks whether the server can do its work, for containers, load balancers and
scripts. The server is unhealthy while a problem stops it, such as a full disk; it
keeps running and recovers by itself. A scheduled start that was rejected is a
warning and does not make the server unhealthy. "tideover status" shows more.

Exit codes:
  0    the server is healthy
  1    the server answers, but can't work; the output says why
  125  no server, or a bad flag`

func newHealth(io Streams) *cobra.Command {
	o := newRemote(io)
	return o.command(&cobra.Command{
		Use:     "health [flags]",
		Short:   "Check whether the server is healthy (exit code 0)",
		Long:    healthLong,
		Example: "  tideover health\n  tideover health --server http://127.0.0.1:7878",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.withClient(cmd, func(ctx context.Context, c *client.Client) error {
				h, err := c.Healthy(ctx)
				if err != nil {
					return err
				}
				return o.printHealth(h)
			})
		},
	}, remoteServer)
}

// codeUnhealthy is the exit code if the server answers but can't work.
const codeUnhealthy = 1

// printHealth prints the health and its warnings. It returns an exit error if the server is
// unhealthy.
func (r *remote) printHealth(h control.Health) error {
	err := r.printRendered(h, func(*screen) []string {
		lines := []string{"healthy"}
		if !h.OK {
			lines[0] = visible(strings.Join(append([]string{"unhealthy"}, h.Troubles...), ": "))
		}
		for _, w := range h.Warnings {
			lines = append(lines, visible("warning: "+w))
		}
		return lines
	})
	if err != nil || h.OK {
		return err
	}
	return exitError{Code: codeUnhealthy}
}
