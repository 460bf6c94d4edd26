package cluster

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/tideover/tideover/engine/info"
	"github.com/tideover/tideover/engine/internal/shard"
	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/engine/move"
)

// cluster runs the shards that are assigned to this process.
type cluster struct {
	process *shard.Process
	log     journal.Cluster
	shardTable
	calls     remoteCalls
	placement placement
	follower  eventFollower
	left      chan *shardKeeper // keepers that have released their shard
	done      chan struct{}     // closed when run has returned

	stop  context.Context // ends when the engine is closed
	halt  context.CancelFunc
	hurry context.Context // ends when the context of Close ends: shards must stop at once
	rush  context.CancelFunc
}

// join makes the process a member of the cluster.
func join(ctx context.Context, p *shard.Process, log journal.Cluster) (*cluster, error) {
	cl := &cluster{process: p, log: log, left: make(chan *shardKeeper), done: make(chan struct{})}
	cl.stop, cl.halt = context.WithCancel(context.Background())
	cl.hurry, cl.rush = context.WithCancel(context.Background())
	cl.shardTable.init(p.Settings.Logger, p.Settings.Redact)
	cl.calls = remoteCalls{
		log: log, shards: &cl.shardTable, stop: cl.stop, working: make(chan struct{}, p.Settings.MaxCalls), waiting: make(chan struct{}, maxWaits),
	}
	cl.placement = placement{log: log, calls: &cl.calls, logger: p.Settings.Logger, gathered: map[string]bool{}, loose: map[string]info.Trouble{}}
	cl.follower.init(&p.Hub, log, cl.stop)
	if draw := p.Settings.Rand; draw != nil {
		var mu sync.Mutex
		p.Settings.Rand = func() uint64 {
			mu.Lock()
			defer mu.Unlock()
			return draw()
		}
	}
	err := checkUnmoved(ctx, log)
	if err == nil {
		err = log.Serve(cl.calls.answerWith(cl.performAsMember))
	}
	if err != nil {
		cl.halt()
		return nil, err
	}
	return cl, nil
}

// checkUnmoved returns a [move.MovedError] if the data was moved out of the cluster. It
// ignores read errors: opening a shard will report them.
func checkUnmoved(ctx context.Context, log journal.Cluster) error {
	ctx, cancel := context.WithTimeout(ctx, peekTime)
	defer cancel()
	for n := range log.Shards() {
		r, err := log.Peek(ctx, n)
		if errors.Is(err, journal.ErrDamaged) {
			continue // a lost shard has no mark of a move; the next one may have it
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

// peekTime is how long checkUnmoved may take.
const peekTime = 5 * time.Second

// ender is a log that may fail for good, after which it can't be used any more.
type ender interface {
	Ended() <-chan struct{} // returns a channel that is closed when the log has failed
	Err() error             // returns why
}

// reason returns why the cluster has stopped: the error of the log, or ErrClosed.
func (cl *cluster) reason() error {
	if m, ok := cl.log.(ender); ok && m.Err() != nil {
		return m.Err()
	}
	return shard.ErrClosed
}

// run runs the shards that are assigned to this process, until the engine is closed or
// its log has failed for good.
func (cl *cluster) run() error {
	defer close(cl.done)
	keepers := map[int]*shardKeeper{}
	var ended <-chan struct{} // closed when the log has failed for good; nil if the log can't say so
	if log, ok := cl.log.(ender); ok {
		ended = log.Ended()
	}
	for stop := cl.stop.Done(); ; {
		assigned, changed := cl.log.Assigned()
		if stop == nil {
			assigned = nil
		}
		for n, k := range keepers {
			if !slices.Contains(assigned, n) {
				k.cancel()
			}
		}
		for _, n := range assigned {
			if keepers[n] == nil {
				keepers[n] = cl.keep(n)
			}
		}
		if stop == nil && len(keepers) == 0 {
			cl.follower.followers.Wait()
			return cl.reason()
		}
		select {
		case <-changed:
		case k := <-cl.left: // the shard may be assigned to this process again
			delete(keepers, k.number)
		case <-stop:
			stop = nil
		case <-ended:
			ended = nil
			cl.halt()
		}
	}
}

// keep begins to run a shard in this process.
func (cl *cluster) keep(n int) *shardKeeper {
	k := &shardKeeper{
		process: cl.process, log: cl.log, table: &cl.shardTable, calls: &cl.calls, number: n, left: cl.left, stop: cl.stop, hurry: cl.hurry,
	}
	k.ctx, k.cancel = context.WithCancel(context.Background())
	go k.run()
	return k
}

// close stops all shards and waits until run has returned. When ctx ends, the
// shards stop at once.
func (cl *cluster) close(ctx context.Context) {
	cl.halt()
	stop := context.AfterFunc(ctx, cl.rush)
	<-cl.done
	stop()
}

// troubles returns the troubles with shards and limits in this process, the oldest first.
func (cl *cluster) troubles() []info.Trouble {
	list := append(cl.shardTable.troubles(), cl.placement.troubles()...)
	slices.SortFunc(list, func(a, b info.Trouble) int { return a.Since.Compare(b.Since) })
	return list
}

// performAsMember answers requests to the process as a whole, not to one of its shards.
func (cl *cluster) performAsMember(ctx context.Context, c *shard.Call) (a shard.Answer, err error) {
	answer := cl.process.Settings.AnswerMember
	switch {
	case c.Op == shard.OpEvents:
		a.Happened = cl.process.Hub.RemoteEvents(ctx, c.After)
	case c.Op == shard.OpMember && answer != nil:
		a.Reply, err = answer(ctx, c.Input)
	default:
		err = shard.ErrCall
	}
	return a, err
}
