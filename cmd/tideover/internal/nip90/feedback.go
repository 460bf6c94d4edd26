package nip90

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/nostr"
	"github.com/tideover/tideover/nostr/dvm"
	"github.com/tideover/tideover/retry"
)

// follow publishes feedback about jobs as they go on, until the context ends. What
// was not published because the process ended is published again: relays know an
// event that they have.
func (s *Service) follow(ctx context.Context, client *nostr.Client) {
	set, e := s.serving()
	if set == nil {
		return
	}
	events := e.Events(ctx, engine.Now) // before the look around, so that nothing is in between
	s.lookAround(ctx, client)
	for ev, missed := range events {
		if missed > 0 {
			s.lookAround(ctx, client)
		}
		if !OfJobs(ev.Name) {
			continue
		}
		switch ev.Kind {
		case retry.AttemptStarted, retry.Waiting:
			if ev.Member == "" { // what happens in another process it tells itself
				s.feedback(ctx, client, ev.Run)
			}
		case retry.Succeeded, retry.GaveUp, retry.Canceled:
			if ev.Step == "" {
				s.leave(ev.Run)
			}
		default:
		}
	}
}

// feedback publishes what there is to say about a run and has not been said.
func (s *Service) feedback(ctx context.Context, client *nostr.Client, run string) {
	set, e := s.serving()
	if set == nil {
		return
	}
	i, err := e.Get(ctx, run)
	if err != nil {
		return
	}
	if i.Ended != nil {
		s.leave(run) // the answer has it all
		return
	}
	j, err := readJob(i.Input)
	if err != nil || !asked(i, j) {
		return
	}
	key, err := s.keyOf(j)
	if err != nil {
		return // the answer says so
	}
	s.enter(run, &active{request: j.ID, customer: j.Customer, created: j.Nostr.Created})
	list := dvm.Answers(j.request(), story(i, j))
	var fresh []*nostr.Event
	for k := s.told(run, len(list)); k < len(list); k++ {
		if err := list[k].Sign(key); err != nil {
			s.log.Error("feedback can't be signed", "run", run, "error", err)
			return
		}
		fresh = append(fresh, &list[k])
	}
	if len(fresh) > 0 {
		client.Publish(nostr.Progress, fresh...)
	}
}

// asked reports whether a customer waits for the run. It is false for a run that was
// started or retried by hand: its customer has an answer.
func asked(i *engine.Info, j *job) bool {
	again := slices.ContainsFunc(i.Notes, func(n engine.Note) bool { return n.What == "retried" })
	return !again && i.Key != "" && i.Key == keyPrefix+j.ID
}

// recount finds jobs whose end was not seen, until the context ends: while nothing was
// offered, or when events were missed.
func (s *Service) recount(ctx context.Context) {
	tick := time.NewTicker(recountEvery)
	defer tick.Stop()
	for {
		_, e := s.serving()
		for _, run := range s.known() {
			if i, err := e.Get(ctx, run); err == nil && i.Ended != nil || errors.Is(err, engine.ErrNotFound) {
				s.leave(run)
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

const recountEvery = 30 * time.Second

// known returns the runs that are taken to go on.
func (s *Service) known() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.jobs))
}

// told returns how many events of a run were published, and takes note that now so
// many are.
func (s *Service) told(run string, now int) (before int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.jobs[run]
	if a == nil {
		return now // it has ended since
	}
	before, a.told = a.told, max(a.told, now)
	return before
}

// lookAround finds the jobs that go on. The list that it reads may be a moment
// behind.
func (s *Service) lookAround(ctx context.Context, client *nostr.Client) {
	set, e := s.serving()
	if set == nil {
		return
	}
	for range 50 {
		behind := 0
		for _, k := range set.kinds {
			n, err := s.lookAt(ctx, client, e, engine.Filter{Workflow: k.Name(), States: unfinished, Limit: 1000})
			if err != nil {
				s.log.Warn("the jobs that go on are not known", "kind", k.Kind, "error", err)
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

// lookAt gives feedback about the runs of a list, and returns how far it is behind.
func (s *Service) lookAt(ctx context.Context, client *nostr.Client, e *engine.Engine, f engine.Filter) (behind int, err error) {
	for {
		page, err := e.List(ctx, f)
		if err != nil {
			return 0, err
		}
		for n := range page.Runs {
			s.feedback(ctx, client, page.Runs[n].ID)
		}
		behind = max(behind, page.Behind)
		if f.After = page.Next; page.Next == "" {
			return behind, nil
		}
	}
}

// unfinished are the states of runs without an outcome.
var unfinished = []string{"scheduled", "queued", "running", "waiting", "needs-handler", "paused"}
