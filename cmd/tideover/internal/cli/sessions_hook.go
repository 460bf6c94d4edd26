package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tideover/tideover/cmd/tideover/internal/client"
	"github.com/tideover/tideover/cmd/tideover/internal/detect"
	"github.com/tideover/tideover/cmd/tideover/internal/session"
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

// hookReasons has the errors that are limits.
var hookReasons = map[string]detect.Reason{"rate_limit": detect.RateLimit, "billing_error": detect.Terminal}

// report returns the limit that the event reports; false if it reports another error.
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
