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

// flushTime is how long relays may take to acknowledge what was said last when the
// service ends.
const flushTime = 3 * time.Second

// Service offers what a configuration says.
type Service struct {
	log       *slog.Logger
	shared    bool
	late      atomic.Int64 // results that came after their time
	jobs      activeJobs
	announcer announcer

	mu       sync.Mutex
	engine   *engine.Engine
	set      *setup                     // nil for none
	keys     map[string]nostr.SecretKey // that jobs may have been asked of, by public key
	changed  chan struct{}              // closed when links have to be made anew
	link     *nostr.Client              // nil while there is none
	provider *dvm.Provider              // the same
}

// New returns a service that offers nothing yet. shared says that its engine is one of
// a cluster, of which others may offer the same.
func New(log *slog.Logger, shared bool) *Service {
	return &Service{log: log, shared: shared, announcer: announcer{log: log}, jobs: newActiveJobs(), changed: make(chan struct{}), keys: map[string]nostr.SecretKey{}}
}

// Handlers returns what does the work of jobs, an attempt at a time, and of answers.
// An engine has them always: jobs of an earlier configuration go on.
func (s *Service) Handlers(attempt engine.Handler) map[string]engine.Handler {
	return map[string]engine.Handler{handlerWork: s.work(attempt), handlerSign: s.sign, handlerPublish: s.publish}
}

// Offer has the service offer something from now on, by way of an engine. Links stay
// up if it is the same at the same relays.
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

// serving returns what is offered at the moment, and the engine.
func (s *Service) serving() (*setup, *engine.Engine) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.set, s.engine
}

// keyOf returns the key that a job was asked of, which may be that of an earlier
// configuration: its customer accepts only answers of that key.
func (s *Service) keyOf(j *job) (nostr.SecretKey, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key, ok := s.keys[j.Nostr.Provider]
	if !ok {
		return key, fmt.Errorf("the job was asked of %s, whose key is not configured any more: only it can answer", nostr.Npub(j.Nostr.Provider))
	}
	return key, nil
}

func (s *Service) client() *nostr.Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.link
}

// Relays returns the status of the relays; nil while nothing is offered.
func (s *Service) Relays() []nostr.RelayStatus {
	client := s.client()
	if client == nil {
		return nil
	}
	return client.Status()
}

// Run offers what there is to offer until the context ends. Another offer takes the
// place of the one before without a job being lost: they are the engine's.
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

// period offers one thing until there is another.
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

// serve offers one thing until the context ends.
func (s *Service) serve(ctx context.Context, set *setup) error {
	client, provider, err := s.connect(set)
	if err != nil {
		return fmt.Errorf("nip90: %w", err)
	}
	s.use(client, provider)
	defer s.use(nil, nil)
	links, unlink := context.WithCancel(context.WithoutCancel(ctx))
	var parts sync.WaitGroup
	parts.Go(func() { _ = client.Run(links) }) // it never ran before
	feedback := feedback{s, client}
	parts.Go(func() { feedback.follow(ctx) })
	parts.Go(func() { feedback.removeEnded(ctx) })
	parts.Go(func() { s.announcer.announce(ctx, set, client) })
	_ = provider.Run(ctx) // the same
	flush, done := context.WithTimeout(links, flushTime)
	defer done()
	if err := client.Flush(flush); err != nil {
		s.log.Info("relays have not acknowledged everything; the answer to each job will have it all", "error", err)
	}
	unlink()
	parts.Wait()
	return nil
}

// connect returns a provider and its relays.
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
