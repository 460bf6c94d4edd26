package journal

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"
)

// ErrNobody means that a request was not delivered: no process serves the shard, or
// there is no such member. Another process may take the shard over soon.
var ErrNobody = errors.New("no process has the shard")

// Cluster is a log of several shards that several processes share. Each process
// is a member. The set of members determines which shards each of them should own.
// Its leases are [Shared]. Lease also leases shards that are not assigned to the
// process.
type Cluster interface {
	Log

	// Shards returns how many shards there are. It never changes.
	Shards() int

	// Member returns the id of this process. The id changes when the others have
	// expelled the process as dead and it has joined again.
	Member() string

	// Members returns the ids of all members, as far as this process knows, in
	// order.
	Members() []string

	// Behind returns the members that can't read the format, as far as this process
	// knows, sorted by name. It does not wait.
	Behind(format int) []Member

	// Assigned returns the shards that this process should own, in order, and a
	// channel that is closed when they change. [Assign] computes them from the
	// members. The caller should release shards that it owns and that are not
	// assigned to it any more, and lease assigned shards as soon as their owner
	// has released them.
	Assigned() (shards []int, changed <-chan struct{})

	// Peek returns a reader of a shard that another member may own. If the owner
	// truncates the log or deletes a blob during a read, the read fails, as it does
	// for a lease.
	Peek(ctx context.Context, shard int) (Reader, error)

	// Call sends a request to the process that serves the shard, and returns its
	// answer. ErrNobody means that the request was not delivered. After any other
	// error it may have been delivered and carried out. Call fails when the process
	// dies or releases the shard without an answer. A request has at most MaxEntry
	// bytes; an answer may have more.
	Call(ctx context.Context, shard int, request []byte) (answer []byte, err error)

	// Ask sends a request to a member, and returns its answer. Its errors are those
	// of Call.
	Ask(ctx context.Context, member string, request []byte) (answer []byte, err error)

	// Serve makes the function receive the requests to this member. It can be called
	// once.
	Serve(Answer) error

	// Settle stores a value under a name, unless the name has a value, and returns the
	// value of the name. The first value that any member stores stays for ever. An
	// empty value stores nothing: Settle then returns the stored value, or "" if there
	// is none. Names are made of letters, digits, dots, dashes and underscores.
	Settle(ctx context.Context, name, value string) (settled string, err error)

	// Status returns the members and the shards, with their owners.
	Status(ctx context.Context) (Status, error)
}

// Answer answers a request by calling reply once. It may do so after it has
// returned. It must not block, and must not keep the request after it has returned.
// It may be called by several goroutines at once, and for a moment after the lease
// has ended.
type Answer func(request []byte, reply func(answer []byte))

// Shared is a lease of a cluster's log.
type Shared interface {
	Lease

	// Serve makes the function receive the requests to the shard, until the lease
	// ends.
	Serve(Answer) error
}

// Clocked is implemented by a [Shared] lease whose backend compares the clocks of the members'
// machines. The wall clocks of two machines may differ; the times since boot show by how much.
type Clocked interface {
	// SinceBoot returns the time since the boot of this machine, and the id of that boot. It
	// returns 0 and "" if they are not known.
	SinceBoot() (time.Duration, string)

	// Ahead returns by how much the time since boot of this machine is ahead of that of the
	// machine with the id boot, according to the last heartbeat from there. The true difference
	// is less, by the time that the heartbeat was on its way. Ahead returns false if no
	// heartbeat has come from there. It may wait for one, for a few seconds.
	Ahead(ctx context.Context, boot string) (by time.Duration, ok bool)
}

// Status is the state of a [Cluster]: its members and its shards.
type Status struct {
	Members []Member `json:"members"` // sorted by name
	Shards  []Shard  `json:"shards"`  // sorted by number
}

// Member is a process that shares a log.
type Member struct {
	ID      string        `json:"id"`
	Name    string        `json:"name"` // the name that it has given itself, such as host and process id
	Joined  time.Time     `json:"joined"`
	Silence time.Duration `json:"silence_ns"` // time since its last heartbeat was seen
	Format  int           `json:"format"`     // the newest format that it can read: see [Format]
}

// SortMembers sorts members by name, and by id if names are the same.
func SortMembers(list []Member) {
	slices.SortFunc(list, func(a, b Member) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.ID, b.ID))
	})
}

// Shard is a part of a log.
type Shard struct {
	Number int    `json:"number"`
	Owner  string `json:"owner,omitempty"` // id of the member; empty if there is none
	Epoch  uint64 `json:"epoch"`
	First  uint64 `json:"first"` // sequences of its first and last entry
	Last   uint64 `json:"last"`
	Bytes  uint64 `json:"bytes"`
	Lag    uint64 `json:"lag"`             // how many entries the slowest replica lacks
	Error  string `json:"error,omitempty"` // why its state is not known
}
