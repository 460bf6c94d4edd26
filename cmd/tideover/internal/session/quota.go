package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/quota"
	"github.com/tideover/tideover/engine"
)

// quotaRecheck is the wait before a used quota is checked again if its reset is over or unknown.
const quotaRecheck = 5 * time.Minute

// quotaPacks are the packs of tools whose quota can be read.
var quotaPacks = []string{"claude-code", "codex"}

// quotaPack returns the built-in pack of the session's tool.
func (s *Spec) quotaPack() string {
	if s.Rules != nil && s.Rules.Extends != "" {
		return s.Rules.Extends
	}
	return s.Pack
}

// NeedsStatusLine reports whether the quota is known only from its status line, because the tool
// can't be asked.
func (s *Spec) NeedsStatusLine() bool { return s.quotaPack() == "claude-code" }

// checkPauseAt validates pause-at.
func (s *Spec) checkPauseAt(fail func(field, format string, args ...any)) {
	pack := s.quotaPack()
	switch {
	case s.PauseAt == 0:
	case s.PauseAt < 0 || s.PauseAt > 100:
		fail("pause-at", "%g%% is not between 0%% and 100%%", s.PauseAt)
	case !slices.Contains(quotaPacks, pack):
		fail("pause-at", "the quota of %s can't be read: pause-at works with %s", pack, strings.Join(quotaPacks, " and "))
	}
}

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

// askQuota asks the tool, or reads what its status line has recorded.
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
