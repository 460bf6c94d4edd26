package dvm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/tideover/tideover/nostr"
	"github.com/tideover/tideover/retry"
)

// Handler does one attempt of a job. Its context ends when the attempt's time is
// over, or the job is cancelled; a result that comes later is dropped. It may say how
// far it is. A failure is tried again unless it is marked with [retry.Permanent]; a
// panic is a failure like others.
type Handler func(ctx context.Context, r *Request, report func(Progress)) (Result, error)

// Result is what a job has come to.
type Result struct {
	Content string
	Partial bool // it is not all that was asked for
}

// Scope says what the timeout of a request covers.
type Scope uint8

// The scopes.
const (
	PerAttempt Scope = iota // each attempt
	Total                   // all attempts, and the waits between them
)

// RunnerConfig says how a [Runner] works. Link, Key and Handler must be there.
type RunnerConfig struct {
	Link    Publisher
	Key     nostr.SecretKey
	Handler Handler

	Policy   retry.Policy  // zero means the preset task: four attempts, waits of 1, 2 and 4 seconds
	Scope    Scope         // of a request's timeout
	MaxTotal time.Duration // of a job with all its attempts and waits; 0 means an hour
	Grace    time.Duration // that an attempt has to end when it is told to; 0 means 10 seconds
	Workers  int           // jobs that run at once; 0 means 4
	Queue    int           // jobs that wait for a worker; 0 means 64

	// ShouldRetry says whether a failure that is not permanent is worth a retry; nil:
	// all are. OnRetry is called before each wait. What they return or panic with
	// never takes the place of the failure.
	ShouldRetry func(r *Request, err error) bool
	OnRetry     func(ctx context.Context, r *Request, e retry.Event) error

	Options []retry.Option // more for the runner of each job: a breaker, a limit, an observer
	Logger  *slog.Logger   // nil: nothing is logged
}

// maxAttempts is what a policy may have: the public is told of every retry.
const maxAttempts = 100

func (c RunnerConfig) withDefaults() RunnerConfig {
	if c.Policy == (retry.Policy{}) {
		c.Policy, _ = retry.Preset("task")
	}
	c.MaxTotal = cmp.Or(c.MaxTotal, time.Hour)
	c.Grace = cmp.Or(c.Grace, 10*time.Second)
	c.Workers = cmp.Or(c.Workers, 4)
	c.Queue = cmp.Or(c.Queue, 64)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c *RunnerConfig) validate() error {
	errs := []error{
		c.Policy.Validate(), c.Policy.Refuse("a job of a dvm.Runner", "attempt-timeout", "total-timeout", "reset-after", "hedge"),
	}
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if n := c.Policy.Attempts; n > maxAttempts || n == retry.Unlimited {
		bad("attempts: want at most %d, because relays are told of each", maxAttempts)
	}
	if c.Link == nil {
		bad("link: nil")
	}
	if c.Handler == nil {
		bad("handler: nil")
	}
	if c.Key.IsZero() {
		bad("key: there is none")
	}
	if c.Scope > Total {
		bad("scope: %d is not one", c.Scope)
	}
	if c.MaxTotal < 0 || c.Grace < 0 || c.Workers < 0 || c.Queue < 0 {
		bad("max-total, grace, workers, queue: one is negative")
	}
	return errors.Join(errs...)
}
