package retry

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/tideover/tideover/backoff"
	"github.com/tideover/tideover/internal/clock"
	"github.com/tideover/tideover/internal/enum"
	"github.com/tideover/tideover/internal/validate"
	"github.com/tideover/tideover/limit"
)

// Unlimited as a number of attempts means no limit. No zero value means unlimited.
const Unlimited = -1

// DefaultServerWait is the longest delay stated by a server that a policy without
// ServerWait accepts.
const DefaultServerWait = 120 * time.Second

// Policy says how long to wait, when to stop and how many retries a budget allows. It
// is plain data: comparable, printable and storable, with one text form that
// [Parse] reads and [Policy.String] writes. The zero Policy is valid and makes
// one attempt.
type Policy struct {
	backoff.Schedule // Kind, Base, Cap, Factor, MaxDoublings, Jitter

	Attempts       int              // attempts in all, including the first; 0 means 1, Unlimited no limit
	AttemptTimeout time.Duration    // longest duration of one attempt; 0 means no limit
	TotalTimeout   time.Duration    // longest duration of the call with all attempts and waits; 0 means no limit
	ThrottleBase   time.Duration    // used as Base after a throttled attempt; 0 means Base
	ServerWait     time.Duration    // longest accepted delay stated by a server; 0 means DefaultServerWait
	ServerSlack    time.Duration    // added to a delay stated by a server
	ResetAfter     time.Duration    // time without failure after which attempts count from 1 again; 0 means never
	Budget         limit.BudgetSpec // limits retries across calls; zero means no budget
	Hedge          Hedge            // second attempt beside a slow one; zero means none
}

// Validate returns all problems of the policy, each with the name of its key.
func (p Policy) Validate() error {
	errs := validate.Problems{p.Schedule.Validate()}
	errs.Check(p.Attempts >= Unlimited, "attempts: %d is negative", p.Attempts)
	validate.NotNegative(&errs, "attempt-timeout", p.AttemptTimeout)
	validate.NotNegative(&errs, "total-timeout", p.TotalTimeout)
	validate.NotNegative(&errs, "throttle-base", p.ThrottleBase)
	validate.NotNegative(&errs, "server-wait", p.ServerWait)
	validate.NotNegative(&errs, "server-slack", p.ServerSlack)
	validate.NotNegative(&errs, "reset-after", p.ResetAfter)
	errs.Check(p.Cap <= 0 || p.ThrottleBase <= p.Cap, "throttle-base: %v is above cap %v", p.ThrottleBase, p.Cap)
	return errors.Join(append(errs, p.Budget.Validate(), p.Hedge.Validate())...)
}

// Retries returns how many retries the policy allows, Unlimited for no limit.
func (p Policy) Retries() int {
	if p.Attempts == Unlimited {
		return Unlimited
	}
	return p.attempts() - 1
}

// attempts returns Attempts with the default of 1 for 0.
func (p *Policy) attempts() int { return cmp.Or(p.Attempts, 1) }

// Delays yields the number and the wait of each retry that the policy allows.
// It calls random once for each; nil yields the waits without jitter. The waits
// do not consider timeouts, budgets and delays stated by servers.
func (p Policy) Delays(random func() uint64) iter.Seq2[int, time.Duration] {
	return func(yield func(int, time.Duration) bool) {
		last := p.Retries()
		for k, d := range p.Schedule.Delays(random) {
			if last != Unlimited && k > last || !yield(k, d) {
				return
			}
		}
	}
}

// Refuse returns an error if the policy sets one of the named keys, because the
// caller does not support them. runner is the name of the caller in the error, such
// as "a Hedger". Constructors call Refuse, so that no key is silently ignored.
func (p Policy) Refuse(runner string, names ...string) error {
	var errs []error
	for _, name := range names {
		k, ok := keyNamed(name)
		if !ok {
			return fmt.Errorf("retry: Refuse: unknown key %q", name)
		}
		if v := k.get(&p); v != "" {
			errs = append(errs, fmt.Errorf("%s: %s can't honour %s=%s", name, runner, name, v))
		}
	}
	return errors.Join(errs...)
}

// tables has the compiled schedules of a policy.
type tables struct {
	normal    *backoff.Table
	throttled *backoff.Table // after a throttled attempt
}

func (p *Policy) compile() *tables {
	t := &tables{normal: p.Schedule.Compile()}
	if t.throttled = t.normal; p.ThrottleBase > 0 {
		t.throttled = p.throttledSchedule().Compile()
	}
	return t
}

// throttledSchedule returns the schedule after a throttled attempt: it starts from
// ThrottleBase, if that is set.
func (p *Policy) throttledSchedule() backoff.Schedule {
	s := p.Schedule
	s.Base = cmp.Or(p.ThrottleBase, s.Base)
	return s
}

// delay returns the schedule's delay for the next retry. It takes it from the tables
// unless they are nil.
func (p *Policy) delay(s *State, o *Outcome, t *tables, u uint64) time.Duration {
	throttled := o.Class == ClassThrottled
	switch {
	case t != nil && throttled:
		return t.throttled.Delay(s.Attempt, s.Prev, u)
	case t != nil:
		return t.normal.Delay(s.Attempt, s.Prev, u)
	case throttled:
		return p.throttledSchedule().Delay(s.Attempt, s.Prev, u)
	default:
		return p.Delay(s.Attempt, s.Prev, u)
	}
}

// preset is a named policy.
type preset struct {
	name, use string
	policy    Policy
}

func exponential(base, limit time.Duration, jitter backoff.Band, attempts int) Policy {
	s := backoff.Schedule{Kind: backoff.Exponential, Base: base, Cap: limit, Jitter: jitter}
	return Policy{Schedule: s, Attempts: attempts}
}

const ms, sec, minute = time.Millisecond, time.Second, time.Minute

var tenth, fifth = backoff.PlusMinus(0.1), backoff.PlusMinus(0.2)

// presets has all presets in the order of [Presets].
var presets = func() []preset {
	byDefault := exponential(50*ms, 20*sec, backoff.Full, 3)
	byDefault.ThrottleBase = sec
	byDefault.TotalTimeout = 30 * sec
	byDefault.Budget = limit.Refund(1, 0.1, 10)

	contention := exponential(10*ms, sec, backoff.Plus(0.5), 7)
	contention.MaxDoublings = 6

	return []preset{
		{"default", "calls between services, from evidence", byDefault},
		{"daemon", "a long-running session that hits limits", exponential(30*sec, 5*minute, tenth, 6)},
		{"workflow", "a workflow step", Policy{
			Schedule: backoff.Schedule{Kind: backoff.Fixed, Base: sec, Cap: 5 * minute}, Attempts: 3,
		}},
		{"workflow-api", "a workflow step that calls a remote API", exponential(sec, minute, backoff.Wide, 5)},
		{"contention", "writers that collide on one thing", contention},
		{"http", "remote APIs", exponential(sec, 32*sec, fifth, 4)},
		{"http-conservative", "remote APIs, where the call must get through", exponential(500*ms, minute, fifth, 6)},
		{"http-interactive", "remote APIs, where a person waits", exponential(500*ms, 8*sec, fifth, 3)},
		{"http-batch", "remote APIs, for batch jobs", exponential(2*sec, 32*sec, fifth, 4)},
		{"task", "a delegated task", exponential(sec, 30*sec, backoff.None, 4)},
	}
}()

// Preset returns the policy of the preset with the name, and false if there is none.
func Preset(name string) (Policy, bool) {
	i := slices.IndexFunc(presets, func(p preset) bool { return p.name == name })
	if i < 0 {
		return Policy{}, false
	}
	return presets[i].policy, true
}

// Presets yields the names of all presets and what each is for.
func Presets(yield func(name, use string) bool) {
	for _, p := range presets {
		if !yield(p.name, p.use) {
			return
		}
	}
}

func presetList() string { return strings.Join(presetNames(), ", ") }

// presetNames returns the names of the presets.
func presetNames() []string {
	names := make([]string, len(presets))
	for i, p := range presets {
		names[i] = p.name
	}
	return names
}

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
	case p.usedUp(s.Attempt):
		return Decision{Stop: StopAttempts, Prev: s.Prev}
	case p.Base == 0:
		return Decision{}
	default:
		d := t.normal.Delay(s.Attempt, s.Prev, u)
		return Decision{Wait: d, Prev: d}
	}
}

// usedUp reports whether this attempt is the last that the policy allows.
func (p *Policy) usedUp(attempt int) bool {
	return attempt >= p.Attempts && p.Attempts != Unlimited
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
	case p.usedUp(s.Attempt):
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
