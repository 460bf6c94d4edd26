package retry

import (
	"context"
	"time"
)

// Review is a failed attempt and what the policy decides about it, for the function
// that [WithReview] sets.
type Review struct {
	State    State    // of the call, after the failed attempt
	Outcome  Outcome  // what the failure means
	Err      error    // the failure
	Decision Decision // of the policy; breaker and budget are asked after the review

	// PolicyWait is the wait that the policy computes from the same random number if
	// no server asks for one. It is there for decisions to stop, too.
	PolicyWait time.Duration

	policy *Policy
	draw   uint64
}

// Decide returns the policy's decision for another outcome of the same attempt, from
// the same random number. If it is to stop because the server asks for too long a wait
// (StopServerWait), Wait is the wait that the server asks for.
func (r *Review) Decide(o Outcome) Decision {
	d := r.policy.decide(&r.State, &o, Gates{}, r.draw)
	if d.Stop == StopServerWait {
		d.Wait = o.After
	}
	return d
}

// WithReview shows each failed attempt to the function, which returns the decision to
// apply: usually Review.Decision. It is for a caller that knows more than the policy,
// such as another server that can be asked at once. It is called once for each failed
// attempt, on the goroutine of the call.
//
// The limits of the policy hold for its decision: attempts, total timeout, the
// context's deadline, breaker and budget. It can't undo the end of a call that was
// canceled, whose attempt is stuck or must not be repeated ([Outcome].Final). A review
// that panics changes nothing; the panic goes to the observers as [HookFailed].
func WithReview(review func(context.Context, Review) Decision) Option {
	return given(review != nil, "WithReview", func(s *settings) { s.review = review })
}

// reviewed returns what the review makes of the decision, within the limits that it
// can't change.
func (c *call) reviewed(ctx context.Context, err error, draw uint64) Decision {
	r, s, o := c.r, &c.state, &c.outcome
	unasked := *o
	unasked.After = 0
	made := r.policy.decide(s, o, Gates{}, draw)
	d := made
	c.safely("review", func() {
		d = r.review(ctx, Review{
			State: *s, Outcome: *o, Err: err, Decision: made, PolicyWait: r.policy.wait(s, &unasked, draw).Wait,
			policy: &r.policy, draw: draw,
		})
	})
	switch {
	case o.Class == ClassCanceled || o.Class == ClassStuck || o.Final:
		return made
	case d.Stop != 0:
		return d
	case ctx.Err() != nil: // during the review
		return Decision{Stop: StopCanceled, Prev: s.Prev}
	case s.Attempt >= r.policy.Attempts && r.policy.Attempts != Unlimited:
		return Decision{Stop: StopAttempts, Prev: s.Prev}
	}
	d.Wait, d.Prev = max(d.Wait, 0), max(d.Prev, 0)
	c.readClocks() // the review may have waited
	gates := Gates{OpenFor: r.openFor()}
	if d.Stop = r.policy.exceeded(s, gates, d.Wait); d.Stop == 0 && !granted(&c.budget, o) {
		d.Stop = StopBudget
	}
	return d
}
