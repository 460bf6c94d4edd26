package cli

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tideover/tideover/cmd/tideover/internal/client"
	"github.com/tideover/tideover/cmd/tideover/internal/control"
	"github.com/tideover/tideover/internal/textfmt"
)

const backupLong = `Copies everything that the server keeps to a folder, while it goes on. The copy is
complete, and can be served like the original. The folder is on the server's
machine, and the request is only possible over its unix socket.

Of a cluster the copy is one folder, too: it can be served by itself, and 'tideover
move' makes a cluster of it again. A shard whose log is lost, and can't be restored,
is left out with --without-shard; the copy is not complete then, and says so. One
that can be read is never left out.`

const backupExample = `  tideover backup /var/backups/tideover-2026-11-15
  tideover backup --without-shard 3 /var/backups/what-is-left`

const backupCodes = `
Exit codes:
  0      copied
  125    an error of ours: a bad flag, no server, something it refused
  128+n  signal n told us to end; the copy is not complete`

// backupOptions are the flags.
type backupOptions struct {
	remote
	without []int
}

func newBackup(io Streams) *cobra.Command {
	o := &backupOptions{remote: remote{io: io}}
	cmd := &cobra.Command{
		Use:     "backup [flags] FOLDER",
		Short:   "Copy everything the server keeps",
		Long:    backupLong,
		Example: backupExample,
		Args:    one("folder"),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveFilterDirs
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, err := filepath.Abs(args[0])
			if err != nil {
				return err
			}
			return o.ask(cmd, func(ctx context.Context, c *client.Client) error { return o.copy(ctx, c, dir) })
		},
	}
	o.command(cmd)
	addWithout(cmd, &o.without)
	o.completeFlags(cmd)
	cmd.Long = backupLong + "\n" + remoteServer + "\n" + backupCodes
	return cmd
}

func (o *backupOptions) copy(ctx context.Context, c *client.Client, dir string) error {
	b, err := c.BackupWithout(ctx, dir, o.without)
	if err != nil {
		return err
	}
	if len(b.LeftOut) > 0 {
		o.warn("%s", incomplete(b.LeftOut))
	}
	if o.json {
		return o.printJSON(b)
	}
	s := screenOf(o.io.Out)
	_, err = fmt.Fprintln(o.io.Out, strings.Join(renderBackup(&b, &s), "\n"))
	return err
}

func renderBackup(b *control.Backup, s *screen) []string {
	lines := []string{visible("copied to " + b.Dir)}
	if len(b.LeftOut) == 0 {
		return lines
	}
	total := 0
	for _, n := range b.Runs {
		total += n
	}
	lines[0] += fmt.Sprintf(", from %d of %d shards: %s, %s, %s", b.Shards-len(b.LeftOut), b.Shards,
		textfmt.Plural(total, "run"), textfmt.Plural(b.Keys, "key"), textfmt.Plural(b.Schedules, "schedule"))
	return append(lines, renderLeftOut(b.LeftOut, s)...)
}
