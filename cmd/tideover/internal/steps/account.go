package steps

import (
	"fmt"
	"math"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/account"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/retry"
)

// longestHold is the farthest end of a limit that a step waits for, as sessions do. The policy's server-wait limits the
// delays that the step's own server states.
const longestHold = 8 * 24 * time.Hour

// usage is one command's use of an account. A nil usage is that of a step without one.
type usage struct {
	task   *engine.Task
	pass   *account.Pass
	proven *time.Timer
}

// enterAccount asks the gate of the step's account. held is what the attempt ends with if it has to wait, which spends
// no attempt.
func (r *Runner) enterAccount(s *Step, t *engine.Task) (u *usage, held error) {
	if r.Accounts == nil || s.Account == "" {
		return nil, nil
	}
	gate, err := r.Accounts.Gate(s.Account)
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

// record tells the others how the command ended: with success, or with the exit code by which programs ask for a longer
// wait. Other failures say nothing about the account. held is what the attempt ends with if the limit was known already.
func (u *usage) record(s *Step, code int, said string) (held error) {
	switch {
	case u == nil:
	case code == 0:
		u.pass.Worked()
	case code == tempFail:
		p := s.Policy
		p.Attempts, p.TotalTimeout = retry.Unlimited, 0
		d := retry.Decide(p, retry.State{Attempt: u.task.Attempt}, retry.Outcome{Class: retry.ClassThrottled}, retry.Gates{}, math.MaxUint64)
		if h := u.pass.Limited(account.Reset{}, said, d.Wait); h != nil {
			return engine.Snooze(h.Wait, h.Why)
		}
	}
	return nil
}

// leave ends the use of the account.
func (u *usage) leave() {
	if u == nil {
		return
	}
	if u.proven != nil {
		u.proven.Stop()
	}
	u.pass.Leave()
}
