package retry

import (
	"context"
	"iter"
)

// Attempt is one turn of the loop over [Runner.Attempts].
type Attempt struct {
	ctx    context.Context
	number int
}

// Context returns the context of the attempt. It ends with the turn if the
// policy has a timeout, so nothing that outlives the turn may depend on it;
// otherwise it is the caller's.
func (a Attempt) Context() context.Context { return a.ctx }

// Number returns the number of the attempt, from 1.
func (a Attempt) Number() int { return a.number }

// Attempts is [Runner.Do] as a loop. Each turn is an attempt, *err says how it
// went, and after the loop *err is nil or the reason for giving up:
//
//	var rows []Row
//	var err error
//	for a := range api.Attempts(ctx, &err) {
//		rows, err = load(a.Context(), id)
//	}
//
// Each turn starts with *err nil. Assign to that very variable: with := in the
// body a new one hides it, and every turn looks like a success. Leaving the loop
// early is allowed and leaves *err as it is. A nil err panics: without it the loop
// could neither learn of a failure nor report one.
func (r *Runner) Attempts(ctx context.Context, err *error) iter.Seq[Attempt] {
	if err == nil {
		panic("retry: Attempts: err is nil; pass the address of the error that the loop assigns to")
	}
	return func(yield func(Attempt) bool) { r.each(ctx, err, yield) }
}

func (r *Runner) each(ctx context.Context, err *error, yield func(Attempt) bool) {
	*err = nil
	if r != nil && r.direct && ctx != nil && ctx.Err() == nil {
		if !yield(Attempt{ctx, 1}) || *err == nil {
			return
		}
	}
	r.eachAfter(ctx, err, yield)
}

// leftError is the failure of a turn that left the loop: it counts as what it
// is, and nothing follows.
type leftError struct{ error }

func (e *leftError) Unwrap() error { return e.error }

func (e *leftError) RetryOutcome() Outcome {
	o := OutcomeOf(e.error)
	o.Final = true
	return o
}

// eachAfter goes on after a first turn that failed. It is apart because its
// closure would otherwise be paid for by a first turn that succeeds.
func (r *Runner) eachAfter(ctx context.Context, err *error, yield func(Attempt) bool) {
	number, left := 0, false
	turn := func(ctx context.Context) error {
		number++
		*err = nil
		if yield(Attempt{ctx, number}) {
			return *err
		}
		left = true
		if *err == nil {
			return nil
		}
		return &leftError{*err}
	}
	var final error
	if *err != nil {
		number = 1
		final = r.again(ctx, turn, *err)
	} else {
		final = r.run(ctx, State{}, turn)
	}
	if !left {
		*err = final
	}
}
