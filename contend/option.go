package contend

import (
	"log/slog"
	"math/rand/v2"
	"sync"

	"github.com/tideover/tideover/internal/option"
	"github.com/tideover/tideover/retry"
)

// Option sets a property of a writer that is not plain data.
type Option func(*settings) error

// settings are the values that options set.
type settings struct {
	conflicts []func(error) bool
	random    func() uint64
	runner    []retry.Option
}

// runnerOption passes an option on to the retry runner.
func runnerOption(o retry.Option) Option {
	return option.Given(true, "", func(s *settings) { s.runner = append(s.runner, o) })
}

// WithConflicts sets a function that recognises the errors with which a store
// reports a conflict, so that they need no [Lost]. It may be given several
// times.
func WithConflicts(lost func(error) bool) Option {
	return option.Given(lost != nil, "WithConflicts", func(s *settings) { s.conflicts = append(s.conflicts, lost) })
}

// WithName sets the name of the writer in errors, events and logs.
func WithName(name string) Option { return runnerOption(retry.WithName(name)) }

// WithObserver calls the function with the events of all proposals, on the
// goroutine of the proposal. It may be given several times.
func WithObserver(observe func(retry.Event)) Option { return runnerOption(retry.WithObserver(observe)) }

// WithLogger logs one line for each retry, and one when the writer gives up.
func WithLogger(l *slog.Logger) Option { return runnerOption(retry.WithLogger(l)) }

// WithRand sets the source of the random numbers for all waits. It must be safe
// for concurrent use.
func WithRand(random func() uint64) Option {
	return option.Given(random != nil, "WithRand", func(s *settings) { s.random = random })
}

// WithSeed makes the random numbers of all waits reproducible.
func WithSeed(seed uint64) Option {
	var mu sync.Mutex
	pcg := rand.NewPCG(seed, 0)
	return WithRand(func() uint64 {
		mu.Lock()
		defer mu.Unlock()
		return pcg.Uint64()
	})
}

// applyOptions returns the settings, and the problems of all options.
func applyOptions(opts []Option) (settings, error) {
	s := settings{random: rand.Uint64}
	err := option.Apply(&s, opts)
	return s, err
}
