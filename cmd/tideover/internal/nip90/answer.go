package nip90

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/steps"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/nostr"
	"github.com/tideover/tideover/nostr/dvm"
	"github.com/tideover/tideover/retry"
)

const (
	// publishTime is how long an attempt to publish waits for relays. What they have
	// not acknowledged by then stays in the outbox.
	publishTime = 20 * time.Second

	// enough is how long a relay that is away is waited for when another one has the
	// answer.
	enough = time.Hour
)

// errNotServed is the error of an answer while nip90 is not configured.
var errNotServed = errors.New("nip90 is not configured at the moment: put the section back into the file to have the job answered")

// errNotReady is the error of an answer before the service knows the engine.
var errNotReady = errors.New("the server has only begun")

// errAgain is the error of an answer to a run that was retried by hand in the meantime.
// There is one answer only, so it waits for the next end of the run.
var errAgain = errors.New("the job was put back to work before it was answered: it is answered when it ends")

// answer is the output of the first step: what is said, once and for all.
type answer struct {
	Request string         `json:"request,omitempty"`
	Events  []*nostr.Event `json:"events"` // in the order in which they are published
}

// sign makes the answer to a job that has ended. It is a step of its own, so that
// what is published was recorded before.
func (s *Service) sign(ctx context.Context, t *engine.Task) ([]byte, error) {
	var end engine.Ended
	if err := json.Unmarshal(t.Input, &end); err != nil {
		return nil, retry.Permanent(fmt.Errorf("input of the run: %w", err))
	}
	_, e := s.serving()
	if e == nil {
		return nil, errNotReady
	}
	i, err := e.Get(ctx, end.Run)
	if err != nil {
		return nil, err
	}
	if i.Ended == nil {
		return nil, errAgain
	}
	j, err := readJob(i.Input)
	if err != nil {
		return nil, retry.Permanent(err)
	}
	if i.Key == "" || i.Key != keyPrefix+j.ID {
		return encode(answer{Events: []*nostr.Event{}}) // done again by hand: its customer has an answer
	}
	key, err := s.keyOf(j)
	if err != nil {
		return nil, err
	}
	text, err := compose(key, j, story(i, j))
	if err == nil && len(text) > steps.MaxPayload {
		text, err = compose(key, j, tooLarge(i))
	}
	return text, err
}

// compose returns the signed answer as it is recorded.
func compose(key nostr.SecretKey, j *job, h *dvm.History) ([]byte, error) {
	a := answer{Request: j.ID, Events: []*nostr.Event{}}
	list := dvm.Answers(j.request(), h)
	for k := range list {
		if err := list[k].Sign(key); err != nil {
			return nil, retry.Permanent(err)
		}
		a.Events = append(a.Events, &list[k])
	}
	return encode(a)
}

// tooLarge is the history of a job whose answer can't be recorded.
func tooLarge(i *engine.Info) *dvm.History {
	return &dvm.History{Outcome: &dvm.Outcome{State: dvm.Failed, At: *i.Ended, Code: dvm.CodePermanent, Message: "The result is too large"}}
}

// encode returns what is stored.
func encode(v any) ([]byte, error) {
	text, err := steps.EncodeJSON(v)
	return text, retry.Permanent(err)
}

// publish gives relays the answer, until all have it that want it. It is the same
// every time, and a relay that has it already says so.
func (s *Service) publish(ctx context.Context, t *engine.Task) ([]byte, error) {
	text, err := t.Output(stepSign)
	if err != nil {
		return nil, retry.Permanent(err)
	}
	var a answer
	if err := json.Unmarshal(text, &a); err != nil {
		return nil, retry.Permanent(fmt.Errorf("signed answer: %w", err))
	}
	if len(a.Events) == 0 {
		return []byte(`{}`), nil
	}
	client := s.client()
	if client == nil {
		return nil, errNotServed
	}
	last := len(a.Events) - 1
	if a.Events[last].Kind != dvm.KindFeedback {
		client.Publish(nostr.Result, a.Events[:last]...) // a relay that does not want it may still want the result
		a.Events = a.Events[last:]
	}
	d := client.Publish(nostr.Result, a.Events...)
	await(ctx, client, d)
	return judge(d.Relays(), time.Since(t.Created))
}

// await waits for the relays that can be reached. The others have it in their outbox,
// and are asked later: until then the place is better used by others.
func await(ctx context.Context, client *nostr.Client, d *nostr.Delivery) {
	ctx, cancel := context.WithTimeout(ctx, publishTime)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for pending(client.Status(), d.Relays()) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// pending reports whether a relay that is up has yet to answer.
func pending(status []nostr.RelayStatus, receipts []nostr.Receipt) bool {
	up := map[string]bool{}
	for _, r := range status {
		up[r.URL] = r.Up
	}
	return slices.ContainsFunc(receipts, func(r nostr.Receipt) bool { return r.State == nostr.Pending && up[r.Relay] })
}

// judge says whether the answer is given: every relay has it or does not want it, or
// one has it and the others have been away for long.
func judge(receipts []nostr.Receipt, age time.Duration) ([]byte, error) {
	said := map[string]string{}
	has := 0
	var missing, refused []string
	for _, r := range receipts {
		said[r.Relay] = r.State.String()
		switch r.State {
		case nostr.Acknowledged:
			has++
		case nostr.Refused:
			said[r.Relay] = fmt.Sprint("refused: ", r.Err)
			refused = append(refused, fmt.Sprintf("%s: %v", r.Relay, r.Err))
		default:
			missing = append(missing, r.Relay)
		}
	}
	switch {
	case has == 0 && len(missing) == 0:
		return nil, retry.Permanent(fmt.Errorf("no relay wants the answer: %s", strings.Join(refused, "; ")))
	case len(missing) > 0 && (has == 0 || age < enough):
		return nil, fmt.Errorf("not acknowledged by %s", strings.Join(missing, ", "))
	}
	return json.Marshal(said)
}
