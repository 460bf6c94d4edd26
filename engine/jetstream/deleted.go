package jetstream

import (
	"errors"
	"fmt"
	"time"

	"github.com/tideover/tideover/engine/journal"
)

// startTime is how long a stream may seem to be gone before it counts as deleted: a
// server that starts does not know all streams at once.
const startTime = 2 * time.Second

// deletedError means that a stream of the cluster does not exist any more.
type deletedError struct {
	name  string
	since time.Time // when the stream was first found to be gone
	err   error
}

func (e *deletedError) Error() string {
	return fmt.Sprintf("%v: stream %s was deleted; restore it from a backup (nats stream restore): it is never created again, "+
		"because that would hide the loss", journal.ErrDamaged, e.name)
}

func (e *deletedError) Unwrap() []error { return []error{journal.ErrDamaged, e.err} }

func (e *deletedError) mayPass() bool { return time.Since(e.since) < startTime }

// deleted returns a deletedError if err is errGone, because tideover never deletes a
// stream. It returns other errors unchanged.
func (s stream) deleted(err error) error {
	if !errors.Is(err, errGone) {
		return err
	}
	return &deletedError{s.name, s.c.missing(s.name), err}
}

// missing records that the stream does not exist now, and returns since when it has been
// missing. If the last such record is old, the stream has existed since then, and missing
// returns the present time.
func (c *conn) missing(stream string) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	seen, ok := c.gone[stream]
	if !ok || now.Sub(seen.last) > 10*startTime {
		seen.first = now
	}
	seen.last = now
	c.gone[stream] = seen
	return seen.first
}

// absence says when a stream was first and last found to be gone.
type absence struct{ first, last time.Time }
