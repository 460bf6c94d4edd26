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
	"github.com/tideover/tideover/cmd/tideover/internal/template"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/nostr"
	"github.com/tideover/tideover/nostr/dvm"
	"github.com/tideover/tideover/retry"
)

const (
	// publishTime is how long an attempt to publish waits for relays. Events that they
	// have not acknowledged by then stay in the client's outbox.
	publishTime = 20 * time.Second

	// enough is the age of an answer from which on it counts as published if one relay
	// has it, even if others are unreachable.
	enough = time.Hour
)

// errNotServed is the error of an answer while nip90 is not configured.
var errNotServed = errors.New("nip90 is not configured at the moment: put the section back into the file to have the job answered")

// errNotReady is the error of an answer before the service knows the engine.
var errNotReady = errors.New("the server has just started and is not ready yet")

// errAgain is the error of an answer to a run that was retried by hand in the meantime. A
// job has only one answer, so it waits for the next end of the run.
var errAgain = errors.New("the job was retried before it was answered: it is answered when it ends")

// answer is the output of the step that signs: the events of the answer, which are final.
type answer struct {
	Request string         `json:"request,omitempty"`
	Events  []*nostr.Event `json:"events"` // in the order in which they are published
}

// sign is the handler that makes and signs the answer to a job that has ended. It is a
// separate step, so that the answer is stored before it is published.
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
		return encode(answer{Events: []*nostr.Event{}}) // a replay or rerun: the customer already has an answer
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

// compose returns the signed answer to a job with the history h, as JSON.
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

// tooLarge returns the history for an answer that says that the result is too large to be
// stored.
func tooLarge(i *engine.Info) *dvm.History {
	return &dvm.History{Outcome: &dvm.Outcome{State: dvm.Failed, At: *i.Ended, Code: dvm.CodePermanent, Message: "The result is too large"}}
}

// encode returns v as JSON for storage. Its error is permanent.
func encode(v any) ([]byte, error) {
	text, err := template.EncodeJSON(v)
	return text, retry.Permanent(err)
}

// publish is the handler that publishes the signed answer. Its policy retries it until
// [judge] is satisfied. Each attempt publishes the same events, which a relay that already
// has them acknowledges again.
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
		client.Publish(nostr.Result, a.Events[:last]...) // feedback, published separately: a relay that refuses it may still accept the result
		a.Events = a.Events[last:]
	}
	d := client.Publish(nostr.Result, a.Events...)
	await(ctx, client, d)
	return judge(d.Relays(), time.Since(t.Created))
}

// await waits until all connected relays have answered. A relay that is not connected gets
// the events later, from the client's outbox. Waiting for it would block one of the few
// steps that can publish at the same time.
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

// pending reports whether a connected relay has not answered yet.
func pending(status []nostr.RelayStatus, receipts []nostr.Receipt) bool {
	up := map[string]bool{}
	for _, r := range status {
		up[r.URL] = r.Up
	}
	return slices.ContainsFunc(receipts, func(r nostr.Receipt) bool { return r.State == nostr.Pending && up[r.Relay] })
}

// judge returns what each relay answered, as JSON, if the answer counts as published: at
// least one relay has accepted it, and all others have accepted or refused it, or the
// answer is older than enough. Otherwise judge returns an error, which is permanent if all
// relays have refused the answer.
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
		return nil, retry.Permanent(fmt.Errorf("all relays refused the answer: %s", strings.Join(refused, "; ")))
	case len(missing) > 0 && (has == 0 || age < enough):
		return nil, fmt.Errorf("not acknowledged by %s", strings.Join(missing, ", "))
	}
	return json.Marshal(said)
}
