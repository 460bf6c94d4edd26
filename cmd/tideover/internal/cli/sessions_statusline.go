package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tideover/tideover/cmd/tideover/internal/client"
	"github.com/tideover/tideover/cmd/tideover/internal/quota"
	"github.com/tideover/tideover/internal/textfmt"
)

const statusLineLong = `Records the quota of Claude Code and prints it, as its status line. It reads the
status that Claude Code writes to its standard input. Sessions with pause-at start
nothing until the reset if too much of the quota is used.

A command after -- gets the same status, and its output becomes the status line.

Add it to ~/.claude/settings.json:

  {"statusLine": {"type": "command", "command": "tideover sessions status-line"}}`

const statusLineExample = `  tideover sessions status-line
  tideover sessions status-line -- ~/.claude/my-status-line.sh`

// maxStatus limits how much of the input is read.
const maxStatus = 1 << 20

func newStatusLine(io Streams) *cobra.Command {
	account := "claude-code"
	cmd := &cobra.Command{
		Use: "status-line [flags] [-- command [argument...]]", Short: "Record the quota of Claude Code, as its status line",
		Long: statusLineLong, Example: statusLineExample, DisableFlagsInUseLine: true,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			return statusLine(cmd.Context(), io, account, args)
		},
	}
	cmd.Flags().StringVar(&account, "account", account, "`name` of the account that has the quota")
	return cmd
}

func statusLine(ctx context.Context, streams Streams, account string, command []string) error {
	text, err := io.ReadAll(io.LimitReader(streams.In, maxStatus))
	if err != nil {
		return err
	}
	windows, err := quota.ParseStatusLine(text)
	if err == nil && len(windows) > 0 {
		err = quota.Save(client.UserFolder("quota"), account, windows)
	}
	if len(command) == 0 {
		_, printErr := fmt.Fprintln(streams.Out, quotaLine(windows, time.Now()))
		return errors.Join(err, printErr)
	}
	shown := exec.CommandContext(ctx, command[0], command[1:]...)
	shown.Stdin, shown.Stdout, shown.Stderr = bytes.NewReader(text), streams.Out, streams.Err
	return errors.Join(err, shown.Run())
}

// quotaLine formats the used part of each quota window, and its reset, on one line.
func quotaLine(windows []quota.Window, now time.Time) string {
	var parts []string
	for _, w := range windows {
		part := fmt.Sprintf("%s %.0f%%", w.Name, w.Used)
		if left := w.Resets.Sub(now); left > 0 {
			part += ", resets in " + textfmt.ReadableDuration(left.Truncate(time.Minute))
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, " · ")
}
