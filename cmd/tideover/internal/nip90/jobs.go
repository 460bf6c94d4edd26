package nip90

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/steps"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/nostr"
	"github.com/tideover/tideover/nostr/dvm"
	"github.com/tideover/tideover/retry"
)

// startTime is how long the engine may take to accept a job: in a cluster, the shard of
// the job may have no owner for a while. After an error the request is tried again.
const startTime = 30 * time.Second

// jobs starts and cancels the runs of jobs for a [dvm.Provider].
type jobs struct{ *Service }

// Start starts the run of a job. A second call for the same request does not start
// another run.
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

// Cancel cancels the run of a request. A job that has ended is not an error. by is who
// cancels it.
func (j jobs) Cancel(ctx context.Context, request, by string) error {
	run := j.jobs.run(request)
	if run == "" {
		return nil // the job has ended
	}
	_, e := j.serving()
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	err := e.Cancel(ctx, run, by)
	if errors.Is(err, engine.ErrState) { // the job has ended in the meantime
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

// job is the input of a run: the fields of a request that templates can use, and the data
// for its answers. It is a stored format, so fields may be added but not changed.
type job struct {
	ID       string              `json:"id"`
	Kind     int                 `json:"kind"`
	Customer string              `json:"customer"`
	Task     string              `json:"task"`
	Inputs   []dvm.Input         `json:"inputs"`
	Params   map[string][]string `json:"params"`
	Output   string              `json:"output"`
	Timeout  int64               `json:"timeout"` // seconds
	Nostr    origin              `json:"nostr"`
}

// origin has the fields of a job that only its answers need. Templates can't use them.
type origin struct {
	Provider string        `json:"provider"` // public key that the request was addressed to: ours at that time
	Created  time.Time     `json:"created"`
	Relay    string        `json:"relay,omitempty"`
	Clamped  bool          `json:"clamped,omitempty"`
	Bid      *int64        `json:"bid_msat,omitempty"`
	Price    int64         `json:"price_msat,omitempty"`
	Event    *nostr.Event  `json:"event,omitempty"`      // the request; nil if it is larger than keepEvent
	Attempt  time.Duration `json:"attempt_ns,omitempty"` // time limit of an attempt; 0 means that the timeout limits the whole run
}

// keepEvent is the largest request, in bytes, that is quoted in its result.
const keepEvent = 16 << 10

func newJob(r *dvm.Request, provider string, perAttempt bool) *job {
	j := &job{
		ID: r.ID, Kind: r.Kind, Customer: r.Customer, Task: r.Task, Inputs: r.Inputs, Params: map[string][]string{},
		Output: r.Output, Timeout: int64(r.Timeout / time.Second),
		Nostr: origin{Provider: provider, Created: r.Created, Relay: r.Relay, Clamped: r.Clamped, Bid: r.Bid, Price: r.Price},
	}
	if r.Event != nil && len(r.Event.AppendJSON(nil)) <= keepEvent {
		j.Nostr.Event = r.Event
	}
	if j.Inputs == nil {
		j.Inputs = []dvm.Input{} // so that templates can range over it
	}
	for _, p := range r.Params {
		j.Params[p.Name] = append(j.Params[p.Name], p.Values...)
	}
	if perAttempt {
		j.Nostr.Attempt = r.Timeout
	}
	return j
}

// readJob decodes the input of a run.
func readJob(input json.RawMessage) (*job, error) {
	j := new(job)
	if err := json.Unmarshal(input, j); err != nil {
		return nil, fmt.Errorf("input of the run: %w", err)
	}
	return j, nil
}

// request returns the request with the fields that answers need.
func (j *job) request() *dvm.Request {
	return &dvm.Request{
		ID: j.ID, Customer: j.Customer, Kind: j.Kind, Created: j.Nostr.Created, Relay: j.Nostr.Relay, Task: j.Task,
		Inputs: j.Inputs, Output: j.Output, Timeout: time.Duration(j.Timeout) * time.Second, Clamped: j.Nostr.Clamped, Event: j.Nostr.Event,
		Bid: j.Nostr.Bid, Price: j.Nostr.Price,
	}
}

// timeout is the error of an attempt that took longer than the customer allows.
type timeout struct{ limit time.Duration }

const timeoutWords = "Operation timed out after "

func (t timeout) Error() string { return fmt.Sprintf("%s%dms", timeoutWords, t.limit.Milliseconds()) }

// errNotAsked is the error of a run that was not started by a request of a customer.
var errNotAsked = errors.New("the input is not a request: only requests over Nostr start such runs, for example tideover nip90 request")

// work returns a handler that calls attempt for each attempt of a job, and limits it to the
// time that the customer allows. It drops the result of an attempt that succeeds later.
func (s *Service) work(attempt engine.Handler) engine.Handler {
	return func(ctx context.Context, t *engine.Task) ([]byte, error) {
		j, err := readJob(t.Input)
		if err != nil {
			return nil, retry.Permanent(err)
		}
		if j.ID == "" {
			return nil, retry.Permanent(errNotAsked)
		}
		if j.Nostr.Attempt <= 0 {
			return attempt(ctx, t)
		}
		over := timeout{j.Nostr.Attempt}
		ctx, cancel := context.WithTimeoutCause(ctx, over.limit, over)
		defer cancel()
		out, err := attempt(ctx, t)
		if !errors.Is(context.Cause(ctx), over) {
			return out, err
		}
		if err == nil {
			s.late.Add(1)
			s.log.Warn("the result of an attempt arrived after its timeout and was dropped", "run", t.Run, "attempt", t.Attempt, "timeout", over.limit)
		}
		return nil, over
	}
}
