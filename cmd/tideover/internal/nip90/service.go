package nip90

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/limit"
	"github.com/tideover/tideover/nostr"
	"github.com/tideover/tideover/nostr/dvm"
)

// flushTime is how long the service waits, when it ends, for relays to acknowledge the
// last events.
const flushTime = 3 * time.Second

// Service accepts jobs from relays, as its current [Offer] says, and answers them.
type Service struct {
	log       *slog.Logger
	shared    bool         // see New
	late      atomic.Int64 // results that arrived after the timeout of their attempt
	jobs      activeJobs
	announcer announcer

	mu       sync.Mutex
	engine   *engine.Engine
	set      *setup                     // current offer; nil for none
	keys     map[string]nostr.SecretKey // current and earlier keys, by public key; a job is answered with its own
	changed  chan struct{}              // closed when the connections to relays have to be made again
	link     *nostr.Client              // nil while there are no connections
	provider *dvm.Provider              // nil while there are no connections
}

// New returns a service without an offer. shared must be true if the engine is part of a
// cluster, in which other processes may accept the same jobs.
func New(log *slog.Logger, shared bool) *Service {
	return &Service{log: log, shared: shared, announcer: announcer{log: log}, jobs: newActiveJobs(), changed: make(chan struct{}), keys: map[string]nostr.SecretKey{}}
}

// Handlers returns the handlers of jobs and answers. attempt makes one attempt of a job.
// The engine needs them even without an offer, for jobs of an earlier configuration.
func (s *Service) Handlers(attempt engine.Handler) map[string]engine.Handler {
	return map[string]engine.Handler{handlerWork: s.work(attempt), handlerSign: s.sign, handlerPublish: s.publish}
}

// Offer replaces the current offer, and sets the engine. The connections to relays are
// kept if the settings have not changed.
func (s *Service) Offer(o Offer, e *engine.Engine) {
	s.mu.Lock()
	defer s.mu.Unlock()
	same := s.set != nil && o.set != nil && s.set.text == o.set.text
	s.set, s.engine = o.set, e
	if o.set != nil {
		s.keys[o.set.key.PublicKey()] = o.set.key
	}
	if !same {
		close(s.changed)
		s.changed = make(chan struct{})
	}
}

// serving returns the current offer, nil if there is none, and the engine.
func (s *Service) serving() (*setup, *engine.Engine) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.set, s.engine
}

// keyOf returns the key that the request of a job was addressed to. It may be the key of
// an earlier configuration: the customer accepts only answers that it has signed.
func (s *Service) keyOf(j *job) (nostr.SecretKey, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key, ok := s.keys[j.Nostr.Provider]
	if !ok {
		return key, fmt.Errorf("the request was sent to %s, whose secret key is no longer configured; only that key can sign the answer", nostr.Npub(j.Nostr.Provider))
	}
	return key, nil
}

func (s *Service) client() *nostr.Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.link
}

// Relays returns the status of the relays; nil while no jobs are accepted.
func (s *Service) Relays() []nostr.RelayStatus {
	client := s.client()
	if client == nil {
		return nil
	}
	return client.Status()
}

// Run serves the current offer until the context ends, and switches to a new offer when
// [Service.Offer] sets one. No job is lost then, because the engine stores the jobs.
func (s *Service) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		s.mu.Lock()
		set, changed := s.set, s.changed
		s.mu.Unlock()
		if err := s.period(ctx, set, changed); err != nil {
			return err
		}
	}
	return nil
}

// period serves the offer set, or waits if it is nil, until changed is closed or the
// context ends.
func (s *Service) period(ctx context.Context, set *setup, changed <-chan struct{}) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() {
		defer cancel()
		select {
		case <-changed:
		case <-ctx.Done():
		}
	})
	if set == nil {
		<-ctx.Done()
		return nil
	}
	err := s.serve(ctx, set)
	cancel()
	return err
}

// serve connects to the relays and serves the offer until the context ends.
func (s *Service) serve(ctx context.Context, set *setup) error {
	client, provider, err := s.connect(set)
	if err != nil {
		return fmt.Errorf("nip90: %w", err)
	}
	s.use(client, provider)
	defer s.use(nil, nil)
	links, unlink := context.WithCancel(context.WithoutCancel(ctx))
	var parts sync.WaitGroup
	parts.Go(func() { _ = client.Run(links) }) // an error would mean that it runs twice
	feedback := feedback{s, client}
	parts.Go(func() { feedback.follow(ctx) })
	parts.Go(func() { feedback.removeEnded(ctx) })
	parts.Go(func() { s.announcer.announce(ctx, set, client) })
	_ = provider.Run(ctx) // an error would mean that it runs twice
	flush, done := context.WithTimeout(links, flushTime)
	defer done()
	if err := client.Flush(flush); err != nil {
		s.log.Info("relays have not acknowledged all feedback; the answer to each job will contain it", "error", err)
	}
	unlink()
	parts.Wait()
	return nil
}

// connect returns a provider for the offer, and the client for its relays. Neither runs
// yet.
func (s *Service) connect(set *setup) (*nostr.Client, *dvm.Provider, error) {
	var provider *dvm.Provider
	client, err := nostr.NewClient(nostr.ClientConfig{
		Relays: set.Relays, Key: set.key, Logger: s.log,
		Handle: func(relay string, e *nostr.Event) error { return provider.Handle(relay, e) },
		Stored: func(relay, subscription string) { provider.Stored(relay, subscription) },
	})
	if err != nil {
		return nil, nil, err
	}
	rules := map[int]dvm.Rules{}
	for _, k := range set.Kinds {
		rules[k.Kind] = dvm.Rules{DefaultTimeout: k.Timeout, MaxTimeout: k.MaxTimeout, Price: k.Price}
	}
	provider, err = dvm.NewProvider(dvm.Config{
		Link: client, Key: set.key, Jobs: jobs{s}, Kinds: rules, Logger: s.log, Shared: s.shared,
		Gate: dvm.GateConfig{
			Open: set.Open, Customers: set.Customers, MaxAge: set.MaxAge, SeenFor: set.MaxAge + 5*time.Minute,
			Rate: limit.Frequency{Events: set.PerMinute, Per: time.Minute}, Burst: set.Burst,
		},
	})
	return client, provider, err
}

func (s *Service) use(client *nostr.Client, provider *dvm.Provider) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.link, s.provider = client, provider
}
