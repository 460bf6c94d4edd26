package quota

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/process"
	"github.com/tideover/tideover/internal/textfmt"
)

// Limits that protect against a misbehaving server.
const (
	askTimeout = 30 * time.Second
	maxAnswer  = 4 << 20 // bytes
)

// Codex gets the limits of the account from "codex app-server". command, dir and env are the command
// line, the working folder and the environment of the app-server.
//
// The protocol is JSON-RPC over lines: https://learn.chatgpt.com/docs/app-server, "Rate limits".
func Codex(ctx context.Context, command []string, dir string, env []string) ([]Window, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, askTimeout, fmt.Errorf("no answer within %v", askTimeout))
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir, cmd.Env, cmd.WaitDelay = dir, env, time.Second
	process.OwnGroup(cmd) // killed with all its processes
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("asking %q for the quota: %w", strings.Join(command, " "), err)
	}
	windows, err := askCodex(in, out)
	cancel() // kills the server, which does not end by itself
	_ = in.Close()
	_ = cmd.Wait()
	if err != nil {
		if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
			err = cause
		}
		return nil, fmt.Errorf("asking %q for the quota: %w", strings.Join(command, " "), err)
	}
	return windows, nil
}

// The messages to the server, which answers those with an id.
const (
	codexInitialize = `{"id":1,"method":"initialize","params":{"clientInfo":{"name":"tideover","title":"tideover","version":"1"}}}`
	codexReady      = `{"method":"initialized"}`
	codexRead       = `{"id":2,"method":"account/rateLimits/read"}`
)

func askCodex(in io.Writer, out io.Reader) ([]Window, error) {
	lines := bufio.NewScanner(io.LimitReader(out, maxAnswer))
	lines.Buffer(nil, maxAnswer)
	_, _ = fmt.Fprintln(in, codexInitialize) // on an error, there is no answer
	if _, err := codexAnswer(lines, 1); err != nil {
		return nil, err
	}
	_, _ = fmt.Fprintf(in, "%s\n%s\n", codexReady, codexRead)
	result, err := codexAnswer(lines, 2)
	if err != nil {
		return nil, err
	}
	return parseCodex(result)
}

// codexAnswer returns the answer to the request with this id. It skips notifications before it.
func codexAnswer(lines *bufio.Scanner, id int) (json.RawMessage, error) {
	for lines.Scan() {
		var m struct {
			ID     *int
			Result json.RawMessage
			Error  *struct{ Message string }
		}
		if json.Unmarshal(lines.Bytes(), &m) != nil || m.ID == nil || *m.ID != id {
			continue
		}
		if m.Error != nil {
			return nil, errors.New(m.Error.Message)
		}
		return m.Result, nil
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	return nil, errors.New("the server ended without an answer")
}

// parseCodex parses an answer, which has limits in several buckets. It removes duplicates.
func parseCodex(result []byte) (windows []Window, err error) {
	type window struct {
		UsedPercent        *float64
		ResetsAt           int64
		WindowDurationMins int64
	}
	type bucket struct{ Primary, Secondary *window }
	var limits struct {
		RateLimits          bucket
		RateLimitsByLimitID map[string]bucket `json:"rateLimitsByLimitId"`
	}
	if err := json.Unmarshal(result, &limits); err != nil {
		return nil, fmt.Errorf("parsing the answer: %w", err)
	}
	for _, b := range slices.AppendSeq([]bucket{limits.RateLimits}, maps.Values(limits.RateLimitsByLimitID)) {
		for _, w := range []*window{b.Primary, b.Secondary} {
			if w == nil || w.UsedPercent == nil {
				continue
			}
			own := Window{Name: nameOf(time.Duration(w.WindowDurationMins) * time.Minute), Used: *w.UsedPercent}
			if w.ResetsAt > 0 {
				own.Resets = time.Unix(w.ResetsAt, 0)
			}
			if !slices.Contains(windows, own) { // the first bucket is repeated among the others
				windows = append(windows, own)
			}
		}
	}
	if len(windows) == 0 {
		return nil, errors.New("the answer contains no limits: " + textfmt.TruncateValid(strings.TrimSpace(string(result)), 200, "…"))
	}
	return windows, nil
}
