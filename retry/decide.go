package retry

import (
	"cmp"
	"math"
	"time"

	"github.com/tideover/tideover/internal/clock"
	"github.com/tideover/tideover/internal/enum"
	"github.com/tideover/tideover/limit"
)

// State is what a decision needs to know of the attempts made so far. A program that
// stores it can continue the call after a restart; see [Runner.Resume].
type State struct {
	Attempt int           `json:"attempt"`    // attempts made, including the one that just failed
	Prev    time.Duration `json:"prev_ns"`    // the last delay the policy computed; 0 for none
	Elapsed time.Duration `json:"elapsed_ns"` // time spent so far
	Left    time.Duration `json:"-"`          // time until the caller's deadline; 0 means no deadline, negative that it has passed
}

// Gates are the conditions other than the policy that can stop a retry. The zero
// Gates stop none.
type Gates struct {
	OverBudget bool          // the retry budget is used up
	OpenFor    time.Duration // how long the breaker will still reject calls
}

// Decision says whether to wait and retry after a failed attempt, or why to stop.
type Decision struct {
	Stop Reason        // why no attempt follows; 0 means that one follows
	Wait time.Duration // how long to wait before the next attempt
	By   Source        // source of the wait
	Prev time.Duration // the State.Prev for the next decision
}

// Source says who or what set a wait.
type Source uint8

// The sources.
const (
	ByPolicy   Source = iota // the policy's schedule
	ByServer                 // a delay stated by the server
	BySchedule               // the function of WithSchedule
	ByHandler                // the handler of the work, which asked for a later attempt
	ByHuman                  // an operator
	ByEngine                 // the engine, because the process ended during the attempt
)

var sourceNames = [...]string{"policy", "server", "schedule", "handler", "human", "engine"}

// String returns the source's name.
func (s Source) String() string { return enum.Name(sourceNames[:], s, "retry.Source") }

// Decide returns what follows a failed attempt. It is a pure function, without
// clock, sleep or I/O. Calls in a process, wrapped commands, stored tasks and the
// simulator all use it, so they all decide alike, unless a review changes the decision
// (see [WithReview]). u is a uniform random number.
func Decide(p Policy, s State, o Outcome, g Gates, u uint64) Decision {
	return p.decide(&s, &o, g, nil, u)
}

// DecideWithin is [Decide] with a budget, as a [Runner] decides. It asks the account
// for the retry only if policy and breaker allow a retry; a granted retry is then
// paid for. openFor is how long the breaker will still reject calls. The zero account
// has no budget and allows every retry.
func DecideWithin(p Policy, s State, o Outcome, openFor time.Duration, account *limit.Call, u uint64) Decision {
	return p.decideWithin(&s, &o, Gates{OpenFor: openFor}, account, nil, u)
}

func (p *Policy) decideWithin(s *State, o *Outcome, g Gates, account *limit.Call, t *tables, u uint64) Decision {
	d := p.decide(s, o, g, t, u)
	if d.Stop == 0 && !granted(account, o) {
		g.OverBudget = true
		d = p.decide(s, o, g, t, u)
	}
	return d
}

// granted asks the budget for a retry and reports whether it allows one.
func granted(account *limit.Call, o *Outcome) bool {
	if o.Class == ClassThrottled {
		return account.RetryThrottled()
	}
	return account.Retry()
}

// decide is [Decide] without copies. t has the compiled schedules of the policy; nil
// means that there are none.
func (p *Policy) decide(s *State, o *Outcome, g Gates, t *tables, u uint64) Decision {
	if why := p.verdict(s, o); why != 0 {
		return Decision{Stop: why, Prev: s.Prev}
	}
	d := p.wait(s, o, t, u)
	d.Stop = p.exceeded(s, g, d.Wait)
	return d
}

// decidePlain is decide for a failure with the zero [Outcome] in a call without
// deadline, total timeout, breaker and budget: only the attempts limit it.
func (p *Policy) decidePlain(s *State, t *tables, u uint64) Decision {
	switch {
	case s.Attempt >= p.Attempts && p.Attempts != Unlimited:
		return Decision{Stop: StopAttempts, Prev: s.Prev}
	case p.Base == 0:
		return Decision{}
	default:
		d := t.normal.Delay(s.Attempt, s.Prev, u)
		return Decision{Wait: d, Prev: d}
	}
}

// exceeded returns the reason for which no attempt may follow a wait of this length,
// or 0. A call then gives up at once instead of after the wait, so that the caller
// learns the result earlier.
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

// spent returns the reason for which a call with this state may make no further
// attempt, or 0.
func (p *Policy) spent(s State) Reason {
	switch {
	case s.Attempt > 0 && s.Attempt >= p.attempts() && p.Attempts != Unlimited:
		return StopAttempts
	case p.TotalTimeout > 0 && s.Elapsed >= p.TotalTimeout:
		return StopTotalTimeout
	}
	return 0
}

// verdict returns the reason for which this failure ends the call, or 0.
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

// wait returns a decision with the length of the wait, its source and the next
// State.Prev.
func (p *Policy) wait(s *State, o *Outcome, t *tables, u uint64) Decision {
	switch {
	case o.After > 0:
		least := clock.Later(o.After, p.ServerSlack)
		return Decision{By: ByServer, Wait: clock.Later(least, extra(o.After, p.room(s)-least, u)), Prev: s.Prev}
	case o.Delay > 0:
		return Decision{By: BySchedule, Wait: max(min(o.Delay, cmp.Or(p.Cap, math.MaxInt64)), o.AtLeast), Prev: s.Prev}
	case p.Base == 0 && o.Class != ClassThrottled:
		return Decision{Wait: max(o.AtLeast, 0)}
	default:
		d := p.delay(s, o, t, u)
		return Decision{Wait: max(d, o.AtLeast), Prev: d}
	}
}

// room returns the time that deadline and total timeout leave for a wait.
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

// extra returns a random time to add to a wait that the server stated, so that the
// clients of a server do not all return at the same moment. It is at most a fifth of
// the stated wait, at most 30 seconds, and at most half of the time left after the
// stated wait, so that it does not make a possible retry impossible.
func extra(after, left time.Duration, u uint64) time.Duration {
	most := min(after/5, 30*time.Second)
	if left > 0 {
		most = min(most, left/2)
	}
	return time.Duration(float64(most) * (float64(u>>11) / (1 << 53)))
}
