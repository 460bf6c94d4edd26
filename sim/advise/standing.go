package advise

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/tideover/tideover/sim"
)

// standing is the result of a candidate.
type standing struct {
	candidate
	results  []sim.Result // of each scenario; empty for a scenario that was left out
	misses   []Miss
	distance float64 // from the goal
	onTheDay float64 // the part of the distance that is success on an ordinary day
	margin   float64 // by how much all parts of the goal are exceeded, as a logarithm; negative if one is missed
	day      float64 // share of the calls that succeed on an ordinary day
	calls    float64 // calls of all runs of the ordinary day
	harm     float64 // how many fewer calls succeed than with one patient attempt, the sum over the other scenarios
	never    float64 // share of the runs without a recovery, the sum over the scenarios
	load     float64 // attempts per call, 1 at least, the mean over the scenarios
	slow     float64 // p99 in seconds, the mean over the scenarios
	unstable bool    // its retries may overload the service on an ordinary day: see searchSpace.unstable
	calm     float64 // see searchSpace.calm
	lasts    bool    // its results on an ordinary day would be the same if the day lasted longer
}

// reached reports whether the candidate reaches the goal, however long the ordinary day lasts.
func (st *standing) reached() bool { return len(st.misses) == 0 && st.lasts }

// missesSurely reports whether the candidate would miss the goal also with more runs.
func (st *standing) missesSurely() bool {
	return slices.ContainsFunc(st.misses, func(m Miss) bool { return !m.Uncertain() })
}

// criterion is a property of a standing of which less is better. Values that
// differ by at most the tolerance are equal.
type criterion struct {
	of        func(*standing) float64
	tolerance func(*standing) float64
}

// constant returns a tolerance that is the same for every standing.
func constant(v float64) func(*standing) float64 {
	return func(*standing) float64 { return v }
}

var (
	toGoal = criterion{func(st *standing) float64 { return st.distance + 10*float64(boolToInt(!st.lasts)) }, constant(0.01)}
	onDay  = criterion{func(st *standing) float64 { return -st.day }, (*standing).dayNoise}

	stability    = criterion{func(st *standing) float64 { return float64(boolToInt(st.unstable)) }, constant(0)}
	rareOverload = criterion{func(st *standing) float64 { return -st.calm }, constant(4)}
	toStableGoal = criterion{func(st *standing) float64 { return st.distance + 10*float64(boolToInt(st.unstable)) }, toGoal.tolerance}

	// aboutOnDay is onDay for goals that no candidate reaches: candidates whose days differ by less
	// than half a point are compared by toRestOfGoal.
	toRestOfGoal = criterion{func(st *standing) float64 { return st.distance - st.onTheDay }, toGoal.tolerance}
	aboutOnDay   = criterion{onDay.of, func(st *standing) float64 { return math.Max(st.dayNoise(), 0.005) }}

	// later are the criteria for candidates that are equal on the goal and on an
	// ordinary day.
	later = []criterion{
		{func(st *standing) float64 { return st.never }, constant(0.05)},
		{func(st *standing) float64 { return st.harm }, constant(0.005)},
		{func(st *standing) float64 { return float64(st.jitterless() + st.untimed()) }, constant(0)},
		{func(st *standing) float64 { return st.load }, constant(sameLoad)},
		{func(st *standing) float64 { return math.Log(math.Max(st.slow, 1e-9)) }, constant(sameShare)},
		{func(st *standing) float64 { return float64(st.parts()) }, constant(0)},
		{func(st *standing) float64 { return float64(st.policy.Attempts) }, constant(0)},
	}
)

// dayNoise returns by how much the success of two candidates on an ordinary day may
// differ without a meaning: a fifth of a per cent, and the noise of the runs. The
// noise of a difference is smaller than that of a value, because all candidates get the
// same calls.
func (st *standing) dayNoise() float64 {
	return 0.002 + math.Sqrt(st.day*(1-st.day)/math.Max(st.calls, 1))
}

// preferred returns the index of the best standing. It is the only place that says
// which of two policies is better:
//
//   - A policy that reaches the goal is better than one that does not. A policy whose
//     retries may overload the service on an ordinary day comes after all others, even if
//     the runs of the search do not show it: the overload may be an hour away.
//   - Of those that reach it, the one is better with which more calls succeed on an
//     ordinary day. If none reaches it, the ordinary day comes first and the distance
//     from the goal second: a goal that is missed anyway is worth no harm beyond a
//     fraction of a point.
//   - Then the criteria later decide.
//
// At each step, all that are equal to the best within the tolerance stay. So the
// result does not depend on the order, and differences below the noise decide nothing.
func preferred(list []standing) int {
	switch {
	case slices.ContainsFunc(list, func(st standing) bool { return st.reached() && !st.unstable }):
		return choose(list, toStableGoal, onDay)
	case slices.ContainsFunc(list, func(st standing) bool { return st.reached() }):
		return choose(list, toGoal, rareOverload, onDay)
	}
	return choose(list, stability, aboutOnDay, toRestOfGoal, toGoal)
}

// nearest returns the index of the standing that is nearest to the goal, whatever it
// costs. Of those that look equal it is the one with the most attempts: if a goal allows
// one failure in ten thousand calls, short runs of many candidates have none.
func nearest(list []standing) int {
	return choose(list, toGoal, criterion{func(st *standing) float64 { return -float64(st.policy.Attempts) }, constant(0)}, onDay)
}

// choose returns the index of the best standing by the criteria first and then by the
// criteria later.
func choose(list []standing, first ...criterion) int {
	criteria := slices.Concat(first, later)
	left := make([]int, len(list))
	for i := range left {
		left[i] = i
	}
	for _, c := range criteria {
		least := slices.MinFunc(left, func(a, b int) int { return cmp.Compare(c.of(&list[a]), c.of(&list[b])) })
		most := c.of(&list[least]) + c.tolerance(&list[least])
		left = slices.DeleteFunc(left, func(i int) bool { return c.of(&list[i]) > most })
	}
	return slices.MinFunc(left, func(a, b int) int { return compareSettings(list[a].candidate, list[b].candidate) })
}

// compareSettings orders candidates with the same results, so that the advice does
// not depend on the seed more than necessary.
func compareSettings(a, b candidate) int {
	return cmp.Or(
		cmp.Compare(a.policy.Jitter.Lo, b.policy.Jitter.Lo), // full jitter spreads best
		cmp.Compare(b.longestAttempt(), a.longestAttempt()), // a long timeout does the least harm
		cmp.Compare(a.policy.Base, b.policy.Base),
		cmp.Compare(a.String(), b.String()),
	)
}

// longestAttempt returns when an attempt ends at the latest.
func (c candidate) longestAttempt() time.Duration {
	return cmp.Or(c.policy.AttemptTimeout, c.policy.TotalTimeout)
}

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// jitterless returns 1 if the candidate retries without jitter, else 0.
func (c candidate) jitterless() int {
	return boolToInt(c.policy.Attempts > 1 && !c.policy.Random())
}

// untimed returns 1 if a call that is never answered gets no retry, else 0.
func (c candidate) untimed() int {
	return boolToInt(c.policy.Attempts > 1 && c.policy.AttemptTimeout == 0)
}

// inOrder returns the standings in the order of preference.
func inOrder(list []standing, choose func([]standing) int) (out []standing) {
	rest := slices.Clone(list)
	for len(rest) > 0 {
		i := choose(rest)
		out = append(out, rest[i])
		rest = slices.Delete(rest, i, i+1)
	}
	return out
}

// survivors returns the n best standings. If none reaches the goal, half of them are
// the nearest to the goal: one of these may lead to a policy that reaches it.
func survivors(list []standing, n int) []standing {
	order := inOrder(list, preferred)
	if n >= len(order) {
		return order
	}
	if order[0].reached() {
		return order[:n]
	}
	return slices.Concat(order[:n/2], inOrder(order[n/2:], nearest)[:n-n/2])
}
