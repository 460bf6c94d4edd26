package retry

import (
	"cmp"
	"math"
	"time"

	"github.com/tideover/tideover/internal/clock"
	"github.com/tideover/tideover/limit"
)

// State is what a decision needs to know of the attempts made so far. Store it
// and a call can go on after a restart where it was; see [Runner.Resume].
type State struct {
	Attempt int           `json:"attempt"`    // attempts made, the one that just failed included
	Prev    time.Duration `json:"prev_ns"`    // the last delay the policy computed; 0 for none
	Elapsed time.Duration `json:"elapsed_ns"` // time spent so far
	Left    time.Duration `json:"-"`          // until the caller's deadline; 0 means none, one that has passed is negative
}

// Gates is what stands between a failed attempt and the next one. The zero
// Gates are open.
type Gates struct {
	OverBudget bool          // the retry budget has nothing left
	OpenFor    time.Duration // how long the breaker still rejects calls
}

// Decision is the answer to a failed attempt: wait, or stop and why.
type Decision struct {
	Stop Reason        // why there is no further attempt; 0 means there is one
	Wait time.Duration // how long to wait before it
	By   Source        // who set the wait
	Prev time.Duration // what State.Prev is for the next decision
}

// Source says who set a wait.
type Source uint8

// The sources.
const (
	ByPolicy   Source = iota // the policy's schedule
	ByServer                 // a delay stated by the server
	BySchedule               // a schedule of the runner's own, see WithSchedule
	ByHandler                // the work itself, which asked to be called later
	ByHuman                  // an operator, by hand
	ByEngine                 // the engine, because the process died in the attempt
)

var sourceNames = [...]string{"policy", "server", "schedule", "handler", "human", "engine"}

// String returns the source's name.
func (s Source) String() string { return name(sourceNames[:], s) }

// Decide says what follows a failed attempt. It is a pure function, without
// clock, sleep or I/O, and the only place where this is decided: for a call in
// a process, a wrapped command, a stored task and the simulator alike. u is a
// uniform random number.
func Decide(p Policy, s State, o Outcome, g Gates, u uint64) Decision {
	return p.decide(&s, &o, g, u)
}

// DecideWithin is [Decide] for a call with a budget, as a [Runner] decides: the
// account is asked for the retry, and pays for it, only when the policy and the
// breaker would go on. openFor is how long the breaker still rejects calls. The
// zero account has no budget.
func DecideWithin(p Policy, s State, o Outcome, openFor time.Duration, account *limit.Call, u uint64) Decision {
	return p.decideWithin(&s, &o, Gates{OpenFor: openFor}, account, u)
}

func (p *Policy) decideWithin(s *State, o *Outcome, g Gates, account *limit.Call, u uint64) Decision {
	d := p.decide(s, o, g, u)
	if d.Stop == 0 && !granted(account, o) {
		g.OverBudget = true
		d = p.decide(s, o, g, u)
	}
	return d
}

// granted asks the budget for a retry.
func granted(account *limit.Call, o *Outcome) bool {
	if o.Class == ClassThrottled {
		return account.RetryThrottled()
	}
	return account.Retry()
}

func (p *Policy) decide(s *State, o *Outcome, g Gates, u uint64) Decision {
	if why := p.verdict(s, o); why != 0 {
		return Decision{Stop: why, Prev: s.Prev}
	}
	d := p.wait(s, o, u)
	d.Stop = p.exceeded(s, g, d.Wait)
	return d
}

// exceeded returns the limit that does not allow an attempt after the wait, or 0. A wait
// that can't lead to an attempt is not begun: what is known now is worth more to the
// caller than the same answer later.
func (p *Policy) exceeded(s *State, g Gates, wait time.Duration) Reason {
	switch {
	case p.TotalTimeout > 0 && wait >= p.TotalTimeout-s.Elapsed:
		return StopTotalTimeout
	case s.Left != 0 && wait >= s.Left:
		return StopDeadline
	case g.OpenFor > wait:
		return StopBreaker
	case g.OverBudget:
		return StopBudget
	}
	return 0
}

// spent says whether a call that goes on from the state may not.
func (p *Policy) spent(s State) Reason {
	switch {
	case s.Attempt > 0 && s.Attempt >= p.attempts() && p.Attempts != Unlimited:
		return StopAttempts
	case p.TotalTimeout > 0 && s.Elapsed >= p.TotalTimeout:
		return StopTotalTimeout
	}
	return 0
}

// verdict says whether the failure itself ends the call.
func (p *Policy) verdict(s *State, o *Outcome) Reason {
	switch {
	case o.Class == ClassCanceled:
		return StopCanceled
	case o.Class == ClassPermanent || o.Final:
		return StopPermanent
	case o.Class == ClassStuck:
		return StopStuck
	case s.Attempt >= p.Attempts && p.Attempts != Unlimited:
		return StopAttempts
	case o.After > cmp.Or(p.ServerWait, DefaultServerWait):
		return StopServerWait
	}
	return 0
}

// wait says how long to wait, and who said so.
func (p *Policy) wait(s *State, o *Outcome, u uint64) Decision {
	switch {
	case o.After > 0:
		least := clock.Later(o.After, p.ServerSlack)
		return Decision{By: ByServer, Wait: clock.Later(least, extra(o.After, p.room(s)-least, u)), Prev: s.Prev}
	case o.Delay > 0:
		return Decision{By: BySchedule, Wait: max(min(o.Delay, cmp.Or(p.Cap, math.MaxInt64)), o.AtLeast), Prev: s.Prev}
	case p.Base == 0 && o.Class != ClassThrottled:
		return Decision{Wait: max(o.AtLeast, 0)}
	default:
		d := p.delay(s, o, u)
		return Decision{Wait: max(d, o.AtLeast), Prev: d}
	}
}

// room returns how much time the limits leave for a wait.
func (p *Policy) room(s *State) time.Duration {
	room := time.Duration(math.MaxInt64)
	if s.Left != 0 {
		room = s.Left
	}
	if p.TotalTimeout > 0 {
		room = min(room, p.TotalTimeout-s.Elapsed)
	}
	return room
}

// extra spreads the clients that a server told to come back at one moment:
// always later than it asked, by up to a fifth, at most by 30 seconds. It takes
// no more than half of what is left, so that it does not make impossible what
// the server allows.
func extra(after, left time.Duration, u uint64) time.Duration {
	most := min(after/5, 30*time.Second)
	if left > 0 {
		most = min(most, left/2)
	}
	return time.Duration(float64(most) * (float64(u>>11) / (1 << 53)))
}
