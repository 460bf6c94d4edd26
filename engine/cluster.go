package engine

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/engine/move"
)

// cluster keeps the shards that fall to this process.
type cluster struct {
	e   *Engine
	log journal.Cluster
	shardTable
	calls     remoteCalls
	placement placement
	follower  eventFollower
	left      chan *shardKeeper // keepers that have given up their shard

	stop  context.Context // until the engine is closed
	halt  context.CancelFunc
	hurry context.Context // until there is no time left for an orderly end
	rush  context.CancelFunc
}

// join makes the process a member of the cluster.
func join(ctx context.Context, e *Engine, log journal.Cluster) (*cluster, error) {
	cl := &cluster{e: e, log: log, left: make(chan *shardKeeper)}
	cl.stop, cl.halt = context.WithCancel(context.Background())
	cl.hurry, cl.rush = context.WithCancel(context.Background())
	cl.shardTable.init(&e.cfg)
	cl.calls = remoteCalls{
		log: log, shards: &cl.shardTable, stop: cl.stop, working: make(chan struct{}, e.cfg.maxCalls), waiting: make(chan struct{}, maxWaits),
	}
	cl.placement = placement{log: log, calls: &cl.calls, cfg: &e.cfg, gathered: map[string]bool{}, loose: map[string]Trouble{}}
	cl.follower.init(&e.hub, log, cl.stop)
	if draw := e.cfg.Rand; draw != nil {
		var mu sync.Mutex
		e.cfg.Rand = func() uint64 {
			mu.Lock()
			defer mu.Unlock()
			return draw()
		}
	}
	err := checkUnmoved(ctx, log)
	if err == nil {
		err = log.Serve(cl.calls.answerWith(cl.follower.perform))
	}
	if err != nil {
		cl.halt()
		return nil, err
	}
	return cl, nil
}

// checkUnmoved fails if everything was moved out of the cluster. An error of reading does
// not matter here: no shard will be opened then.
func checkUnmoved(ctx context.Context, log journal.Cluster) error {
	ctx, cancel := context.WithTimeout(ctx, peekTime)
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

// peekTime is how long checkUnmoved may take.
const peekTime = 5 * time.Second

// ender is a log that may end by itself, and be of no use any more.
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
	keepers := map[int]*shardKeeper{}
	ended := cl.ended()
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

// troubles returns what keeps the cluster's work in this process from being done.
func (cl *cluster) troubles() []Trouble {
	list := append(cl.shardTable.troubles(), cl.placement.troubles()...)
	slices.SortFunc(list, func(a, b Trouble) int { return a.Since.Compare(b.Since) })
	return list
}

// ClusterInfo is who shares the work of a cluster.
type ClusterInfo struct {
	Self    string           `json:"self"` // id of the member that was asked
	Members []journal.Member `json:"members"`
	Shards  []ShardInfo      `json:"shards"`
	Silent  []int            `json:"silent,omitempty"` // shards whose owners did not answer
}

// ShardInfo is a part of the work and how it goes on.
type ShardInfo struct {
	journal.Shard
	Name     string    `json:"name,omitempty"` // of the owner
	Running  int       `json:"running"`        // attempts
	Waiting  int       `json:"timers"`         // waits and deadlines
	Behind   int       `json:"view_behind"`    // runs the view has yet to see
	Troubles []Trouble `json:"troubles,omitempty"`
}

// Cluster returns who shares the work. Without a cluster it reports false.
func (e *Engine) Cluster(ctx context.Context) (info ClusterInfo, ok bool, err error) {
	if e.cluster == nil {
		return info, false, nil
	}
	status, err := e.cluster.log.Status(ctx)
	if err != nil {
		return info, true, err
	}
	info.Self, info.Members = e.cluster.log.Member(), status.Members
	answers, silent, _ := e.gather(ctx, &call{Op: opStats}) // an error is that all are silent
	info.Silent = silent
	for _, s := range status.Shards {
		one := ShardInfo{Shard: s}
		if i := slices.IndexFunc(status.Members, func(m journal.Member) bool { return m.ID == s.Owner }); i >= 0 {
			one.Name = status.Members[i].Name
		}
		if s.Number < len(answers) && answers[s.Number] != nil {
			st := answers[s.Number].Stats
			one.Running, one.Waiting, one.Behind, one.Troubles = st.Running, st.Waiting, st.Behind, st.Troubles
		}
		info.Shards = append(info.Shards, one)
	}
	return info, true, nil
}
