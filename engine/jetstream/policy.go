package jetstream

import (
	"errors"

	"github.com/tideover/tideover/retry"
)

// How this package retries. Everything that is retried may safely be repeated.
var (
	// opens is for the servers to be there when a log is opened.
	opens = runner("open", "exponential(50ms..2s) jitter=full attempts=unlimited attempt-timeout=10s total-timeout=1m")

	// appends ends while the caller still wants to know: after a server's death
	// the next leader takes longer, and the caller repeats the append.
	appends = runner("append", "exponential(20ms..500ms) jitter=full attempts=unlimited attempt-timeout=2500ms total-timeout=5s")

	// asks is for requests to a leader that are not urgent.
	asks = runner("ask", "exponential(20ms..1s) jitter=full attempts=unlimited attempt-timeout=5s total-timeout=15s")

	// farewells is for the last requests before the log is closed.
	farewells = runner("farewell", "exponential(20ms..500ms) jitter=full attempts=unlimited attempt-timeout=2s total-timeout=3s")

	// joins goes on for as long as the log is open.
	joins = runner("join", "exponential(50ms..1s) jitter=full attempts=unlimited attempt-timeout=3s")

	// refreshes is for a replica that is behind.
	refreshes = runner("look", "exponential(5ms..200ms) jitter=full attempts=unlimited")

	// calls is for requests that were rejected unread. No other may be repeated.
	calls = retry.Must("exponential(5ms..250ms) jitter=full attempts=unlimited", retry.WithName("call"),
		retry.WithClassifier(func(err error) retry.Outcome {
			if errors.Is(err, errBusy) {
				return retry.Outcome{}
			}
			return retry.Outcome{Class: retry.ClassPermanent}
		}))

	// reconnects says how long to wait when no server could be reached.
	reconnects = retry.Must("exponential(50ms..1s) jitter=full attempts=unlimited").Policy()
)

func runner(name, policy string) *retry.Runner {
	return retry.Must(policy, retry.WithName(name), retry.WithClassifier(outcome))
}
