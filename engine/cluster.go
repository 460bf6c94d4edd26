package engine

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/engine/move"
)

// cluster runs the shards that are assigned to this process.
type cluster struct {
	e   *Engine
	log journal.Cluster
	shardTable
	calls     remoteCalls
	placement placement
	follower  eventFollower
	left      chan *shardKeeper // keepers that have released their shard

	stop  context.Context // ends when the engine is closed
	halt  context.CancelFunc
	hurry context.Context // ends when the context of Close ends: shards must stop at once
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
	cl.placement = placement{process: &e.process, log: log, calls: &cl.calls, cfg: &e.cfg, gathered: map[string]bool{}, loose: map[string]Trouble{}}
	e.childShard = cl.placement.childShard
	e.askShard = func(ctx context.Context, shard int, c *call) error {
		_, err := cl.calls.ask(ctx, shard, c)
		return err
	}
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

// ended returns a channel that is closed when the log has failed for good; nil if the log
// can't say so.
func (cl *cluster) ended() <-chan struct{} {
	if m, ok := cl.log.(ender); ok {
		return m.Ended()
	}
	return nil
}

// reason returns why the cluster has stopped: the error of the log, or ErrClosed.
func (cl *cluster) reason() error {
	if m, ok := cl.log.(ender); ok && m.Err() != nil {
		return m.Err()
	}
	return ErrClosed
}

// run runs the shards that are assigned to this process, until the engine is closed or
// its log has failed for good.
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

// close stops all shards and waits until the engine has stopped. When ctx ends, the
// shards stop at once.
func (cl *cluster) close(ctx context.Context) {
	cl.halt()
	stop := context.AfterFunc(ctx, cl.rush)
	<-cl.e.done
	stop()
}

// troubles returns the troubles with shards and limits in this process, the oldest first.
func (cl *cluster) troubles() []Trouble {
	list := append(cl.shardTable.troubles(), cl.placement.troubles()...)
	slices.SortFunc(list, func(a, b Trouble) int { return a.Since.Compare(b.Since) })
	return list
}

// ClusterInfo has the members of a cluster and its shards.
type ClusterInfo struct {
	Self    string           `json:"self"` // id of the member that was asked
	Members []journal.Member `json:"members"`
	Shards  []ShardInfo      `json:"shards"`
	Silent  []int            `json:"silent,omitempty"` // shards whose owners did not answer
}

// ShardInfo is a shard of a cluster, with its owner and its load.
type ShardInfo struct {
	journal.Shard
	Name     string    `json:"name,omitempty"` // name of the owner
	Running  int       `json:"running"`        // running attempts
	Waiting  int       `json:"timers"`         // pending waits and deadlines
	Behind   int       `json:"view_behind"`    // changed runs that are not in the view yet
	Troubles []Trouble `json:"troubles,omitempty"`
}

// performAsMember answers requests to the process as a whole, not to one of its shards.
func (cl *cluster) performAsMember(ctx context.Context, c *call) (a answer, err error) {
	if c.Op != opMember || cl.e.cfg.AnswerMember == nil {
		return cl.follower.perform(ctx, c)
	}
	a.Reply, err = cl.e.cfg.AnswerMember(ctx, c.Input)
	return a, err
}

// MemberReply is the answer of a member to [Engine.AskMembers].
type MemberReply struct {
	Member journal.Member
	Reply  json.RawMessage // what its Config.AnswerMember has returned
	Err    error           // the error of that function, or why the member did not answer
}

// AskMembers sends a request to all other members of the cluster at once, and returns their
// answers in the order of their names. It returns nothing if the engine is not part of a
// cluster. A member of an older release answers with an error.
func (e *Engine) AskMembers(ctx context.Context, request json.RawMessage) ([]MemberReply, error) {
	if e.cluster == nil {
		return nil, nil
	}
	log := e.cluster.log
	status, err := log.Status(ctx)
	if err != nil {
		return nil, err
	}
	var list []MemberReply
	for _, m := range status.Members {
		if m.ID != log.Member() {
			list = append(list, MemberReply{Member: m})
		}
	}
	var asked sync.WaitGroup
	for i := range list {
		asked.Go(func() {
			r := &list[i]
			a, err := askMember(ctx, log, r.Member.ID, &call{Op: opMember, Input: request})
			r.Reply, r.Err = a.Reply, err
		})
	}
	asked.Wait()
	return list, nil
}

// askMember sends a call to a member as a whole, not to one of its shards.
func askMember(ctx context.Context, log journal.Cluster, id string, c *call) (a answer, err error) {
	request, err := json.Marshal(c)
	if err != nil {
		return a, err
	}
	text, err := log.Ask(ctx, id, request)
	if err == nil {
		err = json.Unmarshal(text, &a)
	}
	if err == nil {
		err = a.Error.err()
	}
	return a, err
}

// Cluster returns the members and shards of the cluster. ok is false if the engine is not
// part of a cluster.
func (e *Engine) Cluster(ctx context.Context) (info ClusterInfo, ok bool, err error) {
	if e.cluster == nil {
		return info, false, nil
	}
	status, err := e.cluster.log.Status(ctx)
	if err != nil {
		return info, true, err
	}
	info.Self, info.Members = e.cluster.log.Member(), status.Members
	answers, silent, _ := e.gather(ctx, &call{Op: opStats}) // an error means that no shard has answered: silent says so too
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
