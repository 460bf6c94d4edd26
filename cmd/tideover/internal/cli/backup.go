package cli

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/tideover/tideover/cmd/tideover/internal/admin"
	"github.com/tideover/tideover/cmd/tideover/internal/client"
	"github.com/tideover/tideover/internal/textfmt"
)

const backupLong = `Copies the state of a running server to a folder. The copy is complete and can be
served like the original. The folder is on the server's machine, and the request is
accepted only over the server's Unix socket.

The backup of a cluster is one folder, too. A single server can serve it, and
'tideover move' turns it into a cluster again. If the log of a shard is lost and
can't be restored, --without-shard skips that shard; the copy is then incomplete,
and a warning says so. A shard that can be read is never skipped.`

const backupExample = `  tideover backup /var/backups/tideover-2026-11-15
  tideover backup --without-shard 3 /var/backups/what-is-left`

func newBackup(io Streams) *cobra.Command {
	o := newRemote(io)
	var without []int
	cmd := &cobra.Command{
		Use:     "backup [flags] FOLDER",
		Short:   "Copy the state of a server to a folder",
		Long:    backupLong,
		Example: backupExample,
		Args:    exactlyOne("folder"),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveFilterDirs
		},
		RunE: query(&o, func(ctx context.Context, c *client.Client, args []string) (*admin.Backup, error) {
			dir, err := filepath.Abs(args[0])
			if err != nil {
				return nil, err
			}
			b, err := c.BackupWithout(ctx, dir, without)
			if len(b.LeftOut) > 0 {
				o.warn("%s", incomplete(b.LeftOut))
			}
			return &b, err
		}, renderBackup),
	}
	o.command(cmd, exits{codeSignal: "ended by signal n; the backup is not complete"})
	addWithout(cmd, &without)
	return cmd
}

func renderBackup(b *admin.Backup, s *screen) []string {
	lines := []string{visible("copied to " + b.Dir)}
	if len(b.LeftOut) == 0 {
		return lines
	}
	lines[0] += fmt.Sprintf(", from %d of %d shards: %s, %s, %s", b.Shards-len(b.LeftOut), b.Shards,
		textfmt.Plural(totalRuns(b.Runs), "run"), textfmt.Plural(b.Keys, "key"), textfmt.Plural(b.Schedules, "schedule"))
	return append(lines, renderLeftOut(b.LeftOut, s)...)
}

// totalRuns adds up the numbers of runs by state.
func totalRuns(byState map[string]int) (total int) {
	for _, n := range byState {
		total += n
	}
	return total
}
