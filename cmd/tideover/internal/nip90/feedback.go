package nip90

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/nostr"
	"github.com/tideover/tideover/nostr/dvm"
	"github.com/tideover/tideover/retry"
)

// feedback publishes the progress of jobs to relays.
type feedback struct {
	*Service
	client *nostr.Client
}

// follow publishes feedback about jobs as they progress, until the context ends. At the
// start it publishes all feedback about unfinished jobs again, because an earlier process
// may have ended before it published some. Relays ignore events that they already have.
func (f feedback) follow(ctx context.Context) {
	set, e := f.serving()
	if set == nil {
		return
	}
	events := e.Events(ctx, engine.NewEvents) // before publishAll, so that no event is missed in between
	f.publishAll(ctx)
	for ev, missed := range events {
		if missed > 0 {
			f.publishAll(ctx)
		}
		if !OfJobs(ev.Name) {
			continue
		}
		switch ev.Kind {
		case retry.AttemptStarted, retry.Waiting:
			if ev.Member == "" { // another process publishes feedback about its own runs
				f.publishRun(ctx, ev.Run)
			}
		case retry.Succeeded, retry.GaveUp, retry.Canceled:
			if ev.Step == "" {
				f.jobs.remove(ev.Run)
			}
		default:
		}
	}
}

// publishRun publishes the events about a run that were not published yet.
func (f feedback) publishRun(ctx context.Context, run string) {
	set, e := f.serving()
	if set == nil {
		return
	}
	i, err := e.Get(ctx, run)
	if err != nil {
		return
	}
	if i.Ended != nil {
		f.jobs.remove(run) // the answer contains all feedback
		return
	}
	j, err := readJob(i.Input)
	if err != nil || !asked(i, j) {
		return
	}
	key, err := f.keyOf(j)
	if err != nil {
		return // sign returns the same error, where it is visible
	}
	f.jobs.add(run, &active{request: j.ID, customer: j.Customer, created: j.Nostr.Created})
	list := dvm.Answers(j.request(), story(i, j))
	var unpublished []*nostr.Event
	for k := f.jobs.recordPublished(run, len(list)); k < len(list); k++ {
		if err := list[k].Sign(key); err != nil {
			f.log.Error("feedback can't be signed", "run", run, "error", err)
			return
		}
		unpublished = append(unpublished, &list[k])
	}
	if len(unpublished) > 0 {
		f.client.Publish(nostr.Progress, unpublished...)
	}
}

// asked reports whether a customer waits for the run. It is false for a run that was
// started or retried by hand, whose customer already has an answer.
func asked(i *engine.Info, j *job) bool {
	again := slices.ContainsFunc(i.Notes, func(n engine.Note) bool { return n.What == "retried" })
	return !again && i.Key != "" && i.Key == keyPrefix+j.ID
}

// removeEnded regularly removes jobs that have ended, until the context ends. It finds the jobs whose
// end [feedback.follow] has not seen, because no offer was served or the event was missed.
func (f feedback) removeEnded(ctx context.Context) {
	tick := time.NewTicker(removeEndedEvery)
	defer tick.Stop()
	for {
		_, e := f.serving()
		for _, run := range f.jobs.list() {
			if i, err := e.Get(ctx, run); err == nil && i.Ended != nil || errors.Is(err, engine.ErrNotFound) {
				f.jobs.remove(run)
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

const removeEndedEvery = 30 * time.Second

// publishAll publishes feedback about every unfinished job. The engine's list of runs may lag
// behind its log, so publishAll reads it again, up to 50 times, until it is up to date.
func (f feedback) publishAll(ctx context.Context) {
	set, e := f.serving()
	if set == nil {
		return
	}
	for range 50 {
		behind := 0
		for _, k := range set.kinds {
			n, err := f.publishList(ctx, e, engine.Filter{Workflow: k.Name(), States: unfinished, Limit: 1000})
			if err != nil {
				f.log.Warn("the unfinished jobs can't be listed", "kind", k.Kind, "error", err)
				return
			}
			behind = max(behind, n)
		}
		if behind == 0 {
			return
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return
		}
	}
}

// publishList publishes feedback about the runs that match the filter. behind is the number of
// runs that the list does not show yet.
func (f feedback) publishList(ctx context.Context, e *engine.Engine, filter engine.Filter) (behind int, err error) {
	for {
		page, err := e.List(ctx, filter)
		if err != nil {
			return 0, err
		}
		for n := range page.Runs {
			f.publishRun(ctx, page.Runs[n].ID)
		}
		behind = max(behind, page.Behind)
		if filter.After = page.Next; page.Next == "" {
			return behind, nil
		}
	}
}

// unfinished are the states of runs without an outcome.
var unfinished = []string{"scheduled", "queued", "running", "waiting", "needs-handler", "paused", "undoing"}
