package nip90

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/steps"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/nostr/dvm"
)

// startTime is how long the engine may take to accept a job: in a cluster its shard
// may be without an owner for a while. The request comes again if it can't.
const startTime = 30 * time.Second

// active is a job that has no outcome yet.
type active struct {
	request  string
	customer string
	created  time.Time // the request
	told     int       // events that were published
}

// jobs is what a provider starts and cancels.
type jobs struct{ *Service }

// Start records a job. It is the same job however often it is asked for.
func (j jobs) Start(ctx context.Context, r *dvm.Request) error {
	set, e := j.serving()
	if set == nil || set.kinds[r.Kind] == nil {
		return fmt.Errorf("kind %d is not served any more", r.Kind)
	}
	if !j.room(r.ID, set.Workers+set.Queue) {
		return dvm.ErrOverloaded
	}
	k := set.kinds[r.Kind]
	input, err := newJob(r, set.key.PublicKey(), !k.Total).encode()
	if err != nil {
		return err
	}
	if len(input) > steps.MaxPayload {
		return &dvm.InvalidError{Tag: "content", Value: fmt.Sprint(len(input)), Want: "want a smaller request"}
	}
	limit := k.MaxTotal
	if k.Total {
		limit = r.Timeout
	}
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	started, err := e.StartRegistered(ctx, k.flow, input, engine.Key(keyPrefix+r.ID), engine.Source("nostr "+shownKey(r.Customer)), engine.RunTimeout(limit))
	if err != nil {
		return err
	}
	if !started.Existing {
		j.enter(started.ID, &active{request: r.ID, customer: r.Customer, created: r.Created})
	}
	return nil
}

// Cancel ends a job for its customer.
func (j jobs) Cancel(ctx context.Context, request, by string) error {
	run := j.runOf(request)
	if run == "" {
		return nil // it is over
	}
	_, e := j.serving()
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	err := e.Cancel(ctx, run, by)
	if errors.Is(err, engine.ErrState) { // it has ended since
		return nil
	}
	return err
}

// Active returns the jobs that can be canceled.
func (j jobs) Active() (list []dvm.ActiveJob) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, a := range j.jobs {
		list = append(list, dvm.ActiveJob{ID: a.request, Customer: a.customer, Created: a.created})
	}
	return list
}

// room reports whether there is a place for a job, or it has one.
func (j jobs) room(request string, most int) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.jobs) < most || j.runs[request] != ""
}

// enter keeps a job in mind while it goes on.
func (s *Service) enter(run string, a *active) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.jobs[run] == nil && !s.over.has(run) {
		s.jobs[run], s.runs[a.request] = a, run
	}
}

// leave forgets a job that has ended.
func (s *Service) leave(run string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over.add(run)
	if a := s.jobs[run]; a != nil {
		delete(s.runs, a.request)
		delete(s.jobs, run)
	}
}

func (s *Service) runOf(request string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.runs[request]
}

// shownKey returns the first 12 digits of a key, which are enough to compare keys.
func shownKey(key string) string { return key[:min(len(key), 12)] }
