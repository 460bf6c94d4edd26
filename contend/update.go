package contend

import (
	"context"
	"errors"
	"time"

	"github.com/tideover/tideover/retry"
)

// Update changes a state S that is read and written on condition: its parts
// are what every optimistic write consists of. It gets ambiguous answers right
// by itself.
type Update[S, T any] struct {
	// Read returns the state as it is, with what Write needs to make its
	// write depend on it: a version, a sequence, an epoch.
	Read func(context.Context) (S, error)

	// Write changes the state on condition that it is still the one given.
	// Losing is [Lost], or an error that [WithConflicts] knows. After any other
	// failure it is unsure whether the change was written, unless the error says
	// by a mark of package retry what it is.
	Write func(context.Context, S) (T, error)

	// Mine reports whether the state holds this very update already, and its
	// result. It is asked only while that is unsure. Nil means that it can't
	// be told: then an ambiguous answer ends the update with [ErrUnsure].
	Mine func(S) (T, bool)
}

// Do runs the update until it is written or the writer gives up.
//
// Mine and Write see the same state. A write that is still under way when Mine
// does not find it either comes first, so that the state has changed and the
// next Write loses, or comes too late and loses itself.
func (u Update[S, T]) Do(ctx context.Context, w *Writer) (v T, err error) {
	if u.Read == nil || u.Write == nil {
		return v, errors.New("contend: an Update needs Read and Write")
	}
	v, err = Do(ctx, w, func(ctx context.Context, try Try) (T, error) { return u.attempt(ctx, w, try) })
	if left := u.timeToLook(err, w); left > 0 {
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

func (u Update[S, T]) attempt(ctx context.Context, w *Writer, try Try) (v T, err error) {
	s, err := u.Read(ctx)
	if err != nil {
		return v, unread(err)
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
	case says(err) || w.conflict(err) != nil:
		return v, err
	case u.Mine == nil:
		return v, retry.Permanent(Unsure(err))
	}
	return v, Unsure(err)
}

// says reports whether the error states what became of the attempt, by a mark of
// package retry or of this one. That an error has a type which knows whether it
// may pass, as that of a response with a status, says nothing of the kind.
func says(err error) bool {
	if retry.Marked(err) || errors.Is(err, ErrUnsure) {
		return true
	}
	_, lost := errors.AsType[*ConflictError](err)
	_, read := errors.AsType[*unreadError](err)
	return lost || read
}

// unread makes a failed read one that may be repeated, unless it says
// otherwise: it has written nothing.
func unread(err error) error {
	if says(err) {
		return err
	}
	return &unreadError{err}
}

// unreadError is the failure of a read.
type unreadError struct{ error }

func (e *unreadError) Unwrap() error { return e.error }

func (e *unreadError) RetryOutcome() retry.Outcome { return retry.OutcomeOf(e.error) }

// timeToLook returns how much time is left for a last look, when the attempts
// are used up and one of them may have been written.
func (u Update[S, T]) timeToLook(err error, w *Writer) time.Duration {
	e, ok := errors.AsType[*Error](err)
	if !ok || !e.Unsure || e.Err.Reason != retry.StopAttempts || u.Mine == nil {
		return 0
	}
	return w.config.policy().TotalTimeout - e.Err.Elapsed
}
