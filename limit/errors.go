package limit

import (
	"context"
	"errors"
	"fmt"
)

// The conditions under which a limit turns a caller away.
var (
	// ErrQueueFull says that no permit was free and no room to wait for one.
	ErrQueueFull = errors.New("limit: no permit free and no room in the queue")

	// ErrShed says that a waiting caller had to make room for a more urgent one.
	ErrShed = errors.New("limit: shed from the queue for a more urgent caller")

	// ErrRate says that the next slot of a rate is further away than the caller
	// may wait. The error that matches it is a [*RateError].
	ErrRate = errors.New("limit: rate exceeded")
)

// misused names the function to which something was given that makes no sense.
func misused(name string, err error) error { return fmt.Errorf("limit.%s: %w", name, err) }

// ended returns the error of a wait that the context cut short. It matches both
// the context's error and the cause that whoever ended it gave.
func ended(ctx context.Context, wait string) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return fmt.Errorf("limit: wait for %s: %w", wait, cause)
	}
	return fmt.Errorf("limit: wait for %s: %w: %w", wait, err, cause)
}
