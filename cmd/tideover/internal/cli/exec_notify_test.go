package cli

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/tideover/tideover/retry"
)

// The limit of finish ends a wait, an attempt that hangs after others have failed, and an attempt that
// hangs from the beginning.
func TestAMessageThatIsLateNamesTheLimit(t *testing.T) {
	t.Parallel()
	refused := errors.New("connection refused")
	for name, c := range map[string]struct {
		policy   string
		failures int // of the receiver, before an attempt hangs
		stopped  bool
		want     string
	}{
		"during a wait":      {"fixed(13s) attempts=unlimited", 99, false, "notify hook: gave up after 5 attempts: not sent within 1m0s: connection refused"},
		"in a later attempt": {"fixed(1s) attempts=unlimited", 2, false, "notify hook: gave up after 3 attempts: not sent within 1m0s: connection refused"},
		"in the first":       {"fixed(1s) attempts=unlimited", 0, false, "notify hook: gave up after 1 attempt: not sent within 1m0s"},
		"out of attempts":    {"fixed(1s) attempts=2", 2, false, "notify hook: gave up after 2 attempts in 1s: attempts used up: connection refused"},
		"by a signal":        {"fixed(1m) attempts=2", 2, true, "notify hook: gave up after 1 attempt: canceled: context canceled: connection refused"},
	} {
		synctest.Test(t, func(t *testing.T) {
			set, err := newNotifierSet("", nil)
			if err != nil {
				t.Fatal(err)
			}
			runner := retry.Must(c.policy, retry.WithName("notify hook"))
			var sent error
			set.pending.Go(func() {
				n := 0
				sent = runner.Do(set.ctx, func(ctx context.Context) error {
					if n++; n <= c.failures {
						return refused
					}
					<-ctx.Done()
					return ctx.Err()
				})
			})
			synctest.Wait()
			stop, cancel := context.WithCancel(t.Context())
			if c.stopped {
				cancel()
			}
			set.finish(stop)
			cancel()
			if got := set.describe(sent); got != c.want {
				t.Errorf("%s: %q, want %q", name, got, c.want)
			}
		})
	}
}
