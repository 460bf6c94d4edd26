package steps

import (
	"fmt"
	"math"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/account"
	"github.com/tideover/tideover/cmd/tideover/internal/exitcode"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/retry"
)

// longestHold is the longest time that a step waits for the limit of an account to end, the same as for sessions. The
// policy's server-wait does not apply: it limits the delays that the step's own server states.
const longestHold = 8 * 24 * time.Hour

// usage is the use of an account by one attempt of a command. It is nil for a step without an account.
type usage struct {
	task   *engine.Task
	pass   *account.Pass
	proven *time.Timer // ends the probe of the account as successful; nil if the attempt is not a probe
}

// enterAccount asks the gate of the step's account whether the command may run now. If it must wait, held is the error
// that ends the attempt; it postpones the step and does not count as an attempt.
func enterAccount(accounts *account.Store, s *Step, t *engine.Task) (u *usage, held error) {
	if accounts == nil || s.Account == "" {
		return nil, nil
	}
	gate, err := accounts.Gate(s.Account)
	if err != nil {
		return nil, retry.Permanent(fmt.Errorf("account: %w", err))
	}
	pass, hold := gate.Enter(account.Asker{
		ID: t.Run + "/" + t.Step, Name: "step " + t.Step + " of workflow " + t.Workflow, Slack: s.Policy.ServerSlack,
		Longest: longestHold, Spread: account.DefaultSpread,
	})
	if hold != nil {
		return nil, engine.Snooze(hold.Wait, hold.Why)
	}
	u = &usage{task: t, pass: pass}
	if pass.Probes() {
		u.proven = time.AfterFunc(account.ProvenAfter, pass.Worked)
	}
	return u, nil
}

// record reports to the account that the command succeeded, or that it was limited ([exitcode.TempFail]). It ignores
// other failures, which are unrelated to the account. If the limit was already known, held is the error that ends the
// attempt; it postpones the step and does not count as an attempt.
func (u *usage) record(s *Step, code int, said string) (held error) {
	switch {
	case u == nil:
	case code == 0:
		u.pass.Worked()
	case code == exitcode.TempFail:
		p := s.Policy
		p.Attempts, p.TotalTimeout = retry.Unlimited, 0
		d := retry.Decide(p, retry.State{Attempt: u.task.Attempt}, retry.Outcome{Class: retry.ClassThrottled}, retry.Gates{}, math.MaxUint64)
		if h := u.pass.Limited(account.Reset{}, said, d.Wait); h != nil && !h.Own {
			return engine.Snooze(h.Wait, h.Why)
		}
	}
	return nil
}

// release ends the use of the account.
func (u *usage) release() {
	if u == nil {
		return
	}
	if u.proven != nil {
		u.proven.Stop()
	}
	u.pass.Leave()
}
