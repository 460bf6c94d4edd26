package retry

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/tideover/tideover/breaker"
	"github.com/tideover/tideover/limit"
)

// Option adds to a runner what can't be written in a file.
type Option func(*settings) error

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

// WithName names the runner in errors, events and logs.
func WithName(name string) Option {
	return given(true, "WithName", func(s *settings) { s.name = name })
}

// WithBreaker puts every attempt behind the breaker. A failed attempt counts
// against it; a permanent failure is an answer and counts for it; a
// cancellation by the caller counts as nothing. The runner stops at once when
// the breaker would still be open at the end of the wait.
func WithBreaker(b *breaker.Breaker) Option {
	return given(b != nil, "WithBreaker", func(s *settings) { s.breaker = b })
}

// WithBudget shares a budget among runners. Without it, a policy with a budget
// has one for each runner.
func WithBudget(b *limit.Budget) Option {
	return given(b != nil, "WithBudget", func(s *settings) { s.budget = b })
}

// WithConcurrency lets every attempt wait for its turn, by the priority that
// the context carries. An attempt that is refused ends the call.
func WithConcurrency(c *limit.Concurrency) Option {
	return given(c != nil, "WithConcurrency", func(s *settings) { s.concurrency = c })
}

// WithAdaptive is [WithConcurrency] with a limit that follows what the other
// side can take.
func WithAdaptive(a *limit.Adaptive) Option {
	return given(a != nil, "WithAdaptive", func(s *settings) { s.adaptive = a })
}

// WithRate lets every attempt wait for the rate. An attempt that would wait
// past its deadline ends the call.
func WithRate(r *limit.Rate) Option {
	return given(r != nil, "WithRate", func(s *settings) { s.rate = r })
}

// WithClassifier decides what a failure means, instead of [OutcomeOf]. It is
// not asked about a call that the caller has canceled.
func WithClassifier(classify func(error) Outcome) Option {
	return given(classify != nil, "WithClassifier", func(s *settings) { s.classify = classify })
}

// WithSchedule computes the delays instead of the policy's schedule. They stay
// within the policy's cap. A delay of 0 leaves it to the policy, and so does a
// delay stated by the server.
func WithSchedule(delay func(State, Outcome) time.Duration) Option {
	return given(delay != nil, "WithSchedule", func(s *settings) { s.schedule = delay })
}

// WithOnRetry calls the hook before each wait, with an event of kind
// [Waiting]. An error or a panic of the hook goes to the observers as
// [HookFailed], and never replaces the failure. It may be given several times.
func WithOnRetry(hook func(context.Context, Event) error) Option {
	return given(hook != nil, "WithOnRetry", func(s *settings) { s.onRetry = append(s.onRetry, hook) })
}

// WithObserver shows the events of all calls to the function, in the order of
// each call, on the goroutine of the call. It may be given several times.
func WithObserver(observe func(Event)) Option {
	return given(observe != nil, "WithObserver", func(s *settings) {
		s.observers, s.chatty = append(s.observers, observe), true
	})
}

// WithTroubleObserver is [WithObserver] for what does not go right at once: of a
// call that succeeds at its first attempt it shows nothing, and costs next to
// nothing.
func WithTroubleObserver(observe func(Event)) Option {
	return given(observe != nil, "WithTroubleObserver", func(s *settings) {
		s.observers = append(s.observers, func(e Event) {
			if !smooth(e.Kind, e.Attempt) {
				observe(e)
			}
		})
	})
}

// WithLogger logs one line for each retry, with the attempt, the delay, who set
// it and the error, and one when the runner gives up.
func WithLogger(l *slog.Logger) Option {
	return given(l != nil, "WithLogger", func(s *settings) { s.observers = append(s.observers, logTo(l)) })
}

// WithRand draws the randomness of all delays from the function, which must be
// safe for use by several goroutines.
func WithRand(random func() uint64) Option {
	return given(random != nil, "WithRand", func(s *settings) { s.random = random })
}

// WithSeed makes the randomness of all delays reproducible.
func WithSeed(seed uint64) Option {
	var mu sync.Mutex
	pcg := rand.NewPCG(seed, 0)
	return WithRand(func() uint64 {
		mu.Lock()
		defer mu.Unlock()
		return pcg.Uint64()
	})
}

// WithGrace sets how long a [Hedger] waits for an attempt that lost and was
// canceled, before it goes on without it. 0 means 5 seconds.
func WithGrace(d time.Duration) Option {
	return func(s *settings) error {
		if d < 0 {
			return errors.New("WithGrace: negative")
		}
		s.grace = d
		return nil
	}
}

func apply(opts []Option) (settings, error) {
	var s settings
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

// logTo returns an observer that logs what a person on call wants to know:
// retries and the end of hope, but no successes.
func logTo(l *slog.Logger) func(Event) {
	return func(e Event) {
		attrs := make([]slog.Attr, 0, 9)
		if e.Name != "" {
			attrs = append(attrs, slog.String("name", e.Name))
		}
		attrs = append(attrs, slog.Int("attempt", e.Attempt), slog.String("attempts", formatAttempts(e.Attempts)))
		level, msg := slog.LevelWarn, e.Kind.String()
		switch e.Kind {
		case Waiting:
			msg = "retrying"
			attrs = append(attrs, slog.Duration("delay", e.Delay), slog.String("delay_by", e.By.String()))
		case GaveUp:
			level, msg = slog.LevelError, "gave up"
			attrs = append(attrs, slog.String("reason", e.Reason.String()), slog.Duration("elapsed", e.Elapsed))
		case HookFailed, AttemptStuck:
		default:
			return
		}
		if e.Note != "" {
			attrs = append(attrs, slog.String("note", e.Note))
		}
		if e.Err != nil {
			attrs = append(attrs, slog.Any("error", e.Err))
		}
		l.LogAttrs(context.Background(), level, msg, attrs...)
	}
}
