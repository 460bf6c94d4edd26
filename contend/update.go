package contend

import (
	"context"
	"errors"
	"time"

	"github.com/tideover/tideover/retry"
)

// Update changes a state S with conditional writes. Its functions are the steps of an
// optimistic write. It also handles a Write after whose failure the change may have
// been written.
type Update[S, T any] struct {
	// Read returns the present state, including what Write needs as its
	// condition: a version, a sequence, an epoch.
	Read func(context.Context) (S, error)

	// Write changes the state on condition that it is still s. A conflict is
	// [Lost], or an error that [WithConflicts] recognises. After any other
	// error the change may have been written, unless the error has a mark of
	// package retry.
	Write func(context.Context, S) (T, error)

	// Mine reports whether the state already contains this very update, and
	// returns its result. It is called only if an earlier attempt may have been
	// written. If Mine is nil, an ambiguous failure ends the update with
	// [ErrUnsure].
	Mine func(S) (T, bool)
}

// Do runs the update with the writer's policy and returns the result of Write or
// Mine. If all attempts are used and one of them may have been written, it reads the
// state once more and calls Mine.
//
// Mine and Write get the same state, so the update is never written twice. When Mine
// does not find an earlier write, that write may still be in flight. If it arrives
// before the next Write, the state has changed and the next Write loses. If it
// arrives after the next Write, the earlier write loses.
func (u Update[S, T]) Do(ctx context.Context, w *Writer) (v T, err error) {
	if u.Read == nil || u.Write == nil {
		return v, errors.New("contend: Update: Read or Write is nil: set both")
	}
	v, err = Do(ctx, w, func(ctx context.Context, try Try) (T, error) { return u.attempt(ctx, w, try) })
	if left := u.timeForLastRead(err, w); left > 0 {
		ctx, cancel := context.WithTimeout(ctx, left)
		defer cancel()
		if s, failed := u.Read(ctx); failed == nil {
			if v, won := u.Mine(s); won {
				return v, nil
			}
		}
	}
	return v, err
}

// attempt reads the state, looks for an earlier write of this update, and writes.
func (u Update[S, T]) attempt(ctx context.Context, w *Writer, try Try) (v T, err error) {
	s, err := u.Read(ctx)
	if err != nil {
		return v, markReadFailure(err)
	}
	if try.Unsure && u.Mine != nil {
		if v, won := u.Mine(s); won {
			return v, nil
		}
	}
	if v, err = u.Write(ctx, s); err == nil {
		return v, nil
	}
	switch {
	case statesOutcome(err) || w.conflict(err) != nil:
		return v, err
	case u.Mine == nil:
		return v, retry.Permanent(Unsure(err))
	}
	return v, Unsure(err)
}

// statesOutcome reports whether the error has a mark of package retry or of this
// package, and so states whether the attempt wrote something. Other error types, such
// as that of an HTTP status, may state that a failure is temporary, but not whether
// something was written.
func statesOutcome(err error) bool {
	if retry.Marked(err) || errors.Is(err, ErrUnsure) {
		return true
	}
	_, lost := errors.AsType[*ConflictError](err)
	_, read := errors.AsType[*readError](err)
	return lost || read
}

// markReadFailure makes a failed read retryable, because a read writes nothing. It
// returns an error that already has a mark unchanged.
func markReadFailure(err error) error {
	if statesOutcome(err) {
		return err
	}
	return &readError{err}
}

// readError is the failure of a read.
type readError struct{ error }

func (e *readError) Unwrap() error { return e.error }

func (e *readError) RetryOutcome() retry.Outcome { return retry.OutcomeOf(e.error) }

// timeForLastRead returns how much time is left for one more read, after all
// attempts were used and one of them may have been written. It returns 0 if no
// read is needed.
func (u Update[S, T]) timeForLastRead(err error, w *Writer) time.Duration {
	e, ok := errors.AsType[*Error](err)
	if !ok || !e.Unsure || e.Err.Reason != retry.StopAttempts || u.Mine == nil {
		return 0
	}
	return w.config.Policy.TotalTimeout - e.Err.Elapsed
}
