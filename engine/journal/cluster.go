package journal

import (
	"context"
	"errors"
	"time"
)

// ErrNobody says that no process serves a shard, or that there is no such member:
// the request was not delivered. Another may take the shard over soon.
var ErrNobody = errors.New("no process has the shard")

// Cluster is a log of several shards that several processes share. Each process
// is a member; which shards it should own follows from who the members are. Its
// leases are [Shared]. Whether a shard is assigned to it, Lease does not ask.
type Cluster interface {
	Log

	// Shards returns how many shards there are. It never changes.
	Shards() int

	// Member returns the id of this process. It changes when the process was
	// taken for dead by the others, and has joined again.
	Member() string

	// Members returns the ids of all members, as far as this process knows, in
	// order.
	Members() []string

	// Assigned returns the shards that this process should own, in order, and a
	// channel that is closed when that has changed. All who know the same
	// members share the shards as [Assign] says. One that it owns and should
	// not any more it releases when it can; one that it should own and does not
	// it leases, when its owner has let go of it.
	Assigned() (shards []int, changed <-chan struct{})

	// Peek returns a reader of a shard that another member may own. The owner may cut
	// off or remove what it is about to read: that is an error, as it is for a lease.
	Peek(ctx context.Context, shard int) (Reader, error)

	// Call asks the process that serves the shard, and returns its answer.
	// With ErrNobody the request was not delivered; with any other error it may
	// have been, and may have been carried out. It does not wait for a process
	// that has died, or has let go of the shard, without an answer: that is an
	// error. A request has at most MaxEntry bytes; an answer may have more.
	Call(ctx context.Context, shard int, request []byte) (answer []byte, err error)

	// Ask asks a member. Its errors are those of Call.
	Ask(ctx context.Context, member string, request []byte) (answer []byte, err error)

	// Serve has requests to this member answered. It is called once.
	Serve(Answer) error

	// Settle agrees with all members, now and later, on the value of a name: the
	// first that was ever given. An empty value gives none: it asks for the one
	// there is, which may be none. Names are made of letters, digits, dots, dashes
	// and underscores.
	Settle(ctx context.Context, name, value string) (settled string, err error)

	// Status returns who the members are and what they own.
	Status(ctx context.Context) (Status, error)
}

// Answer answers a request, by calling reply once, when it can: also after it
// has returned. It must not block, nor keep the request. It may be called by
// several goroutines, and for a moment after the lease has ended.
type Answer func(request []byte, reply func(answer []byte))

// Shared is a lease of a cluster's log.
type Shared interface {
	Lease

	// Serve has requests to the shard answered by the owner, until the lease ends.
	Serve(Answer) error
}

// Status is who shares a log.
type Status struct {
	Members []Member `json:"members"` // by name
	Shards  []Shard  `json:"shards"`  // by number
}

// Member is a process that shares a log.
type Member struct {
	ID      string        `json:"id"`
	Name    string        `json:"name"` // as it calls itself: host and process
	Joined  time.Time     `json:"joined"`
	Silence time.Duration `json:"silence_ns"` // since it was last heard of
}

// Shard is a part of a log.
type Shard struct {
	Number int    `json:"number"`
	Owner  string `json:"owner,omitempty"` // id of the member; empty if there is none
	Epoch  uint64 `json:"epoch"`
	First  uint64 `json:"first"` // sequences of its entries
	Last   uint64 `json:"last"`
	Bytes  uint64 `json:"bytes"`
	Lag    uint64 `json:"lag"`             // entries that the slowest copy has yet to get
	Error  string `json:"error,omitempty"` // why its state is not known
}
