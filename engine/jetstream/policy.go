package jetstream

import (
	"errors"
	"sync"

	"github.com/tideover/tideover/retry"
)

// How this package retries. Everything that is retried may safely be repeated.
var (
	// opens waits for the servers when a log is opened.
	opens = runner("open", "exponential(50ms..2s) jitter=full attempts=unlimited attempt-timeout=10s total-timeout=1m")

	// appends gives up early, so that the caller learns of the problem: after a server's
	// death the election of a leader may take longer. The caller repeats the append.
	appends = runner("append", "exponential(20ms..500ms) jitter=full attempts=unlimited attempt-timeout=2500ms total-timeout=5s")

	// asks is for requests to a leader that are not urgent.
	asks = runner("ask", "exponential(20ms..1s) jitter=full attempts=unlimited attempt-timeout=5s total-timeout=15s")

	// farewells is for the last requests before the log is closed.
	farewells = runner("farewell", "exponential(20ms..500ms) jitter=full attempts=unlimited attempt-timeout=2s total-timeout=3s")

	// joins continues for as long as the log is open.
	joins = runner("join", "exponential(50ms..1s) jitter=full attempts=unlimited attempt-timeout=3s")

	// refreshes reads the bucket again while the replica that answers is behind.
	refreshes = runner("look", "exponential(5ms..200ms) jitter=full attempts=unlimited")

	// calls repeats requests that were rejected before they were handled. No other
	// request may be repeated.
	calls = retry.Must("exponential(5ms..250ms) jitter=full attempts=unlimited", retry.WithName("call"),
		retry.WithClassifier(func(err error) retry.Outcome {
			if errors.Is(err, errBusy) {
				return retry.Outcome{}
			}
			return retry.Outcome{Class: retry.ClassPermanent}
		}))

	// reconnects has the delays between attempts to connect when no server answers.
	reconnects = retry.Must("exponential(50ms..1s) jitter=full attempts=unlimited").Policy()
)

func runner(name, policy string) *retry.Runner {
	return retry.Must(policy, retry.WithName(name), retry.WithClassifier(outcome))
}

// atOnce is how many calls inParallel makes at the same time.
const atOnce = 8

// inParallel calls f for all numbers below count, atOnce of them at a time.
func inParallel(count int, f func(i int)) {
	var group sync.WaitGroup
	places := make(chan struct{}, atOnce)
	for i := range count {
		places <- struct{}{}
		group.Go(func() {
			defer func() { <-places }()
			f(i)
		})
	}
	group.Wait()
}
