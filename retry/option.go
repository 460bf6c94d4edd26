package retry

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/tideover/tideover/breaker"
	"github.com/tideover/tideover/internal/option"
	"github.com/tideover/tideover/limit"
)

// Option sets a part of a runner that can't be written in a policy text, such as a
// breaker, a logger or a hook.
type Option func(*settings) error

// WithName names the runner in errors, events and logs.
func WithName(name string) Option {
	return option.Given(true, "WithName", func(s *settings) { s.name = name })
}

// WithBreaker puts every attempt behind the breaker. A failed attempt counts
// as a failure. A permanent failure counts as a success, because the service has
// answered. A cancellation by the caller does not count. The runner gives up at
// once if the breaker would still be open at the end of the wait.
func WithBreaker(b *breaker.Breaker) Option {
	return option.Given(b != nil, "WithBreaker", func(s *settings) { s.breaker = b })
}

// WithBudget sets a budget that several runners share. Without this option, each
// runner whose policy has a budget gets a budget of its own.
func WithBudget(b *limit.Budget) Option {
	return option.Given(b != nil, "WithBudget", func(s *settings) { s.budget = b })
}

// WithConcurrency makes every attempt wait for a free place in the limit, in the
// order of the priority that the context carries. An attempt that the limit rejects
// ends the call.
func WithConcurrency(c *limit.Concurrency) Option {
	return option.Given(c != nil, "WithConcurrency", func(s *settings) { s.concurrency = c })
}

// WithAdaptive is [WithConcurrency] with a limit that adapts to the load that the
// other side can take.
func WithAdaptive(a *limit.Adaptive) Option {
	return option.Given(a != nil, "WithAdaptive", func(s *settings) { s.adaptive = a })
}

// WithRate makes every attempt wait for the rate limit. If an attempt would have to
// wait past the context's deadline, the call ends.
func WithRate(r *limit.Rate) Option {
	return option.Given(r != nil, "WithRate", func(s *settings) { s.rate = r })
}

// WithClassifier sets the function that classifies failures, instead of [OutcomeOf].
// The runner does not call it once the caller has canceled the call.
func WithClassifier(classify func(error) Outcome) Option {
	return option.Given(classify != nil, "WithClassifier", func(s *settings) { s.classify = classify })
}

// WithSchedule sets a function that computes the delays, instead of the policy's
// schedule. The policy's cap applies to them. If the function returns 0, the policy
// computes the delay. The function is not called if the server states a delay.
func WithSchedule(delay func(State, Outcome) time.Duration) Option {
	return option.Given(delay != nil, "WithSchedule", func(s *settings) { s.schedule = delay })
}

// WithOnRetry sets a hook that the runner calls before each wait, with an event of
// kind [Waiting]. If the hook fails or panics, the observers get an event of kind
// [HookFailed]; the call goes on. A runner can have several hooks.
func WithOnRetry(hook func(context.Context, Event) error) Option {
	return option.Given(hook != nil, "WithOnRetry", func(s *settings) { s.onRetry = append(s.onRetry, hook) })
}

// WithObserver passes all events of all calls to the function. The events of one
// call come in order, on the goroutine of that call. A runner can have several
// observers.
func WithObserver(observe func(Event)) Option {
	return option.Given(observe != nil, "WithObserver", func(s *settings) {
		s.observers, s.chatty = append(s.observers, observe), true
	})
}

// WithTroubleObserver is [WithObserver] without the events of calls that succeed at
// the first attempt. Such a call costs next to nothing.
func WithTroubleObserver(observe func(Event)) Option {
	return option.Given(observe != nil, "WithTroubleObserver", func(s *settings) {
		s.observers = append(s.observers, func(e Event) {
			if !smooth(e.Kind, e.Attempt) {
				observe(e)
			}
		})
	})
}

// WithCallID sets the function that returns the Call of a call's events from the context of
// the call, for a caller that has ids of its own. The runner counts a call for which it
// returns 0, as it does without this option. It is called once for each call, and not at all
// by a runner without observers.
func WithCallID(id func(context.Context) uint64) Option {
	return option.Given(id != nil, "WithCallID", func(s *settings) { s.identify = id })
}

// WithLogger logs one line for each retry, with the attempt, the delay, the source
// of the delay and the error, and one line when the runner gives up.
//
// While a breaker is open, it logs only the first call that is rejected without an
// attempt at the level ERROR, and another one every minute; the others have the level
// DEBUG.
func WithLogger(l *slog.Logger) Option {
	return option.Given(l != nil, "WithLogger", func(s *settings) { s.observers = append(s.observers, logTo(l)) })
}

// WithRand sets the source of random numbers for all delays. The function must be
// safe for concurrent use.
func WithRand(random func() uint64) Option {
	return option.Given(random != nil, "WithRand", func(s *settings) { s.random = random })
}

// WithSeed makes the random part of all delays reproducible.
func WithSeed(seed uint64) Option {
	var mu sync.Mutex
	pcg := rand.NewPCG(seed, 0)
	return WithRand(func() uint64 {
		mu.Lock()
		defer mu.Unlock()
		return pcg.Uint64()
	})
}

// WithGrace sets how long a [Hedger] waits for a losing attempt to return after it
// was canceled. After that time the hedger no longer waits for it. 0 means 5 seconds.
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
	err := option.Apply(&s, opts)
	return s, err
}

// logTo returns an observer that logs retries, failed hooks, stuck attempts and the
// end of a call that gave up. It logs no successes.
func logTo(l *slog.Logger) func(Event) {
	var rejected rejections
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
			if rejected.repeats(e) {
				level = slog.LevelDebug
			}
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

// rejections remembers that the breaker of a runner has rejected calls. It is safe for concurrent
// use.
type rejections struct {
	mu    sync.Mutex
	until time.Time // rejections before it are repetitions
}

// rejectionsFor is the longest time for which rejections by a breaker are repetitions of the
// first one. While the breaker waits for its probes, they are repetitions for this much longer.
const rejectionsFor = time.Minute

// repeats reports whether the event is about a call that was rejected without an attempt by a
// breaker that has rejected another call since it opened.
func (r *rejections) repeats(e Event) bool {
	open, ok := errors.AsType[*breaker.OpenError](e.Err)
	if !ok || e.Reason != StopBreaker || e.Attempt > 0 {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	until := r.until
	if open.State == breaker.HalfOpen { // the probes belong to the same opening, but not to a later one
		until = until.Add(rejectionsFor)
	}
	if e.Time.Before(until) {
		return true
	}
	r.until = e.Time.Add(min(open.For, rejectionsFor))
	return false
}
