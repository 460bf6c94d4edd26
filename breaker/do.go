package breaker

import (
	"context"
	"errors"
)

var errNilOp = errors.New("breaker: the operation is nil")

// Do calls op if b allows it, reports the result and returns op's error. If b
// rejects the call, op is not called and the error is an [*OpenError].
//
// An error from op is a failure, unless the caller canceled ctx, which shows
// nothing about the destination. A deadline of ctx that passed is a failure: a
// destination that never answers must open the breaker. A panic in op is a
// failure too, and propagates.
func Do(ctx context.Context, b *Breaker, op func(context.Context) error) error {
	if op == nil {
		return errNilOp
	}
	p, err := b.Allow()
	if err != nil {
		return err
	}
	returned := false
	defer func() {
		if !returned {
			p.Done(Failure)
		}
	}()
	err = op(ctx)
	returned = true
	p.Done(result(ctx, err))
	return err
}

// result returns the Result to report for a call that returned err.
func result(ctx context.Context, err error) Result {
	switch {
	case err == nil:
		return Success
	case errors.Is(ctx.Err(), context.Canceled):
		return Canceled
	default:
		return Failure
	}
}
