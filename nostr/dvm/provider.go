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

	"github.com/tideover/tideover/internal/validate"
	"github.com/tideover/tideover/limit"
	"github.com/tideover/tideover/nostr"
)

// ErrOverloaded means that there is no capacity for another job.
var ErrOverloaded = errors.New("there is no room for another job")

// Jobs runs the jobs of a [Provider]. [Runner] implements it.
type Jobs interface {
	// Start accepts a job, and returns when the job is recorded: from then on it
	// will be answered. It returns nil for a job that it already has or had.
	// ErrOverloaded means that there is no capacity, and an *InvalidError that the
	// request cannot be done; the provider answers both. After any other error the
	// provider tries again when a relay sends the request again.
	Start(ctx context.Context, r *Request) error

	// Cancel ends a job that its customer has withdrawn. It ignores a job that
	// is over or unknown.
	Cancel(ctx context.Context, id, by string) error

	// Active returns the jobs that can be cancelled.
	Active() []ActiveJob
}

// ActiveJob is a job that has not ended.
type ActiveJob struct {
	ID, Customer string
	Created      time.Time // date of the request
}

// Intake is an event that arrived, and the verdict about it.
type Intake struct {
	Relay    string
	ID       string // id of the event
	Customer string
	Verdict  Verdict
}

// Config configures a [Provider]. Link, Key and Jobs are required.
type Config struct {
	Link     Link
	Key      nostr.SecretKey
	Jobs     Jobs
	Kinds    map[int]Rules // kinds that are served; nil means DefaultKind
	Gate     GateConfig    // Kinds and Key are set by the provider
	Logger   *slog.Logger  // nil logs nothing
	Observer func(Intake)  // called for every event that arrives, one at a time; it must be quick

	// AskTimeout is how long relays may take to answer whether an earlier
	// process has answered a request; 0 means 10 s.
	AskTimeout time.Duration

	// Shared means that other processes serve the same key and share the jobs. A
	// request for which this process has no capacity is then not answered: another
	// process may run it, and a job must have only one answer.
	Shared bool
}

// The limits and timeouts of the intake.
const (
	arrivalsKept   = 64                     // queue between the relays' readers and the check
	backlogKept    = 128                    // requests that an earlier process may have answered
	refusedMost    = 60                     // refusals of all customers, per minute
	enqueueTimeout = 100 * time.Millisecond // how long a reader waits for the check
	liveFor        = 30 * time.Second       // an older request may have been answered already
	storedAfter    = 10 * time.Second       // after this time a relay without EOSE counts as having sent all stored events
)

// Provider receives requests. It passes each request that it does not refuse to
// [Jobs] once, even if the request arrives several times or from several relays.
//
// It connects only to the relays of its link. The relays that a request names are
// left to the program that does the job: a provider that dialled any given address
// could be abused.
type Provider struct {
	cfg              Config
	gate             *Gate
	refusals         *limit.Rate
	queue            chan arrival
	backlog          chan candidate
	changed          chan struct{} // the active jobs may have changed
	ran              atomic.Bool
	done             chan struct{}
	withdrawalGroups withdrawalGroups // used by watchWithdrawals only
	showing          sync.Mutex       // the observer is called for one event at a time

	relays relayRecords

	mu      sync.Mutex
	watched map[string]string // the customers of active jobs, by the job's id
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
	err error // why it is invalid; else nil
}

// NewProvider returns a provider. The error lists all problems of the
// configuration.
func NewProvider(cfg Config) (*Provider, error) {
	if cfg.Kinds == nil {
		cfg.Kinds = map[int]Rules{DefaultKind: {}}
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
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
		changed: make(chan struct{}, 1), done: make(chan struct{}), relays: newRelayRecords(),
	}, nil
}

func (c *Config) validate() error {
	errs := validate.Problems{c.Gate.Validate()}
	for kind, rules := range c.Kinds {
		errs.Field(fmt.Sprintf("kinds[%d]", kind), rules.Validate())
	}
	errs.Check(c.Link != nil, "link: nil")
	errs.Check(c.Jobs != nil, "jobs: nil")
	return errors.Join(errs...)
}

// The names of the subscriptions.
const (
	subJobs   = "jobs"
	subCancel = "cancel-" // followed by a number
)

// Run receives requests until the context ends, and returns nil after
// everything that it started has ended. The jobs continue. It can be called
// once.
func (p *Provider) Run(ctx context.Context) error {
	if p.ran.Swap(true) {
		return errors.New("run: the provider has run already: make a new one")
	}
	defer close(p.done)
	var group sync.WaitGroup
	group.Go(func() { p.check(ctx) })
	group.Go(func() { p.processBacklog(ctx) })
	group.Go(func() { p.watchWithdrawals(ctx) })
	filter := nostr.Filter{Kinds: p.cfg.Gate.Kinds}
	if !p.cfg.Gate.Open {
		filter.Tags = map[string][]string{"p": {p.cfg.Gate.Key}}
	}
	p.cfg.Link.Subscribe(subJobs, time.Now().Add(-p.gate.cfg.MaxAge), filter)
	<-ctx.Done()
	p.cfg.Link.Unsubscribe(subJobs)
	group.Wait()
	p.endWithdrawalSubscriptions()
	return nil
}

// Stats counts the verdicts about everything that arrived. Accepted counts the
// requests that passed the gate; some of these are also counted as Invalid or
// Unrecorded.
func (p *Provider) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.gate.Stats()
	for v, n := range p.tally.stats() {
		s[v] += n
	}
	return s
}

// countVerdict counts a verdict that the gate has not counted, and returns it.
func (p *Provider) countVerdict(v Verdict) Verdict {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tally[v]++
	return v
}

// reportVerdict logs a verdict and calls the observer.
func (p *Provider) reportVerdict(relay string, e *nostr.Event, v Verdict) {
	p.showing.Lock()
	defer p.showing.Unlock()
	p.cfg.Logger.Debug("nostr event", "relay", relay, "id", e.ID, "customer", e.PubKey, "verdict", v)
	p.cfg.Observer(Intake{Relay: relay, ID: e.ID, Customer: e.PubKey, Verdict: v})
}
