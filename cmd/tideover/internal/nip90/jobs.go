package nip90

import (
	"context"
	"encoding/json"
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

// jobs is what a provider starts and cancels.
type jobs struct{ *Service }

// Start records a job. It is the same job however often it is asked for.
func (j jobs) Start(ctx context.Context, r *dvm.Request) error {
	set, e := j.serving()
	if set == nil || set.kinds[r.Kind] == nil {
		return fmt.Errorf("kind %d is not served any more", r.Kind)
	}
	if !j.jobs.hasRoom(r.ID, set.Workers+set.Queue) {
		return dvm.ErrOverloaded
	}
	k := set.kinds[r.Kind]
	input, err := encode(newJob(r, set.key.PublicKey(), !k.Total))
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
	started, err := e.StartRegistered(ctx, k.flow, json.RawMessage(input), engine.Key(keyPrefix+r.ID), engine.Source("nostr "+shownKey(r.Customer)), engine.RunTimeout(limit))
	if err != nil {
		return err
	}
	if !started.Existing {
		j.jobs.add(started.ID, &active{request: r.ID, customer: r.Customer, created: r.Created})
	}
	return nil
}

// Cancel ends a job for its customer.
func (j jobs) Cancel(ctx context.Context, request, by string) error {
	run := j.jobs.run(request)
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
	j.jobs.mu.Lock()
	defer j.jobs.mu.Unlock()
	for _, a := range j.jobs.byRun {
		list = append(list, dvm.ActiveJob{ID: a.request, Customer: a.customer, Created: a.created})
	}
	return list
}

// shownKey returns the first 12 digits of a key, which are enough to compare keys.
func shownKey(key string) string { return key[:min(len(key), 12)] }
