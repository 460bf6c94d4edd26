package jetstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/retry"
)

var errClosed = errors.New("the log is closed")

// Log is a member of a cluster. It implements [journal.Cluster].
type Log struct {
	cfg      Config
	second   *second // nil means none
	names    names
	settings settings
	made     bool // there was no cluster before
	timing   timing
	c        *conn
	bucket   bucket
	objects  *objects
	calls    *exchange

	life  context.Context //nolint:containedctx // until the log is closed
	end   context.CancelFunc
	group sync.WaitGroup
	close func() error

	notices *nats.Subscription
	wanted  notice        // what the others have told of
	stirred chan struct{} // has one when the pulse has changed
	ended   chan struct{} // closed when we can't be a member any more

	mu        sync.Mutex
	id        string // of this member; the last one while it is none
	joined    bool
	revision  uint64 // of the member's record
	record    memberRecord
	desk      *desk // takes requests to the member
	answer    journal.Answer
	pulse     pulse
	roster    roster
	looked    time.Time // when the bucket was last read
	view      *view
	viewed    chan struct{} // closed when the view changes
	assigned  []int
	announced chan struct{}  // closed when what is assigned changes
	leases    map[int]*lease // those that hold; nil while one is being taken
	troubles  map[string]bool
	closed    bool
	wrong     error // why we can't be a member any more
}

var _ journal.Cluster = (*Log)(nil)

// Open connects to the servers and joins the cluster, which it creates if there
// is none. It tries until the context ends, and for a minute at most; a
// configuration or credentials that can't be right are refused at once.
func Open(ctx context.Context, cfg Config) (*Log, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	l, err := open(ctx, cfg.withDefaults())
	if err != nil {
		return nil, fmt.Errorf("open log %s: %w", cfg.withDefaults().Name, err)
	}
	return l, nil
}

func open(ctx context.Context, cfg Config) (*Log, error) {
	// Whatever can be found out without the servers, before anything is made there.
	who, err := cfg.identity()
	if err != nil {
		return nil, err
	}
	second, err := openSecond(cfg)
	if err = errors.Join(err, second.usable()); err != nil {
		return nil, err
	}
	c, err := dial(ctx, cfg, who)
	if err != nil {
		return nil, err
	}
	l := &Log{
		cfg: cfg, second: second, names: names(cfg.Name), c: c, roster: roster{}, leases: map[int]*lease{}, troubles: map[string]bool{},
		wanted:  notice{signal: make(chan struct{}, 1)},
		stirred: make(chan struct{}, 1), ended: make(chan struct{}), viewed: make(chan struct{}), announced: make(chan struct{}),
	}
	l.life, l.end = context.WithCancel(context.Background())
	l.close = sync.OnceValue(l.leave)
	l.bucket = newBucket(c, l.names)
	if err := l.enter(ctx); err != nil {
		return nil, errors.Join(err, l.abandon())
	}
	return l, nil
}

// abandon undoes what was done when a log could not be opened.
func (l *Log) abandon() error {
	if l.joined {
		return l.Close()
	}
	defer l.c.nc.Close()
	if l.objects == nil {
		return nil
	}
	return l.objects.close()
}

// enter creates or finds the cluster, and becomes a member.
func (l *Log) enter(ctx context.Context) (err error) {
	if err := checkServer(l.c); err != nil {
		return err
	}
	js, err := natsjs.New(l.c.nc)
	if err != nil {
		return err
	}
	creator := &creator{c: l.c, js: js, cfg: l.cfg, names: l.names, bucket: l.bucket}
	if l.settings, err = retry.Value(ctx, opens, creator.prepare); err != nil {
		return plain(err)
	}
	l.made = creator.made
	l.tellOrigin()
	l.tellDifferences(creator.log)
	l.timing = timingOf(l.settings.LeaseTime)
	l.timing.beat = cmp.Or(l.cfg.beat, l.timing.beat)
	l.pulse.timing = l.timing
	if l.objects, err = openObjects(l.c, l.names, l.cfg, l.second); err != nil {
		return err
	}
	if l.calls, err = newExchange(l.c); err != nil {
		return err
	}
	if l.notices, err = l.c.nc.Subscribe(l.names.noticeSubject(), l.noticed); err != nil {
		return err
	}
	l.c.watch(l.connectionChanged)
	if err := opens.Do(ctx, l.join); err != nil {
		return plain(err)
	}
	if err := opens.Do(ctx, l.refresh); err != nil {
		return plain(err)
	}
	for _, run := range []func(){l.beats, l.looks, l.guard} {
		l.group.Go(run)
	}
	return nil
}

// oldest is the first version of the server that has all that is needed: batches
// of direct gets, and messages that expire.
var oldest = [2]int{2, 11}

// checkServer says why the server that we are connected to can't be used.
func checkServer(c *conn) error {
	version := c.nc.ConnectedServerVersion()
	if v, ok := parseVersion(version); ok && slices.Compare(v[:2], oldest[:]) < 0 {
		return fmt.Errorf("the NATS server has version %s; at least %d.%d is needed", version, oldest[0], oldest[1])
	}
	if room := c.nc.MaxPayload(); room < journal.MaxEntry+maxHeader {
		return fmt.Errorf("the NATS server takes messages of %d bytes; set its max_payload to at least %d, such as 1MB",
			room, journal.MaxEntry+maxHeader)
	}
	return nil
}

// maxHeader is more than the headers of any message of ours have.
const maxHeader = 2000

func parseVersion(text string) (v [3]int, ok bool) {
	text, _, _ = strings.Cut(text, "-")
	parts := strings.Split(text, ".")
	if len(parts) != len(v) {
		return v, false
	}
	for i, part := range parts {
		n, err := strconv.Atoi(part)
		if err != nil {
			return v, false
		}
		v[i] = n
	}
	return v, true
}

// Shards implements [journal.Cluster].
func (l *Log) Shards() int { return l.settings.Shards }

// Close implements [journal.Log]. It releases all leases and leaves the cluster.
// When the servers can't be told, the others find out by themselves.
func (l *Log) Close() error { return l.close() }

func (l *Log) leave() error {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	errs := []error{l.releaseAll()}
	l.end()
	l.group.Wait()
	l.mu.Lock()
	desk := l.desk
	l.mu.Unlock()
	desk.close()
	err := l.c.connected()
	if err == nil {
		err = farewells.Do(context.Background(), l.unjoin)
	}
	if err != nil {
		errs = append(errs, fmt.Errorf("leave cluster %s: %w", l.cfg.Name, err))
	}
	l.calls.close()
	_ = l.c.nc.FlushTimeout(time.Second) // answers that were given; there is nobody to tell otherwise
	l.c.nc.Close()
	return errors.Join(append(errs, l.objects.close())...)
}

// releaseAll gives up all leases, at once.
func (l *Log) releaseAll() error {
	var group sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	for _, held := range l.held() {
		group.Go(func() {
			if err := held.Release(); err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
			}
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

// held returns the leases that hold.
func (l *Log) held() (list []*lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, held := range l.leases {
		if held != nil {
			list = append(list, held)
		}
	}
	return list
}
