package jetstream

import (
	"errors"
	"fmt"
	"time"

	"github.com/tideover/tideover/engine/journal"
)

// startTime is how long a stream may seem to be gone: a server that starts does
// not know all of them at once.
const startTime = 2 * time.Second

// deletedError says that a stream that belongs to the cluster is not there.
type deletedError struct {
	name  string
	since time.Time // when that was first seen
	err   error
}

func (e *deletedError) Error() string {
	return fmt.Sprintf("%v: stream %s was deleted; restore it from a backup (nats stream restore): it is never created again, "+
		"because that would hide the loss", journal.ErrDamaged, e.name)
}

func (e *deletedError) Unwrap() []error { return []error{journal.ErrDamaged, e.err} }

func (e *deletedError) mayPass() bool { return time.Since(e.since) < startTime }

// deleted returns a deletedError if the error says that the stream is gone: a stream of
// the cluster is never deleted. Other errors stay as they are.
func (s stream) deleted(err error) error {
	if !errors.Is(err, errGone) {
		return err
	}
	return &deletedError{s.name, s.c.missing(s.name), err}
}

// missing returns when the stream was first seen to be gone. If it was last missed long
// ago, it has come back meanwhile, and the time starts again.
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

// absence is when a stream was seen to be gone.
type absence struct{ first, last time.Time }
