package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/engine/move"
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
	opening   map[int]*shard     // that are about to
	wrong     map[int]Trouble    // those that don't
	settled   map[string]bool    // whether the runs of a workflow are gathered
	loose     map[string]Trouble // workflows whose limits do not hold for all
	watch     func()             // has the events of others followed
	watched   chan struct{}      // somebody has
	followers sync.WaitGroup
}

// join makes the process one of the cluster.
func join(ctx context.Context, e *Engine, log journal.Cluster) (*cluster, error) {
	cl := &cluster{
		e: e, log: log, calls: make(chan struct{}, e.cfg.maxCalls), waits: make(chan struct{}, maxWaits), left: make(chan *keeper),
		shards: map[int]*shard{}, opening: map[int]*shard{}, wrong: map[int]Trouble{}, settled: map[string]bool{}, loose: map[string]Trouble{},
		watched: make(chan struct{}),
	}
	cl.stop, cl.halt = context.WithCancel(context.Background())
	cl.hurry, cl.rush = context.WithCancel(context.Background())
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
	if err := leftAlone(ctx, log); err != nil {
		cl.halt()
		return nil, err
	}
	if err := log.Serve(cl.answerMember()); err != nil {
		cl.halt()
		return nil, err
	}
	return cl, nil
}

// leftAlone fails if everything was moved out of the cluster. Whether that can be
// seen at the moment does not matter: no shard will be opened.
func leftAlone(ctx context.Context, log journal.Cluster) error {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	for n := range log.Shards() {
		r, err := log.Peek(ctx, n)
		if errors.Is(err, journal.ErrDamaged) {
			continue // it is lost, and was left out of a move
		}
		if err == nil {
			err = move.Check(ctx, r)
		}
		if moved, ok := errors.AsType[*move.MovedError](err); ok {
			return moved
		}
		return nil
	}
	return nil
}

// lookTime is how long it is tried to look.
const lookTime = 5 * time.Second

// ender is a log that may be of no use any more, whatever is waited for.
type ender interface {
	Ended() <-chan struct{} // closed when it is
	Err() error             // why
}

// ended returns a channel that is closed when the log is of no use any more.
func (cl *cluster) ended() <-chan struct{} {
	if m, ok := cl.log.(ender); ok {
		return m.Ended()
	}
	return nil
}

// reason returns why nothing is kept any more.
func (cl *cluster) reason() error {
	if m, ok := cl.log.(ender); ok && m.Err() != nil {
		return m.Err()
	}
	return ErrClosed
}

// run keeps what is assigned to this process until the engine is closed, or its log
// is of no use any more.
func (cl *cluster) run() error {
	keepers := map[int]*keeper{}
	ended := cl.ended()
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
			return cl.reason()
		}
		select {
		case <-changed:
		case k := <-cl.left: // and may be wanted again
			delete(keepers, k.number)
		case <-stop:
			stop = nil
		case <-ended:
			ended = nil
			cl.halt()
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

// opens notes a shard that is being opened, and returns what ends that.
func (cl *cluster) opens(sh *shard) (done func()) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	cl.opening[sh.number] = sh
	return func() {
		cl.mu.Lock()
		defer cl.mu.Unlock()
		delete(cl.opening, sh.number)
	}
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
	cl.mu.Lock()
	defer cl.mu.Unlock()
	t, known := cl.wrong[n]
	if !known {
		t = Trouble{What: fmt.Sprintf("can't work on shard %d", n), Since: time.Now()}
	}
	if t.Error != text {
		cl.e.cfg.Logger.Error("a shard can't be worked on; it is tried again", "shard", n, "error", text)
	}
	t.Error = text
	cl.wrong[n] = t
}

// wrongs returns why a shard can't be worked on, if there is one.
func (cl *cluster) wrongs() string {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	for _, t := range cl.wrong {
		return t.Error
	}
	return ""
}

// right notes that a shard works, or is somebody else's.
func (cl *cluster) right(n int) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if _, wrong := cl.wrong[n]; wrong {
		cl.e.cfg.Logger.Info("the trouble with a shard is over", "shard", n)
	}
	delete(cl.wrong, n)
}

func (cl *cluster) troubles() (list []Trouble) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	list = slices.AppendSeq(list, maps.Values(cl.wrong))
	list = slices.AppendSeq(list, maps.Values(cl.loose))
	for _, sh := range cl.opening {
		list = append(list, sh.named()...)
	}
	slices.SortFunc(list, func(a, b Trouble) int { return a.Since.Compare(b.Since) })
	return list
}
