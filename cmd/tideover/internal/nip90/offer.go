package nip90

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/tideover/tideover/cmd/tideover/internal/steps"
	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/secret"
	"github.com/tideover/tideover/nostr"
)

// Offer is the set of kinds of jobs that a configuration accepts. The zero value accepts
// none.
type Offer struct{ set *setup }

// setup is the content of an [Offer].
type setup struct {
	*Spec
	key   nostr.SecretKey
	kinds map[int]*kind
	text  string // all settings; if it changes, the connections to relays are made again
}

// kind is a kind of job.
type kind struct {
	*JobKind
	flow *engine.Workflow
}

// Config is the part of the configuration that [Plan] needs.
type Config struct {
	Spec      *Spec                      // nil means that no jobs are accepted
	Workflows map[string]*steps.Workflow // by name
	Secrets   secret.Resolver
	Values    []strictyaml.Value // if a value of the section nip90 changes, the connections to relays are made again
}

// Plan returns the offer of a configuration. alarm makes the workflows that notify when a
// run of a workflow gives up.
func Plan(c Config, alarm steps.Alarm) (Offer, error) {
	if c.Spec == nil {
		return Offer{}, nil
	}
	key, err := ResolveKey(c.Spec.Key, c.Secrets)
	if err != nil {
		return Offer{}, fmt.Errorf("nip90: key: %w", err)
	}
	answer, err := newAnswerFlow()
	if err != nil {
		return Offer{}, err
	}
	set := &setup{Spec: c.Spec, key: key, kinds: map[int]*kind{}, text: key.PublicKey()}
	for _, k := range c.Spec.Kinds {
		flow, err := newJobFlow(c, k, answer, alarm)
		if err != nil {
			return Offer{}, err
		}
		set.kinds[k.Kind] = &kind{k, flow}
	}
	for _, v := range c.Values {
		if strings.HasPrefix(v.Path, Prefix) {
			set.text += "\n" + v.Path + " " + v.Text
		}
	}
	return Offer{set}, nil
}

// Workflows returns the workflows of jobs. The caller must register them with the engine.
func (o Offer) Workflows() (list []*engine.Workflow) {
	if o.set == nil {
		return nil
	}
	for _, k := range o.set.Kinds {
		list = append(list, o.set.kinds[k.Kind].flow)
	}
	return list
}

// Prefix begins the names of the workflows of jobs.
const Prefix = "nip90."

// The names of workflows and handlers.
const (
	answerFlow     = Prefix + "answer"
	handlerWork    = "nip90-job"
	handlerSign    = "nip90-sign"
	handlerPublish = "nip90-publish"
	stepSign       = "sign"
	stepPublish    = "publish"
	keyPrefix      = "nip90/" // the key of a run is this prefix and the id of the request
)

// Settings of the workflow that answers. It retries for a day, because only the owner of
// the key can answer.
const (
	signPolicy    = "exponential(1s..1m) jitter=full attempts=unlimited total-timeout=1d"
	publishPolicy = "exponential(2s..5m) jitter=full attempts=unlimited total-timeout=1d"
	maxLost       = 1000 // so high that a server that is restarted often still answers
	publishers    = 16   // most answers that are published at the same time, to leave the server's other slots to other work
)

// OfJobs reports whether the runs of a workflow are jobs of customers.
func OfJobs(workflow string) bool {
	return strings.HasPrefix(workflow, Prefix) && workflow != answerFlow
}

// newAnswerFlow returns the workflow that signs and publishes the answer to a job.
func newAnswerFlow() (*engine.Workflow, error) {
	return engine.NewWorkflow(answerFlow,
		engine.Call(stepSign, handlerSign, struct{}{}, engine.Policy(signPolicy), engine.MaxLost(maxLost)),
		engine.Call(stepPublish, handlerPublish, struct{}{}, engine.After(stepSign), engine.Policy(publishPolicy), engine.MaxLost(maxLost), engine.Concurrency(publishers)))
}

// newJobFlow returns the workflow of a kind of jobs. When a run of it ends, the engine
// starts the workflow answer.
func newJobFlow(c Config, k *JobKind, answer *engine.Workflow, alarm steps.Alarm) (*engine.Workflow, error) {
	if k.Step != nil {
		return engine.NewWorkflow(k.Name(), engine.OnEnd(answer),
			engine.Call(k.Step.ID, handlerWork, k.Step, engine.WithPolicy(k.Step.Policy), engine.Concurrency(cmp.Or(k.Step.Concurrency, c.Spec.Workers)),
				engine.MaxLost(k.Step.MaxLost)))
	}
	w := c.Workflows[k.Workflow]
	if w == nil {
		return nil, fmt.Errorf("nip90: kind %d: unknown workflow %q", k.Kind, k.Workflow)
	}
	return steps.Named(k.Name(), w, c.Secrets, alarm, engine.OnEnd(answer))
}
