package contend

import (
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"

	"github.com/tideover/tideover/retry"
)

// Option adds to a writer what can't be written in a file.
type Option func(*settings) error

// settings is what options set.
type settings struct {
	conflicts []func(error) bool
	random    func() uint64
	runner    []retry.Option
}

// given returns an option that refuses a value which is missing.
func given(present bool, name string, set func(*settings)) Option {
	return func(s *settings) error {
		if !present {
			return errors.New(name + ": nil")
		}
		set(s)
		return nil
	}
}

func passed(o retry.Option) Option {
	return given(true, "", func(s *settings) { s.runner = append(s.runner, o) })
}

// WithConflicts recognises the errors by which a store says that another's
// value won, so that they need no [Lost]. It may be given several times.
func WithConflicts(lost func(error) bool) Option {
	return given(lost != nil, "WithConflicts", func(s *settings) { s.conflicts = append(s.conflicts, lost) })
}

// WithName names the writer in errors, events and logs.
func WithName(name string) Option { return passed(retry.WithName(name)) }

// WithObserver shows the events of all proposals to the function, on the
// goroutine of the proposal. It may be given several times.
func WithObserver(observe func(retry.Event)) Option { return passed(retry.WithObserver(observe)) }

// WithLogger logs one line for each retry, and one when the writer gives up.
func WithLogger(l *slog.Logger) Option { return passed(retry.WithLogger(l)) }

// WithRand draws the randomness of all waits from the function, which must be
// safe for use by several goroutines.
func WithRand(random func() uint64) Option {
	return given(random != nil, "WithRand", func(s *settings) { s.random = random })
}

// WithSeed makes the randomness of all waits reproducible.
func WithSeed(seed uint64) Option {
	var mu sync.Mutex
	pcg := rand.NewPCG(seed, 0)
	return WithRand(func() uint64 {
		mu.Lock()
		defer mu.Unlock()
		return pcg.Uint64()
	})
}

func apply(opts []Option) (settings, error) {
	s := settings{random: rand.Uint64}
	var errs []error
	for _, o := range opts {
		if o == nil {
			errs = append(errs, errors.New("option: nil"))
			continue
		}
		errs = append(errs, o(&s))
	}
	return s, errors.Join(errs...)
}
