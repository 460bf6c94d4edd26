package nip90

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/retry"
)

// timeout is the failure of an attempt that took longer than the customer allows.
type timeout struct{ limit time.Duration }

const timeoutWords = "Operation timed out after "

func (t timeout) Error() string { return fmt.Sprintf("%s%dms", timeoutWords, t.limit.Milliseconds()) }

// errNotAsked is the error of a run that no customer has asked for.
var errNotAsked = errors.New("not a request: such a run is started by who asks for it over Nostr, as with tideover nip90 request")

// work makes an attempt of a job within the time that its customer allows. An attempt
// that succeeds after that is late, and its result is dropped.
func (s *Service) work(attempt engine.Handler) engine.Handler {
	return func(ctx context.Context, t *engine.Task) ([]byte, error) {
		j, err := readJob(t.Input)
		if err != nil {
			return nil, retry.Permanent(err)
		}
		if j.ID == "" {
			return nil, retry.Permanent(errNotAsked)
		}
		if j.Nostr.Attempt <= 0 {
			return attempt(ctx, t)
		}
		over := timeout{j.Nostr.Attempt}
		ctx, cancel := context.WithTimeoutCause(ctx, over.limit, over)
		defer cancel()
		out, err := attempt(ctx, t)
		if !errors.Is(context.Cause(ctx), over) {
			return out, err
		}
		if err == nil {
			s.late.Add(1)
			s.log.Warn("the result of an attempt came after its time and was dropped", "run", t.Run, "attempt", t.Attempt, "timeout", over.limit)
		}
		return nil, over
	}
}
