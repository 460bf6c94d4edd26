package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/retry"
)

const (
	maxCalls = 4096             // of other processes, that are worked on at once
	maxWaits = 16384            // of those that only wait
	callTime = 30 * time.Second // that one may take here

	wellFor    = time.Minute            // after which a shard that ends is begun again at once
	lockedWait = 200 * time.Millisecond // before a shard is asked for again
)

var (
	// openPolicy is how a shard is waited for: that its owner lets go of it, or that
	// its log can be read.
	openPolicy = retry.Must("decorrelated(100ms..5s) attempts=unlimited")

	// keepPolicy is how a shard is begun again that ended soon after it began: each
	// time its attempts are lost.
	keepPolicy = retry.Must("exponential(1s..30s) jitter=equal attempts=unlimited").Policy()

	// askPolicy is how the owner of a shard is waited for.
	askPolicy = retry.Must("exponential(20ms..1s) jitter=full attempts=unlimited total-timeout=1m")
)

// cluster keeps the shards that fall to this process.
type cluster struct {
	e     *Engine
	log   journal.Cluster
	aim   aim
	calls chan struct{} // places for calls of others
	waits chan struct{} // and for those that wait
	left  chan *keeper  // those that have let go of their shard

	stop      context.Context // until the engine is closed
	halt      context.CancelFunc
	hurry     context.Context // until there is no time left for an orderly end
	rush      context.CancelFunc
	mu        sync.Mutex
	shards    map[int]*shard     // that work
	wrong     map[int]Trouble    // those that don't
	settled   map[string]bool    // whether the runs of a workflow are gathered
	loose     map[string]Trouble // workflows whose limits do not hold for all
	watch     func()             // has the events of others followed
	watched   chan struct{}      // somebody has
	followers sync.WaitGroup
}

// join makes the process one of the cluster.
func join(e *Engine, log journal.Cluster) (*cluster, error) {
	cl := &cluster{
		e: e, log: log, calls: make(chan struct{}, maxCalls), waits: make(chan struct{}, maxWaits), left: make(chan *keeper), shards: map[int]*shard{}, wrong: map[int]Trouble{},
		settled: map[string]bool{}, loose: map[string]Trouble{},
	}
	cl.stop, cl.halt = context.WithCancel(context.Background())
	cl.hurry, cl.rush = context.WithCancel(context.Background())
	cl.watched = make(chan struct{})
	cl.watch = sync.OnceFunc(func() { close(cl.watched) })
	cl.followers.Go(cl.follow)
	if draw := e.cfg.Rand; draw != nil {
		var mu sync.Mutex
		e.cfg.Rand = func() uint64 {
			mu.Lock()
			defer mu.Unlock()
			return draw()
		}
	}
	if err := log.Serve(cl.answerMember()); err != nil {
		cl.halt()
		return nil, err
	}
	return cl, nil
}

// run keeps what is assigned to this process until the engine is closed.
func (cl *cluster) run() error {
	keepers := map[int]*keeper{}
	for stop := cl.stop.Done(); ; {
		assigned, changed := cl.log.Assigned()
		if stop == nil {
			assigned = nil
		}
		for n, k := range keepers {
			if !slices.Contains(assigned, n) {
				k.leave()
			}
		}
		for _, n := range assigned {
			if keepers[n] == nil {
				keepers[n] = cl.keep(n)
			}
		}
		if stop == nil && len(keepers) == 0 {
			cl.followers.Wait()
			return ErrClosed
		}
		select {
		case <-changed:
		case k := <-cl.left: // and may be wanted again
			delete(keepers, k.number)
		case <-stop:
			stop = nil
		}
	}
}

// close ends all shards.
func (cl *cluster) close(ctx context.Context) {
	cl.halt()
	stop := context.AfterFunc(ctx, cl.rush)
	<-cl.e.done
	stop()
}

// keeper keeps a shard in this process.
type keeper struct {
	cl     *cluster
	number int
	ctx    context.Context //nolint:containedctx // until the shard is to be left
	leave  context.CancelFunc
}

func (cl *cluster) keep(n int) *keeper {
	k := &keeper{cl: cl, number: n}
	k.ctx, k.leave = context.WithCancel(context.Background())
	go k.run()
	return k
}

func (k *keeper) run() {
	defer func() { k.cl.left <- k }()
	defer k.leave()
	pace := pace{policy: keepPolicy}
	for {
		sh, err := retry.Value(k.ctx, openPolicy, k.open)
		if err != nil {
			k.cl.right(k.number)
			return // it is to be left
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
		k.settle(sh)
		if !errors.Is(sh.err, ErrClosed) && !errors.Is(sh.err, journal.ErrStale) {
			k.cl.trouble(k.number, sh.err)
		}
		if time.Since(begin) > wellFor {
			pace.reset()
		}
		select {
		case <-time.After(pace.next(sh.err, rand.Uint64())):
		case <-k.ctx.Done():
		}
	}
}

// open opens the shard, once nobody else has it.
func (k *keeper) open(ctx context.Context) (*shard, error) {
	e := k.cl.e
	dir := ""
	if e.cfg.Dir != "" {
		dir = filepath.Join(e.cfg.Dir, fmt.Sprintf("shard-%03d", k.number))
		if err := os.MkdirAll(dir, 0o700); err != nil {
			k.cl.trouble(k.number, err)
			return nil, err
		}
	}
	sh := newShard(&e.process, k.number, k.cl.log.Shards(), dir)
	err := sh.open(ctx, k.cl.log)
	if err == nil {
		err = sh.lease.(journal.Shared).Serve(k.cl.answer(sh))
		if err != nil {
			sh.shut()
		}
	}
	switch {
	case err == nil:
		k.cl.right(k.number)
		return sh, nil
	case errors.Is(err, journal.ErrLocked), errors.Is(err, journal.ErrStale):
		return nil, retry.After(err, lockedWait) // whoever has it is about to let go of it
	case ctx.Err() == nil:
		k.cl.trouble(k.number, err)
	}
	return nil, err
}

// close lets go of the shard: in order, for as long as there is.
func (k *keeper) close(sh *shard) {
	ctx, cancel := context.WithCancel(k.cl.hurry)
	defer cancel()
	if k.cl.stop.Err() == nil {
		ctx, cancel = context.WithTimeout(ctx, k.cl.e.cfg.Grace)
		defer cancel()
	}
	sh.close(ctx)
}

func (cl *cluster) put(sh *shard) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	cl.shards[sh.number] = sh
}

func (cl *cluster) remove(sh *shard) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	delete(cl.shards, sh.number)
}

// get returns a shard of this process.
func (cl *cluster) get(n int) *shard {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	return cl.shards[n]
}

// own returns the shards of this process.
func (cl *cluster) own() (list []*shard) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	for _, sh := range cl.shards {
		list = append(list, sh)
	}
	return list
}

// trouble notes why a shard does not work.
func (cl *cluster) trouble(n int, err error) {
	text := cl.e.cfg.Redact(err.Error())
	cl.e.cfg.Logger.Error("a shard can't be worked on; it is tried again", "shard", n, "error", text)
	cl.mu.Lock()
	defer cl.mu.Unlock()
	t, known := cl.wrong[n]
	if !known {
		t = Trouble{What: fmt.Sprintf("can't work on shard %d", n), Since: time.Now()}
	}
	t.Error = text
	cl.wrong[n] = t
}

// right notes that a shard works, or is somebody else's.
func (cl *cluster) right(n int) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	delete(cl.wrong, n)
}

func (cl *cluster) troubles() (list []Trouble) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	list = slices.AppendSeq(list, maps.Values(cl.wrong))
	list = slices.AppendSeq(list, maps.Values(cl.loose))
	slices.SortFunc(list, func(a, b Trouble) int { return a.Since.Compare(b.Since) })
	return list
}

// place returns the shard of a new run, and its id.
func (cl *cluster) place(ctx context.Context, w *Workflow, key string) (shard int, id machine.ID, err error) {
	gathered, err := cl.gathered(ctx, w)
	if err != nil {
		return 0, id, err
	}
	n := cl.log.Shards()
	slot := machine.KeySlot(key)
	switch {
	case gathered:
		shard = machine.WorkflowSlot(w.Name()) % n
	case key != "":
		shard = slot % n
	default:
		shard = cl.aim.next(n)
	}
	if key == "" || slot%n != shard {
		slot = rand.IntN(machine.Slots/n)*n + shard
	}
	return shard, machine.NewID(time.Now().UnixNano(), rand.Uint64(), rand.Uint64()).In(slot), nil
}

// gathered reports whether a workflow has one shard for all its runs. One with a
// limit has, because only an owner can count. That is settled when it is first
// started, or a key that was used before might be looked for in another shard.
func (cl *cluster) gathered(ctx context.Context, w *Workflow) (bool, error) {
	name := w.Name()
	cl.mu.Lock()
	gathered, known := cl.settled[name]
	cl.mu.Unlock()
	if !known {
		var err error
		if gathered, err = settlePlace(ctx, cl.log, name, w.limited()); err != nil {
			return false, err
		}
	}
	cl.mu.Lock()
	defer cl.mu.Unlock()
	cl.settled[name] = gathered
	if !w.limited() {
		delete(cl.loose, name)
	} else if _, told := cl.loose[name]; !gathered && !told {
		cl.loose[name] = Trouble{
			What: "the limit of workflow " + name + " holds in each shard apart", Since: time.Now(),
			Error: "it had none when it was first started, and its runs are spread; give the workflow another name to have the limit for all of them",
		}
		cl.e.cfg.Logger.Warn(cl.loose[name].What, "because", cl.loose[name].Error)
	}
	return gathered, nil
}

// settlePlace settles whether the runs of a workflow are gathered in one shard.
func settlePlace(ctx context.Context, log journal.Cluster, workflow string, gathered bool) (bool, error) {
	wish := map[bool]string{true: "gathered", false: "spread"}[gathered]
	settled, err := retry.Value(ctx, askPolicy, func(ctx context.Context) (string, error) {
		return log.Settle(ctx, "workflow."+workflow, wish)
	})
	if err != nil {
		return false, fmt.Errorf("where the runs of %s are: %w", workflow, err)
	}
	return settled == "gathered", nil
}

// aim is where runs without a key are started. Those that come together go to the
// same shard, whose owner stores them in one entry; over time all get as many.
type aim struct {
	mu    sync.Mutex
	shard int
	until time.Time
	left  int
}

const (
	aimFor  = 50 * time.Millisecond
	aimRuns = 1000
)

func (a *aim) next(shards int) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	if now := time.Now(); a.left == 0 || now.After(a.until) {
		a.shard, a.until, a.left = rand.IntN(shards), now.Add(aimFor), aimRuns
	}
	a.left--
	return a.shard
}

// unreached is an error of a shard that nobody could be asked for.
type unreached struct {
	shard int
	err   error
}

func (u *unreached) Error() string { return fmt.Sprintf("shard %d: %v", u.shard, u.err) }
func (u *unreached) Unwrap() error { return u.err }

func isUnreached(err error) bool {
	_, ok := errors.AsType[*unreached](err)
	return ok
}

// ask asks the owner of a shard, wherever it is. As long as there is none it is
// waited for.
func (cl *cluster) ask(ctx context.Context, shard int, c *call) (answer, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(cl.stop, cancel)()
	var last, refused error // why nobody was asked, and what was answered
	a, err := retry.Value(ctx, askPolicy, func(ctx context.Context) (answer, error) {
		a, err := cl.askOnce(ctx, shard, c)
		_, gone := errors.AsType[untaken](err)
		switch {
		case err == nil:
			return a, nil
		case gone, errors.Is(err, journal.ErrNobody), errors.Is(err, errBusy):
			last = err
			return a, err
		case isUnreached(err) && c.repeatable():
			last = err
			return a, err
		default:
			refused = err
			return a, retry.Permanent(err)
		}
	})
	switch {
	case err == nil:
		return a, nil
	case cl.stop.Err() != nil && (refused == nil || errors.Is(refused, context.Canceled) || isUnreached(refused)):
		return a, ErrClosed
	case refused != nil:
		return a, refused
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	}
	if last == nil {
		return a, &unreached{shard, err}
	}
	return a, &unreached{shard, fmt.Errorf("%w: %w", err, last)}
}

// repeatable reports whether a call may be made again when it is not known
// whether it was carried out.
func (c *call) repeatable() bool {
	switch c.Op {
	case opStart:
		c.Start.Again = true
		return true
	case opGet, opHas, opWait, opList, opGroups, opFind, opStats, opSchedule, opSchedules:
		return true
	default:
		return false
	}
}

func (cl *cluster) askOnce(ctx context.Context, shard int, c *call) (a answer, err error) {
	if sh := cl.get(shard); sh != nil {
		a, err = sh.called(ctx, c)
		return a, cl.reached(shard, err)
	}
	request, err := encode(c)
	if err != nil {
		return a, err
	}
	if len(request) > journal.MaxEntry {
		return a, fmt.Errorf("%s: %w: %d bytes, at most %d can be sent to another process", c.Op, ErrTooLarge, len(request), journal.MaxEntry)
	}
	text, err := cl.log.Call(ctx, shard, request)
	if err != nil {
		if !errors.Is(err, journal.ErrNobody) {
			err = &unreached{shard, fmt.Errorf("%w; it may have been done", err)}
		}
		return a, err
	}
	if err := json.Unmarshal(text, &a); err != nil {
		return a, fmt.Errorf("answer of shard %d: %w", shard, err)
	}
	return a, cl.reached(shard, a.Error.err())
}

// reached returns the error of a shard that was asked; if it has ended meanwhile,
// it is not known what became of it.
func (cl *cluster) reached(shard int, err error) error {
	if _, gone := errors.AsType[untaken](err); !gone && errors.Is(err, ErrClosed) {
		return &unreached{shard, err}
	}
	return err
}

// answer answers what other processes ask a shard.
func (cl *cluster) answer(sh *shard) journal.Answer { return cl.answers(sh.called) }

// answers answers calls, so many at once.
func (cl *cluster) answers(perform func(context.Context, *call) (answer, error)) journal.Answer {
	return func(request []byte, reply func([]byte)) {
		c := new(call)
		if err := json.Unmarshal(request, c); err != nil {
			reply(sealed(answer{}, fmt.Errorf("%w: %w", errCall, err)))
			return
		}
		places := cl.calls
		if c.Op == opWait || c.Op == opEvents {
			places = cl.waits
		}
		select {
		case places <- struct{}{}:
		default:
			reply(sealed(answer{}, errBusy))
			return
		}
		go func() {
			defer func() { <-places }()
			ctx, cancel := context.WithTimeout(context.Background(), callTime)
			defer cancel()
			reply(sealed(guarded(ctx, c, perform)))
		}()
	}
}

// guarded is perform for requests that no version of this program sends.
func guarded(ctx context.Context, c *call, perform func(context.Context, *call) (answer, error)) (a answer, err error) {
	defer func() {
		if p := recover(); p != nil {
			a, err = answer{}, fmt.Errorf("%w: %v", errCall, p)
		}
	}()
	return perform(ctx, c)
}

// called does what another process asks.
func (sh *shard) called(ctx context.Context, c *call) (answer, error) {
	if c.Op != opWait {
		return sh.perform(ctx, c)
	}
	ctx, cancel := context.WithTimeout(ctx, longestWait)
	defer cancel()
	a, err := sh.perform(ctx, c)
	if errors.Is(err, context.DeadlineExceeded) {
		err = nil
	}
	return a, err
}

// sealed returns an answer as it is sent.
func sealed(a answer, err error) []byte {
	a.Error = faultOf(err)
	text, err := encode(a)
	if err != nil {
		text, _ = encode(answer{Error: faultOf(err)}) // of strings
	}
	return text
}

// encode returns JSON, in which the JSON of others is as it was.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return b.Bytes(), err
}

// settle waits until the handlers of a shard that was lost have ended, so that
// they are not called again beside themselves. One that does not end is not
// waited for longer than its grace.
func (k *keeper) settle(sh *shard) {
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
