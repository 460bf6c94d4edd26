package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/tideover/tideover/engine/jetstream"
	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/internal/lazyregexp"
)

const (
	// checkTime is the limit of one check.
	checkTime = 30 * time.Second

	// checkEvery is the time between two checks. A server that dies does not disturb
	// the work, so that no error shows it.
	checkEvery = 5 * time.Minute
)

// Examine returns what weakens the promise of the cluster. Servers that can't be
// reached, or refuse us, are a finding too.
func Examine(ctx context.Context, o Options) ([]journal.Finding, error) {
	c, err := o.log()
	if err != nil {
		return nil, fmt.Errorf("engine: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	list, err := jetstream.Check(ctx, c)
	if err != nil && !errors.Is(context.Cause(ctx), context.Canceled) {
		return []journal.Finding{{
			Severity: journal.Broken, What: o.Redact(err.Error()), Why: "nothing can be recorded",
			Do: "see that the servers run, that this machine reaches them, and that the credentials are right",
		}}, nil
	}
	return list, err
}

// Watch logs what makes the promise of the cluster weaker than it could be, a line
// each: at once, and later what is new or over, until the context ends.
func Watch(ctx context.Context, look func(context.Context) ([]journal.Finding, error), log *slog.Logger) {
	r := &reporter{look: look, log: log, said: map[string]string{}}
	ticker := time.NewTicker(checkEvery)
	defer ticker.Stop()
	for {
		r.report(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// reporter remembers what it has logged.
type reporter struct {
	look   func(context.Context) ([]journal.Finding, error)
	log    *slog.Logger
	said   map[string]string // what was found, by what stays the same of it
	failed bool
}

func (r *reporter) report(ctx context.Context) {
	looking, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	list, err := r.look(looking)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		if !r.failed {
			r.log.Warn("it can't be checked what the cluster promises", "error", err, "hint", "tideover doctor")
		}
		r.failed = true
		return
	}
	r.failed = false
	now := map[string]string{}
	for _, f := range list {
		if f.Severity == journal.Note {
			continue
		}
		key := numbers.ReplaceAllString(f.Severity+f.What, "#")
		now[key] = f.What
		if _, known := r.said[key]; !known {
			r.tell(f)
		}
	}
	for key, what := range r.said {
		if _, still := now[key]; !still {
			r.log.Info("over: something that weakened the promise of the cluster", "what", what)
		}
	}
	r.said = now
}

// numbers differ from time to time when all else is the same.
var numbers = lazyregexp.New(`[0-9]+`)

func (r *reporter) tell(f journal.Finding) {
	attrs := []any{"what", f.What, "why", f.Why, "do", f.Do}
	if f.Severity == journal.Broken {
		r.log.Error("the cluster does not keep its promise", attrs...)
		return
	}
	r.log.Warn("the cluster promises less than it could", attrs...)
}
