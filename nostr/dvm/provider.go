package dvm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tideover/tideover/limit"
	"github.com/tideover/tideover/nostr"
)

// ErrOverloaded says that there is no room for another job.
var ErrOverloaded = errors.New("there is no room for another job")

// Jobs does the work of a [Provider]. A [Runner] is one.
type Jobs interface {
	// Start takes a job, and returns when it is recorded: from then on there will be
	// an answer. A job that it has or had already is none to start, and no error.
	// ErrOverloaded says that there is no room, and an *InvalidError that it can't be
	// done as it is; both are answered. After any other error the request will come
	// again.
	Start(ctx context.Context, r *Request) error

	// Cancel ends a job that its customer has withdrawn. One that is over, or that
	// it does not know, is left alone.
	Cancel(ctx context.Context, id, by string) error

	// Active returns the jobs that can be cancelled.
	Active() []ActiveJob
}

// ActiveJob is a job that has not ended.
type ActiveJob struct {
	ID, Customer string
	Created      time.Time // of the request
}

// Intake is something that came in, and what became of it.
type Intake struct {
	Relay    string
	ID       string // of the event
	Customer string
	Verdict  Verdict
}

// Config says how a [Provider] works. Link, Key and Jobs must be there.
type Config struct {
	Link     Link
	Key      nostr.SecretKey
	Jobs     Jobs
	Kinds    map[int]Rules // that are served; nil means DefaultKind
	Gate     GateConfig    // Kinds and Key are set by the provider
	Logger   *slog.Logger  // nil: nothing is logged
	Observer func(Intake)  // told of everything that comes in, one at a time; it must be quick

	// AskTimeout is how long relays may take to say whether a request has been answered
	// by an earlier process; 0 means 10 s.
	AskTimeout time.Duration

	// Shared says that other processes serve the same key, with jobs in common. A
	// request for which there is no room here is then left to them, without a word:
	// they may do it, and a job has one answer.
	Shared bool
}

// The sizes and times of the intake.
const (
	arrivalsKept = 64                     // between the relays' readers and the check
	backlogKept  = 128                    // requests that an earlier process may have answered
	refusedMost  = 60                     // requests of all customers, in a minute
	patience     = 100 * time.Millisecond // that a reader has with the check
	liveFor      = 30 * time.Second       // a request that is older may have been answered
	storedAfter  = 10 * time.Second       // a relay that does not say that it has sent all it had has done so
)

// Provider takes requests in. What it does not refuse it hands to [Jobs], once for
// each request, from however many relays it comes and however often.
//
// It talks to the relays of its link only. Those that a request names are for the
// program that does the job to look at: a provider that dialled whatever address it
// is given could be sent anywhere.
type Provider struct {
	cfg      Config
	gate     *Gate
	refusals *limit.Rate
	queue    chan arrival
	backlog  chan candidate
	changed  chan struct{} // the active jobs may have changed
	ran      atomic.Bool
	done     chan struct{}
	rounds   rounds     // of watch alone
	showing  sync.Mutex // what is observed comes one at a time

	mu      sync.Mutex
	stored  map[string]bool      // relays that have sent all that they had
	heard   map[string]time.Time // when relays that have not sent their first event
	blame   map[string]int       // forged events of a relay that it was not told of
	watched map[string]string    // the customers of active jobs
	tally   tally
}

// arrival is an event from a relay.
type arrival struct {
	relay string
	event *nostr.Event
	old   bool // an earlier process may have answered it
}

// candidate is a request that passed the gate.
type candidate struct {
	r   *Request
	err error // why it is not a good one
}

// NewProvider returns a provider. The error has all problems of the configuration.
func NewProvider(cfg Config) (*Provider, error) {
	if cfg.Kinds == nil {
		cfg.Kinds = map[int]Rules{DefaultKind: {}}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Observer == nil {
		cfg.Observer = func(Intake) {}
	}
	cfg.AskTimeout = cmp.Or(cfg.AskTimeout, 10*time.Second)
	cfg.Gate.Kinds, cfg.Gate.Key = slices.Sorted(maps.Keys(cfg.Kinds)), cfg.Key.PublicKey()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("dvm.NewProvider: %w", err)
	}
	gate, err := NewGate(cfg.Gate)
	if err != nil {
		return nil, err
	}
	refusals, err := limit.NewRate(limit.RateConfig{Rate: limit.Frequency{Events: refusedMost, Per: time.Minute}, Burst: refusedMost})
	if err != nil {
		return nil, fmt.Errorf("dvm.NewProvider: %w", err)
	}
	return &Provider{
		cfg: cfg, gate: gate, refusals: refusals, queue: make(chan arrival, arrivalsKept), backlog: make(chan candidate, backlogKept),
		changed: make(chan struct{}, 1), done: make(chan struct{}), stored: map[string]bool{}, heard: map[string]time.Time{}, blame: map[string]int{},
	}, nil
}

func (c *Config) validate() error {
	errs := []error{c.Gate.Validate()}
	for kind, rules := range c.Kinds {
		if err := rules.Validate(); err != nil {
			errs = append(errs, fmt.Errorf("kinds[%d]: %w", kind, err))
		}
	}
	if c.Link == nil {
		errs = append(errs, errors.New("link: nil"))
	}
	if c.Jobs == nil {
		errs = append(errs, errors.New("jobs: nil"))
	}
	return errors.Join(errs...)
}

// The names of the subscriptions.
const (
	subJobs   = "jobs"
	subCancel = "cancel-" // and a number
)

// Run takes requests in until the context ends, and returns nil after everything
// that it started has ended. The jobs go on. It can be called once.
func (p *Provider) Run(ctx context.Context) error {
	if p.ran.Swap(true) {
		return errors.New("run: the provider has run already")
	}
	defer close(p.done)
	var group sync.WaitGroup
	group.Go(func() { p.check(ctx) })
	group.Go(func() { p.sift(ctx) })
	group.Go(func() { p.watch(ctx) })
	filter := nostr.Filter{Kinds: p.cfg.Gate.Kinds}
	if !p.cfg.Gate.Open {
		filter.Tags = map[string][]string{"p": {p.cfg.Gate.Key}}
	}
	p.cfg.Link.Subscribe(subJobs, time.Now().Add(-p.gate.cfg.MaxAge), filter)
	<-ctx.Done()
	p.cfg.Link.Unsubscribe(subJobs)
	group.Wait()
	p.unwatch()
	return nil
}

// Stats says what has become of everything that came in. Accepted is what the gate
// let through; of that, some may have turned out Invalid or Unrecorded.
func (p *Provider) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.gate.Stats().plus(p.tally.stats())
}

// note counts a verdict that is not the gate's.
func (p *Provider) note(v Verdict) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tally[v]++
}

// show tells the observer and the log.
func (p *Provider) show(relay string, e *nostr.Event, v Verdict) {
	p.showing.Lock()
	defer p.showing.Unlock()
	p.cfg.Logger.Debug("nostr event", "relay", relay, "id", e.ID, "customer", e.PubKey, "verdict", v)
	p.cfg.Observer(Intake{Relay: relay, ID: e.ID, Customer: e.PubKey, Verdict: v})
}
