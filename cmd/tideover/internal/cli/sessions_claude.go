package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tideover/tideover/cmd/tideover/internal/client"
	"github.com/tideover/tideover/cmd/tideover/internal/detect"
	"github.com/tideover/tideover/cmd/tideover/internal/quota"
	"github.com/tideover/tideover/cmd/tideover/internal/session"
	"github.com/tideover/tideover/internal/textfmt"
)

const sessionsHookLong = `Reports usage limits as a hook of Claude Code. It reads the event that Claude Code
writes to its standard input when an error ends a turn, and reports a limit to the
'tideover watch' that Claude Code runs in. A watch recognises limits on the screen
without the hook; the hook also reports those whose wording is unknown.

Add it to ~/.claude/settings.json:

  {"hooks": {"StopFailure": [{"hooks": [{"type": "command", "command": "tideover sessions hook"}]}]}}

Outside of a watch it does nothing.`

const sessionsHookExample = `  echo '{"hook_event_name":"StopFailure","error":"rate_limit"}' | tideover sessions hook`

// hookTimeout limits the time that a hook waits for the watch.
const hookTimeout = 10 * time.Second

func newSessionsHook(io Streams) *cobra.Command {
	return &cobra.Command{
		Use: "hook", Short: "Report limits as a hook of Claude Code",
		Long: sessionsHookLong, Example: sessionsHookExample,
		Args: noArguments, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error { return sessionsHook(cmd.Context(), io) },
	}
}

// hookEvent is the input of a StopFailure hook.
type hookEvent struct {
	Event   string `json:"hook_event_name"`
	Error   string `json:"error"`
	Message string `json:"last_assistant_message"` // shown to the user
}

// hookReasons maps the errors of Claude Code that are limits to reasons of package detect.
var hookReasons = map[string]detect.Reason{"rate_limit": detect.RateLimit, "billing_error": detect.Terminal}

// report returns the limit that the event reports; false if the event does not report a limit.
func (e *hookEvent) report() (session.LimitReport, bool) {
	reason, limited := hookReasons[e.Error]
	line := cmp.Or(strings.TrimSpace(e.Message), e.Error)
	return session.LimitReport{Reason: reason.String(), Line: line}, limited && e.Event == "StopFailure"
}

func sessionsHook(ctx context.Context, streams Streams) error {
	text, err := io.ReadAll(io.LimitReader(streams.In, maxStatus))
	if err != nil {
		return err
	}
	var e hookEvent
	if err := json.Unmarshal(text, &e); err != nil {
		return fmt.Errorf("parsing the event on standard input: %w", err)
	}
	name, control := os.Getenv("TIDEOVER_SESSION"), os.Getenv(session.ControlVar)
	report, limited := e.report()
	if !limited || name == "" || control == "" {
		return nil
	}
	c, err := client.Dial(client.Target{Server: control, By: "hook"})
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, hookTimeout)
	defer cancel()
	_, err = c.ReportSessionLimit(ctx, name, report)
	return err
}

const statusLineLong = `Records the quota of Claude Code and prints it, as its status line. It reads the
status that Claude Code writes to its standard input. Sessions with pause-at start
nothing until the reset if too much of the quota is used.

A command after -- gets the same status, and its output becomes the status line.

Add it to ~/.claude/settings.json:

  {"statusLine": {"type": "command", "command": "tideover sessions status-line"}}`

const statusLineExample = `  tideover sessions status-line
  tideover sessions status-line -- ~/.claude/my-status-line.sh`

// maxStatus limits how many bytes of standard input the hook and the status line read.
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
