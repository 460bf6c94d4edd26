package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/quota"
	"github.com/tideover/tideover/engine"
)

// quotaRecheck is the wait before a used quota is checked again if its reset is over or unknown.
const quotaRecheck = 5 * time.Minute

// beforeLimit returns an error that makes the session wait if too much of the quota is used; nil if
// it may start. An unreadable quota is only a warning.
func (r *Runner) beforeLimit(ctx context.Context, s *Spec, env []string) error {
	if s.PauseAt == 0 {
		return nil
	}
	ask := r.askQuota
	if r.readQuota != nil {
		ask = r.readQuota
	}
	windows, err := ask(ctx, s, env)
	if err != nil {
		if r.Warn != nil && ctx.Err() == nil {
			r.Warn(fmt.Sprintf("session %s: pause-at has no effect: %v", s.Name, err))
		}
		return nil
	}
	w := quota.Above(windows, s.PauseAt)
	if w == nil {
		return nil
	}
	note := fmt.Sprintf("%v; the session pauses at %.4g%%", w, s.PauseAt)
	if w.Resets.After(time.Now()) {
		return engine.SnoozeUntil(w.Resets, note)
	}
	return engine.Snooze(quotaRecheck, note)
}

// askQuota returns how much of the quota is used: it asks the tool, or reads what the tool's status
// line has recorded.
func (r *Runner) askQuota(ctx context.Context, s *Spec, env []string) ([]quota.Window, error) {
	if s.quotaPack() == "codex" {
		return quota.Codex(ctx, appServer(s.Start), s.Dir, env)
	}
	account := cmp.Or(s.AccountName(), s.quotaPack())
	windows, err := quota.Load(r.Quotas, account, time.Now())
	if errors.Is(err, fs.ErrNotExist) {
		flag := ""
		if account != "claude-code" {
			flag = " --account " + account
		}
		return nil, fmt.Errorf("the quota of account %s was not recorded: "+
			"set statusLine in ~/.claude/settings.json to the command \"tideover sessions status-line%s\"", account, flag)
	}
	return windows, err
}

// appServer returns the command that reports the quota of the start command's account: in the same
// shell or env, which may set CODEX_HOME.
func appServer(start []string) []string {
	w, tool, known := unwrap(start)
	if tool != "codex" || !known {
		return []string{"codex", "app-server"}
	}
	return w.wrap([]string{w.inner[0], "app-server"})
}
