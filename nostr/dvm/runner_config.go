package dvm

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/tideover/tideover/internal/validate"
	"github.com/tideover/tideover/nostr"
	"github.com/tideover/tideover/retry"
)

// Handler makes one attempt of a job. Its context ends when the attempt times
// out or the job is cancelled; a later result is dropped. It may report
// progress. A failure is retried unless it is marked with [retry.Permanent]; a
// panic counts as a failure.
type Handler func(ctx context.Context, r *Request, report func(Progress)) (Result, error)

// Result is the result of a job.
type Result struct {
	Content string
	Partial bool // the result is not complete
}

// Scope says what the timeout of a request covers.
type Scope uint8

// The scopes.
const (
	PerAttempt Scope = iota // each attempt
	Total                   // all attempts, and the waits between them
)

// RunnerConfig configures a [Runner]. Link, Key and Handler are required.
type RunnerConfig struct {
	Link    Publisher
	Key     nostr.SecretKey
	Handler Handler

	Policy   retry.Policy  // zero means the preset task: four attempts, waits of 1, 2 and 4 seconds
	Scope    Scope         // what a request's timeout covers
	MaxTotal time.Duration // limit of a job with all its attempts and waits; 0 means an hour
	Grace    time.Duration // how long an attempt may take to stop; 0 means 10 seconds
	Workers  int           // jobs that run at once; 0 means 4
	Queue    int           // jobs that may wait for a worker; 0 means 64

	// ShouldRetry decides whether a failure that is not permanent is retried;
	// nil retries all. OnRetry is called before each wait. Their errors and
	// panics never replace the failure.
	ShouldRetry func(r *Request, err error) bool
	OnRetry     func(ctx context.Context, r *Request, e retry.Event) error

	Options []retry.Option // further options for the retry runner of each job: a breaker, a limit, an observer
	Logger  *slog.Logger   // nil logs nothing
}

// maxAttempts is the largest number of attempts: every retry may be published.
const maxAttempts = 100

func (c RunnerConfig) withDefaults() RunnerConfig {
	if c.Policy == (retry.Policy{}) {
		c.Policy, _ = retry.Preset("task")
	}
	c.MaxTotal = cmp.Or(c.MaxTotal, time.Hour)
	c.Grace = cmp.Or(c.Grace, 10*time.Second)
	c.Workers = cmp.Or(c.Workers, 4)
	c.Queue = cmp.Or(c.Queue, 64)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}

func (c *RunnerConfig) validate() error {
	errs := validate.Problems{
		c.Policy.Validate(), c.Policy.Refuse("a job of a dvm.Runner", "attempt-timeout", "total-timeout", "reset-after", "hedge"),
	}
	n := c.Policy.Attempts
	errs.Check(n <= maxAttempts && n != retry.Unlimited,
		"attempts: want at most %d, because each is published to relays", maxAttempts)
	errs.Check(c.Link != nil, "link: nil")
	errs.Check(c.Handler != nil, "handler: nil")
	errs.Check(!c.Key.IsZero(), "key: is missing: set a secret key")
	errs.Check(c.Scope <= Total, "scope: %d is unknown: use PerAttempt or Total", c.Scope)
	errs.Check(c.MaxTotal >= 0 && c.Grace >= 0 && c.Workers >= 0 && c.Queue >= 0,
		"max-total, grace, workers, queue: one is negative")
	return errors.Join(errs...)
}
