package plan

import (
	"iter"
	"math"
	"math/bits"
	"time"

	"github.com/tideover/tideover/backoff"
	"github.com/tideover/tideover/retry"
)

// maxSteps is the most retries whose delays are added up one by one. Nearly all policies have
// constant delays long before; the sum of constant delays is a multiplication.
const maxSteps = 100_000

const forever = time.Duration(math.MaxInt64)

// step has the delay and the bounds of one retry.
type step struct {
	delay, low, high time.Duration // delay without jitter, and the range from which jitter draws
	least, most      time.Duration // that range, extended by the range after a throttled attempt
	constant         bool          // all later retries have the same delay and bounds
}

// reached says which retries the total timeout prevents. Each field is for one case, and has the
// number of the first retry that is prevented; 0 if none is.
type reached struct {
	never int // with the shortest attempts and waits: the retry never happens
	maybe int // with the shortest attempts and the longest waits
	slow  int // if each attempt takes its whole timeout, with the shortest waits
}

// walk iterates over the retries of a policy and adds up their waits.
type walk struct {
	policy   retry.Policy
	plain    backoff.Schedule // the schedule of the policy without jitter
	throttle backoff.Schedule // the schedule after throttled attempts
	retries  int              // retry.Unlimited if there is no limit
	far      step             // the last retry; if there is no limit, a very late one

	total *Sum // set by run; nil if the sum is not known
	reach reached
	worst time.Duration // longest sum of the waits, without retries that never happen
	open  bool          // the delays still differ after maxSteps retries
}

func newWalk(p retry.Policy) *walk {
	w := &walk{policy: p, plain: p.Schedule, throttle: p.Schedule, retries: p.Retries()}
	w.plain.Jitter = backoff.None
	if p.ThrottleBase > 0 {
		w.throttle.Base = p.ThrottleBase
	}
	last := w.retries
	if w.endless() {
		last = math.MaxInt32
	}
	far, _ := w.plain.Bounds(last)
	w.far = w.step(last, far)
	return w
}

func (w *walk) endless() bool { return w.retries == retry.Unlimited }

func (w *walk) step(k int, delay time.Duration) step {
	s := step{delay: delay}
	s.low, s.high = w.policy.Bounds(k)
	low, high := w.throttle.Bounds(k)
	s.least, s.most = min(s.low, low), max(s.high, high)
	return s
}

// steps yields all retries with their numbers, beginning with 1.
func (w *walk) steps() iter.Seq2[int, step] {
	return func(yield func(int, step) bool) {
		var before step
		for k, d := range w.policy.Delays(nil) {
			s := w.step(k, d)
			far := w.far
			if w.policy.Kind == backoff.Decorrelated {
				// The delay depends on the previous one: when two are equal, all later ones are,
				// too.
				far.delay = before.delay
			}
			s.constant = s == far
			if !yield(k, s) {
				return
			}
			before = s
		}
	}
}

// listed returns how many retries to list. n is the number that the caller asked for; 0 means the
// default.
func (w *walk) listed(n int) int {
	most := w.retries
	if w.endless() {
		most = MaxList
	}
	switch {
	case n > 0:
		return min(n, most, MaxList)
	case !w.endless() && most <= listAll:
		return most
	}
	never := crossing{limit: w.policy.TotalTimeout}
	for k, s := range w.steps() {
		never.pass(k, 1, s.least)
		if k >= listMost || k >= listLeast && s.constant || never.at > 0 {
			return k
		}
	}
	return most
}

// constantFrom reports whether all retries from number n on have the same delay and bounds.
func (w *walk) constantFrom(n int) bool {
	for k, s := range w.steps() {
		if k == n || s.constant {
			return s.constant
		}
	}
	return false
}

// run adds up the waits of all retries, sets the results in w, and returns the first list retries.
func (w *walk) run(list int) []Retry {
	var out []Retry
	var sum Sum
	limit := w.policy.TotalTimeout
	never, maybe, slow := crossing{limit: limit}, crossing{limit: limit}, crossing{limit: limit}
	pass := func(k, times int, s step) {
		never.pass(k, times, s.least)
		maybe.pass(k, times, s.high)
		slow.pass(k, times, add(s.least, w.policy.AttemptTimeout))
		sum = sum.plus(s, times)
		if never.at > 0 {
			times = max(0, min(times, never.at-k))
		}
		w.worst = add(w.worst, multiply(s.most, times))
	}
	for k, s := range w.steps() {
		pass(k, 1, s)
		if k <= list {
			out = append(out, Retry{N: k, Delay: s.delay, Low: s.low, High: s.high, Sum: sum, Never: never.at > 0})
		}
		if k < list {
			continue
		}
		w.open = k == maxSteps && !s.constant
		if w.endless() && limit == 0 || w.open {
			break
		}
		if s.constant {
			pass(k+1, w.rest(k), s)
			break
		}
	}
	w.reach = reached{never.at, maybe.at, slow.at}
	if !w.endless() && !w.open {
		w.total = &sum
	}
	return out
}

// rest returns how many retries there are after number k.
func (w *walk) rest(k int) int {
	if w.endless() {
		return math.MaxInt64 / 2 // half, because the caller adds the number of a retry
	}
	return w.retries - k
}

// worstCase returns the longest time of the call; 0 if the time has no limit or is unknown.
func (w *walk) worstCase() time.Duration {
	p, most := w.policy, forever
	if p.AttemptTimeout > 0 && !w.open {
		n := w.retries
		if w.reach.never > 0 {
			n = w.reach.never - 1
		}
		if n >= 0 {
			most = add(multiply(p.AttemptTimeout, n+1), w.worst)
		}
	}
	switch {
	case p.TotalTimeout > 0:
		return min(most, p.TotalTimeout)
	case p.AttemptTimeout > 0 && !w.endless() && !w.open:
		return most
	}
	return 0
}

// crossing adds up waits and finds the first retry that does not happen, because its wait would end
// at the total timeout or later.
type crossing struct {
	limit time.Duration // the total timeout; 0 means none
	sum   time.Duration // of the waits so far
	at    int           // number of the first retry that does not happen; 0 if all happen so far
}

// pass adds the waits of several retries: times is how many there are, k is the number of the
// first, and d is the wait of each.
func (c *crossing) pass(k, times int, d time.Duration) {
	if c.limit == 0 || c.at > 0 {
		return
	}
	if d > 0 {
		// With j waits the sum reaches the limit. It is below the limit here, so j is at least 1.
		if j := (c.limit-c.sum-1)/d + 1; int64(j) <= int64(times) {
			c.at = k + int(j) - 1
			return
		}
	}
	c.sum = add(c.sum, multiply(d, times))
}

func (s Sum) plus(d step, times int) Sum {
	s.Delay = add(s.Delay, multiply(d.delay, times))
	s.Low = add(s.Low, multiply(d.low, times))
	s.High = add(s.High, multiply(d.high, times))
	return s
}

// add adds durations that are not negative. It returns the largest duration instead of an overflow.
func add(a, b time.Duration) time.Duration { return min(a, forever-b) + b }

// multiply returns d*n for numbers that are not negative. It returns the largest duration instead
// of an overflow.
func multiply(d time.Duration, n int) time.Duration {
	hi, lo := bits.Mul64(uint64(d), uint64(n))
	if hi > 0 || lo > math.MaxInt64 {
		return forever
	}
	return time.Duration(lo)
}
