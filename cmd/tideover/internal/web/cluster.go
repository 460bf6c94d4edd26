package web

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/admin"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/internal/console/pages"
	"github.com/tideover/tideover/internal/textfmt"
)

// clusterBody is the content of the page with the members and shards of the cluster.
type clusterBody struct {
	Members  []memberRow
	Shards   []shardRow
	Troubles []engine.Trouble
	Said     string // a sentence with the numbers of shards and members
	Error    string // why the state is unknown or outdated
}

// memberRow is a member of the cluster in the list.
type memberRow struct {
	journal.Member
	Self   bool
	Owned  int
	Silent string // how long it has sent no heartbeat; "" if it has sent one lately
}

// shardRow is a shard in the list.
type shardRow struct {
	engine.ShardInfo
	Entries uint64
	Size    string
	Trouble string
	Mute    bool // the owner of the shard did not answer
	Unseen  bool // the state of the shard's log is unknown
}

const (
	// clusterAge is how old the cached state of a cluster may be. To get a new one, every member of
	// the cluster has to answer.
	clusterAge = 2 * time.Second

	// clusterTimeout is how long a page waits for members that do not answer.
	clusterTimeout = 3 * time.Second
)

// clusterCache caches the state of the cluster for all open pages.
type clusterCache struct {
	mu   sync.Mutex
	at   time.Time
	last admin.Cluster
	err  error
}

// get returns the last known state of the cluster. The error says why it is outdated or unknown.
func (g *clusterCache) get(ctx context.Context, s *admin.System) (admin.Cluster, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if time.Since(g.at) < clusterAge {
		return g.last, g.err
	}
	soon, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	c, err := s.Cluster(soon)
	if ctx.Err() != nil {
		return g.last, ctx.Err() // the client has disconnected
	}
	if g.at, g.err = time.Now(), err; err == nil {
		g.last = c
	}
	return g.last, g.err
}

// clusterPage shows the members and shards of the cluster.
type clusterPage struct {
	server
	cluster *clusterCache
}

func (h clusterPage) load(ctx context.Context, now time.Time) (pages.Part, error) {
	p := pages.Part{Template: "cluster", Polled: true, Data: pages.Page{Title: "Cluster", Place: "cluster", Live: "/live/cluster", Now: now}}
	c, err := h.cluster.get(ctx, h.control.System)
	if ctx.Err() != nil || errors.Is(err, engine.ErrClosed) {
		return p, err
	}
	b := clusterBody{Said: fmt.Sprintf("%d of %d shards have an owner; processes: %d", owned(&c), len(c.Shards), len(c.Members))}
	if err != nil {
		b.Error = h.redact(err.Error())
	}
	for i := range c.Members {
		b.Members = append(b.Members, h.newMemberRow(&c, &c.Members[i]))
	}
	for i := range c.Shards {
		b.Shards = append(b.Shards, h.newShardRow(&c, c.Shards[i]))
	}
	for _, t := range c.Troubles {
		t.Error = h.redact(t.Error)
		b.Troubles = append(b.Troubles, t)
	}
	p.Data.Dead, p.Data.Body = h.DeadCount(ctx), b
	return p, nil
}

// owned counts the shards that have an owner.
func owned(c *admin.Cluster) (n int) {
	for i := range c.Shards {
		if c.Shards[i].Owner != "" {
			n++
		}
	}
	return n
}

// worthSaying is how long a member must be silent before the page says so.
const worthSaying = 3 * time.Second

func (h clusterPage) newMemberRow(c *admin.Cluster, m *journal.Member) memberRow {
	r := memberRow{Member: *m, Self: m.ID == c.Self, Owned: c.Owned(m)}
	r.Name = h.redact(m.Name)
	if m.Silence > worthSaying {
		r.Silent = m.Silence.Round(time.Second).String()
	}
	return r
}

func (h clusterPage) newShardRow(c *admin.Cluster, s engine.ShardInfo) shardRow {
	r := shardRow{ShardInfo: s, Size: textfmt.RoundedSize(s.Bytes), Mute: slices.Contains(c.Silent, s.Number), Unseen: s.Error != ""}
	r.Name = h.redact(cmp.Or(s.Name, s.Owner))
	if s.Last >= s.First {
		r.Entries = s.Last - s.First + 1
	}
	switch {
	case s.Error != "":
		r.Trouble = h.redact(s.Error)
	case r.Mute:
		r.Trouble = "did not answer; its runs are missing in lists"
	case len(s.Troubles) > 0:
		r.Trouble = s.Troubles[0].What + ": " + h.redact(s.Troubles[0].Error)
	}
	return r
}
