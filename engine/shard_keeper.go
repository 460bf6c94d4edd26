package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/retry"
)

const (
	wellFor    = time.Minute            // a shard that has run for longer is reopened with the shortest delay
	lockedWait = 200 * time.Millisecond // delay before the next try to open a shard that has another owner
)

var (
	// openPolicy is the retry policy of opening a shard: its owner may not have
	// released it yet, or its log may not be readable.
	openPolicy = retry.Must("decorrelated(100ms..5s) attempts=unlimited")

	// keepPolicy is the retry policy of reopening a shard that has failed. Its delays
	// grow, because each failure loses the attempts of the shard.
	keepPolicy = retry.Must("exponential(1s..30s) jitter=equal attempts=unlimited").Policy()
)

// shardKeeper runs a shard in this process: it opens the shard, and reopens it after an error,
// until the shard is to be released.
type shardKeeper struct {
	cl     *cluster
	number int
	ctx    context.Context //nolint:containedctx // ends when the shard is to be released
	cancel context.CancelFunc
}

func (cl *cluster) keep(n int) *shardKeeper {
	k := &shardKeeper{cl: cl, number: n}
	k.ctx, k.cancel = context.WithCancel(context.Background())
	go k.run()
	return k
}

func (k *shardKeeper) run() {
	defer func() { k.cl.left <- k }()
	defer k.cancel()
	pace := pace{policy: keepPolicy}
	for {
		sh, err := retry.Value(k.ctx, openPolicy, k.open)
		if err != nil {
			k.cl.clearTrouble(k.number)
			return // the context has ended: the shard is to be released
		}
		k.cl.put(sh)
		begin := time.Now()
		go sh.run()
		select {
		case <-sh.done:
		case <-k.ctx.Done():
			k.close(sh)
		}
		k.cl.remove(sh)
		k.waitForHandlers(sh)
		if !errors.Is(sh.err, ErrClosed) && !errors.Is(sh.err, journal.ErrStale) {
			k.cl.setTrouble(k.number, sh.err)
		}
		if time.Since(begin) > wellFor {
			pace.state = retry.State{}
		}
		select {
		case <-time.After(pace.next(sh.err, rand.Uint64())):
		case <-k.ctx.Done():
		}
	}
}

// open opens the shard and serves calls of other processes. It fails while another process
// owns the shard.
func (k *shardKeeper) open(ctx context.Context) (*shard, error) {
	e := k.cl.e
	dir, err := k.dir(ctx)
	if err != nil {
		if ctx.Err() == nil {
			k.cl.setTrouble(k.number, err)
		}
		return nil, err
	}
	sh := newShard(&e.process, k.number, k.cl.log.Shards(), dir)
	opened := k.cl.beginOpening(sh)
	err = sh.open(ctx, k.cl.log)
	opened()
	if err == nil {
		err = sh.lease.(journal.Shared).Serve(k.cl.calls.answerWith(sh.commands.performForOthers))
		if err != nil {
			sh.shut()
		}
	}
	switch {
	case err == nil:
		k.cl.clearTrouble(k.number)
		return sh, nil
	case errors.Is(err, journal.ErrLocked), errors.Is(err, journal.ErrStale):
		return nil, retry.After(err, lockedWait) // the owner is about to release it
	case ctx.Err() == nil:
		k.cl.setTrouble(k.number, err)
	}
	return nil, err
}

// dir creates the folder of the shard's view and returns its path; "" without Config.Dir. The
// path has the name of the cluster in it, so that clusters which use the same Dir have
// separate views.
func (k *shardKeeper) dir(ctx context.Context) (string, error) {
	root := k.cl.e.cfg.Dir
	if root == "" {
		return "", nil
	}
	name, err := k.cl.log.Settle(ctx, "name", fmt.Sprintf("%016x", rand.Uint64()))
	if err != nil {
		return "", fmt.Errorf("name of the cluster: %w", err)
	}
	dir := filepath.Join(root, name, fmt.Sprintf("shard-%03d", k.number))
	return dir, os.MkdirAll(dir, 0o700)
}

// close closes the shard. If another process takes it over, the attempts have Config.Grace to
// end. If the engine is being closed, they have until the context of Close ends.
func (k *shardKeeper) close(sh *shard) {
	ctx, cancel := context.WithCancel(k.cl.hurry)
	defer cancel()
	if k.cl.stop.Err() == nil {
		sh.given.Store(true)
		ctx, cancel = context.WithTimeout(ctx, k.cl.e.cfg.Grace)
		defer cancel()
	}
	sh.close(ctx)
}

// waitForHandlers waits until the handlers of a closed shard have returned, so that the next
// attempts do not run beside them. It waits for at most Config.Grace.
func (k *shardKeeper) waitForHandlers(sh *shard) {
	ended := make(chan struct{})
	go func() {
		sh.attempts.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(sh.cfg.Grace):
	case <-k.cl.hurry.Done():
	}
}

// pace computes the delays of an operation that is retried without limit.
type pace struct {
	policy retry.Policy
	state  retry.State
}

func (p *pace) next(err error, random uint64) time.Duration {
	p.state.Attempt++
	d := retry.Decide(p.policy, p.state, retry.OutcomeOf(err), retry.Gates{}, random)
	p.state.Prev = d.Prev
	return d.Wait
}

// shardTable has the shards of this process in a cluster, and the errors of those that can't
// be opened or have failed.
type shardTable struct {
	cfg *Config

	mu      sync.Mutex
	shards  map[int]*shard  // open shards, by number
	opening map[int]*shard  // shards that are being opened
	wrong   map[int]Trouble // shards that can't be opened or have failed
}

func (st *shardTable) init(cfg *Config) {
	st.cfg, st.shards, st.opening, st.wrong = cfg, map[int]*shard{}, map[int]*shard{}, map[int]Trouble{}
}

// put adds an open shard.
func (st *shardTable) put(sh *shard) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.shards[sh.number] = sh
}

// remove removes a shard that has ended.
func (st *shardTable) remove(sh *shard) {
	st.mu.Lock()
	defer st.mu.Unlock()
	delete(st.shards, sh.number)
}

// beginOpening adds a shard that is being opened, and returns a function that removes it.
func (st *shardTable) beginOpening(sh *shard) (done func()) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.opening[sh.number] = sh
	return func() {
		st.mu.Lock()
		defer st.mu.Unlock()
		delete(st.opening, sh.number)
	}
}

// get returns an open shard of this process; nil if this process does not have it.
func (st *shardTable) get(n int) *shard {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.shards[n]
}

// own returns the open shards of this process.
func (st *shardTable) own() []*shard {
	st.mu.Lock()
	defer st.mu.Unlock()
	return slices.Collect(maps.Values(st.shards))
}

// setTrouble notes why a shard can't be opened or has failed, and logs a new error.
func (st *shardTable) setTrouble(n int, err error) {
	text := st.cfg.Redact(err.Error())
	st.mu.Lock()
	defer st.mu.Unlock()
	t, known := st.wrong[n]
	if !known {
		t = Trouble{What: fmt.Sprintf("can't work on shard %d", n), Since: time.Now()}
	}
	if t.Error != text {
		st.cfg.Logger.Error("can't open or run a shard; trying again", "shard", n, "error", text)
	}
	t.Error = text
	st.wrong[n] = t
}

// anyTrouble returns the error of any shard that can't be opened or has failed; "" if there is
// none.
func (st *shardTable) anyTrouble() string {
	st.mu.Lock()
	defer st.mu.Unlock()
	for _, t := range st.wrong {
		return t.Error
	}
	return ""
}

// clearTrouble notes that a shard is open, or is not assigned to this process any more.
func (st *shardTable) clearTrouble(n int) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if _, wrong := st.wrong[n]; wrong {
		st.cfg.Logger.Info("the shard works again, or another process has it", "shard", n)
	}
	delete(st.wrong, n)
}

// troubles returns the troubles of shards that are not open.
func (st *shardTable) troubles() (list []Trouble) {
	st.mu.Lock()
	defer st.mu.Unlock()
	list = slices.AppendSeq(list, maps.Values(st.wrong))
	for _, sh := range st.opening {
		list = append(list, ofShard(sh.number, sh.health.list())...)
	}
	return list
}
