package session

import (
	"cmp"
	"context"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/account"
	"github.com/tideover/tideover/cmd/tideover/internal/detect"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/retry"
)

// newAsker returns the session as an asker, for the gate of its account.
func newAsker(s *Spec, run string, p *retry.Policy) account.Asker {
	return account.Asker{
		ID: run, Name: "session " + s.Name, Slack: p.ServerSlack, Longest: cmp.Or(p.ServerWait, retry.DefaultServerWait),
		Spread: cmp.Or(s.AccountSpread, account.DefaultSpread),
	}
}

// usage is one command's use of an account. A nil usage belongs to a session without an account.
type usage struct {
	attempt *attempt
	gate    *account.Gate
	asker   account.Asker
	pass    *account.Pass
	begun   time.Time
	proven  *time.Timer // reports that the account works if the command runs long enough; nil if nothing waits for that
}

// useAccount asks the gate of the session's account for permission. id identifies the asker; forced
// overrides the gate. If held is not nil, the session must wait: the caller ends the attempt with
// the error of [attempt.waitForAccount], which counts neither as an attempt nor as a window.
func (a *attempt) useAccount(id string, forced bool) (u *usage, held *account.Held) {
	gate := a.runner.gate(a.spec.AccountName())
	if gate == nil {
		return nil, nil
	}
	policy := a.spec.storedPolicy()
	u = &usage{attempt: a, gate: gate, begun: time.Now(), asker: newAsker(a.spec, id, &policy)}
	u.asker.Forced = forced
	if u.pass, held = gate.Enter(u.asker); held != nil {
		return u, held
	}
	if u.pass.Probes() || forced {
		u.proven = time.AfterFunc(account.ProvenAfter, u.pass.Worked)
	}
	return u, nil
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

// reportStop reports to the account why the command stopped. If it stopped at a limit without a stated
// end, it returns the wait that applies to all sessions of the account, which counts neither as an
// attempt nor as a window. memo is the memo after the stop.
func (u *usage) reportStop(stop detect.Stop, memo *Memo) *account.Held {
	if u == nil {
		return nil
	}
	ran := time.Since(u.begun)
	switch {
	case stop.Terminal || stop.Reason == detect.Terminal:
		return nil
	case stop.Reason != detect.RateLimit:
		if stop.Reason == detect.Completed || ran >= account.ProvenAfter {
			u.pass.Worked()
		}
		return nil
	case !isUnstated(stop) && !stop.Until.After(time.Now()):
		return nil // the limit is over
	}
	return u.pass.Limited(resetOf(stop), stop.Line, memo.nextProbe(u.attempt.spec))
}

// resetOf returns the stated end of a limit; zero if it was not stated.
func resetOf(stop detect.Stop) (r account.Reset) {
	switch {
	case isUnstated(stop):
	case relative(stop):
		r.In = max(time.Until(stop.Until), 1)
	default:
		r.At = stop.Until
	}
	return r
}

// gate returns the gate of an account; nil if the name is "" or the runner shares no limits.
func (r *Runner) gate(name string) *account.Gate {
	if r.Accounts == nil || name == "" {
		return nil
	}
	gate, _ := r.Accounts.Gate(name) // the name was validated
	return gate
}

// heldCheckEvery is the interval at which held runs are checked.
const heldCheckEvery = time.Second

// heldRuns are the runs that wait until they may use their accounts.
type heldRuns struct {
	mu    sync.Mutex
	runs  map[string]heldRun
	armed bool // a check is scheduled
}

// heldRun is a run that the gate of its account holds back.
type heldRun struct {
	gate  *account.Gate
	asker account.Asker
	due   time.Time // end of the run's own wait
}

// add adds a run and schedules checks. It does nothing if the runner can't wake runs.
func (h *heldRuns) add(r *Runner, run string, one heldRun) {
	if r.Wake == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.runs == nil {
		h.runs = map[string]heldRun{}
	}
	h.runs[run] = one
	h.arm(r)
}

// arm schedules the next check. The caller holds the lock. It uses a timer instead of a goroutine,
// because a Runner has no end.
func (h *heldRuns) arm(r *Runner) {
	if !h.armed && len(h.runs) > 0 {
		h.armed = true
		time.AfterFunc(heldCheckEvery, func() { h.wakeFree(r) })
	}
}

func (h *heldRuns) remove(run string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.runs, run)
}

// wakeFree wakes the runs that may use their accounts again, each after a random delay.
func (h *heldRuns) wakeFree(r *Runner) {
	h.mu.Lock()
	list := maps.Clone(h.runs)
	h.mu.Unlock()
	for run, one := range list {
		left := time.Until(one.due)
		switch {
		case left <= 0:
			h.remove(run)
		case left > one.asker.Spread && one.gate.Free(one.asker): // else its own wait ends soon
			h.remove(run)
			time.AfterFunc(account.Jitter(one.asker.Spread), func() {
				_ = r.Wake(context.Background(), run, "the account is free again") // on an error, the run continues at the end of its wait
			})
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.armed = false
	h.arm(r)
}

// restoreHeld adds a run that an earlier process left waiting for its account.
func (r *Runner) restoreHeld(ctx context.Context, e *engine.Engine, s *Spec, run string) {
	i, err := e.Get(ctx, run)
	if err != nil || i.Next == nil || !isHeld(i) {
		return // on an error, it continues at the end of its wait
	}
	if gate := r.gate(s.AccountName()); gate != nil {
		r.held.add(r, i.ID, heldRun{gate, newAsker(s, i.ID, &s.Policy), *i.Next})
	}
}

// WakeHeld ends the wait of a run that its account holds back. A run that waits for another reason,
// such as a pause, keeps waiting.
func WakeHeld(ctx context.Context, e *engine.Engine, run, by string) error {
	i, err := e.Get(ctx, run)
	if err != nil || !isHeld(i) {
		return err
	}
	return e.Wake(ctx, run, by)
}

// isHeld reports whether a run waits until it may use its account.
func isHeld(i *engine.Info) bool {
	a := lastAttempt(i)
	return a != nil && i.State == "waiting" && a.Outcome == "snoozed" && strings.Contains(a.Error, account.HeldPrefix) && a.Wait != nil && a.Wait.Moved == ""
}
