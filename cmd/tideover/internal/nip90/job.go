package nip90

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/tideover/tideover/nostr"
	"github.com/tideover/tideover/nostr/dvm"
)

// job is the input of a run: what templates see of a request, and what answers to it
// are made of. It is stored: fields are only added.
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

// origin is what is only of interest for the answers.
type origin struct {
	Provider string        `json:"provider"` // whom the customer asked: our public key at that time
	Created  time.Time     `json:"created"`
	Relay    string        `json:"relay,omitempty"`
	Clamped  bool          `json:"clamped,omitempty"`
	Bid      *int64        `json:"bid_msat,omitempty"`
	Price    int64         `json:"price_msat,omitempty"`
	Event    *nostr.Event  `json:"event,omitempty"`      // unless it is too large to be repeated
	Attempt  time.Duration `json:"attempt_ns,omitempty"` // limit of an attempt; 0 means that the timeout is the run's
}

// keepEvent is the size of a request that is repeated in its result.
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

// readJob reads the input of a run.
func readJob(input json.RawMessage) (*job, error) {
	j := new(job)
	if err := json.Unmarshal(input, j); err != nil {
		return nil, fmt.Errorf("input of the run: %w", err)
	}
	return j, nil
}

// request returns as much of the request as answers are made of.
func (j *job) request() *dvm.Request {
	return &dvm.Request{
		ID: j.ID, Customer: j.Customer, Kind: j.Kind, Created: j.Nostr.Created, Relay: j.Nostr.Relay, Task: j.Task,
		Inputs: j.Inputs, Output: j.Output, Timeout: time.Duration(j.Timeout) * time.Second, Clamped: j.Nostr.Clamped, Event: j.Nostr.Event,
		Bid: j.Nostr.Bid, Price: j.Nostr.Price,
	}
}
