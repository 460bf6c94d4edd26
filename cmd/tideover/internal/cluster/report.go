package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/tideover/tideover/engine/jetstream"
	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/internal/lazyregexp"
)

const (
	// checkTime is the time limit of one check.
	checkTime = 30 * time.Second

	// checkEvery is the time between two checks. Regular checks are needed because the
	// loss of one server causes no errors.
	checkEvery = 5 * time.Minute
)

// Examine checks the cluster and returns findings about its problems. If the servers are
// unreachable or reject the connection, that is a finding, too, and not an error.
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
			Severity: journal.Broken, What: o.Redact(err.Error()), Why: "runs can't be stored",
			Do: "check that the servers run, that this machine can reach them, and that the credentials are correct",
		}}, nil
	}
	return list, err
}

// Watcher checks a cluster regularly, and keeps the findings of the last check.
type Watcher struct {
	reporter

	mu   sync.Mutex
	last []journal.Finding
}

// NewWatcher returns a watcher that calls check.
func NewWatcher(check func(context.Context) ([]journal.Finding, error), log *slog.Logger) *Watcher {
	return &Watcher{
		reporter: reporter{check: check, log: log, logged: map[string]string{}},
		last: []journal.Finding{{
			Severity: journal.Note, What: "the NATS servers of the cluster were not checked yet", Why: "the server has just started",
			Do: "try again in a minute",
		}},
	}
}

// Findings returns the findings of the last check, which is at most a few minutes old.
func (w *Watcher) Findings() []journal.Finding {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.last)
}

// Run checks the cluster until the context ends. It logs all findings of the first check, and then
// each finding that is new or no longer present.
func (w *Watcher) Run(ctx context.Context) {
	ticker := time.NewTicker(checkEvery)
	defer ticker.Stop()
	for {
		list, err := w.report(ctx)
		if err != nil {
			list = []journal.Finding{{
				Severity: journal.Weak, What: "the cluster can't be checked: " + err.Error(), Why: "problems of the NATS servers are not seen",
				Do: "check that the servers run, that this machine can reach them, and that the credentials are correct",
			}}
		}
		w.mu.Lock()
		w.last = list
		w.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// reporter logs each finding when it is new and when it is gone.
type reporter struct {
	check  func(context.Context) ([]journal.Finding, error)
	log    *slog.Logger
	logged map[string]string // text of the findings of the last check, by the text without numbers
	failed bool              // the last check returned an error, which was logged
}

// report checks the cluster, and logs what has changed.
func (r *reporter) report(ctx context.Context) ([]journal.Finding, error) {
	checkCtx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	list, err := r.check(checkCtx)
	if ctx.Err() != nil {
		return nil, nil // the server stops
	}
	if err != nil {
		if !r.failed {
			r.log.Warn("the cluster can't be checked", "error", err, "hint", "tideover doctor")
		}
		r.failed = true
		return nil, err
	}
	r.failed = false
	now := map[string]string{}
	for _, f := range list {
		if f.Severity == journal.Note {
			continue
		}
		key := numbers.ReplaceAllString(f.Severity+f.What, "#")
		now[key] = f.What
		if _, known := r.logged[key]; !known {
			r.logFinding(f)
		}
	}
	for key, what := range r.logged {
		if _, still := now[key]; !still {
			r.log.Info("problem of the cluster is over", "what", what)
		}
	}
	r.logged = now
	return list, nil
}

// numbers matches the digits of a finding, which change while the problem stays the same.
var numbers = lazyregexp.New(`[0-9]+`)

func (r *reporter) logFinding(f journal.Finding) {
	attrs := []any{"what", f.What, "why", f.Why, "do", f.Do}
	if f.Severity == journal.Broken {
		r.log.Error("the cluster is broken", attrs...)
		return
	}
	r.log.Warn("the cluster is weakened", attrs...)
}
