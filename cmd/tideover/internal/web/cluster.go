package web

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/api"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/internal/textfmt"
)

// clusterBody is who shares the work.
type clusterBody struct {
	Members  []memberRow
	Shards   []shardRow
	Troubles []engine.Trouble
	Said     string // how many there are
	Error    string // why it can't be seen at the moment
}

// memberRow is a process in the list.
type memberRow struct {
	journal.Member
	Self   bool
	Owned  int
	Silent string // for how long; "" if it was heard of lately
}

// shardRow is a part of the work in the list.
type shardRow struct {
	engine.ShardInfo
	Entries uint64
	Size    string
	Trouble string
	Mute    bool // nobody said how it goes on
	Unseen  bool // the servers did not say how its log is
}

const (
	// glimpseTime is how old what is shown of a cluster may be: looking costs every
	// process something.
	glimpseTime = 2 * time.Second

	// glimpsePatience is how long a page waits for those who do not answer.
	glimpsePatience = 3 * time.Second
)

// glimpse is what was last seen of the cluster, for all pages.
type glimpse struct {
	mu   sync.Mutex
	at   time.Time
	seen api.Cluster
	err  error
}

// look returns how the cluster is, and why that is not known, if it is not.
func (g *glimpse) look(ctx context.Context, e *engine.Engine) (api.Cluster, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if time.Since(g.at) < glimpseTime {
		return g.seen, g.err
	}
	soon, cancel := context.WithTimeout(ctx, glimpsePatience)
	defer cancel()
	c, err := api.LookAtCluster(soon, e)
	if ctx.Err() != nil {
		return g.seen, ctx.Err() // who wanted to know is gone
	}
	if g.at, g.err = time.Now(), err; err == nil {
		g.seen = c
	}
	return g.seen, g.err
}

func (h *handler) cluster(w http.ResponseWriter, r *http.Request) {
	p, err := h.lookAtCluster(r.Context(), time.Now())
	if err != nil {
		h.fail(w, r, statusOf(err), err)
		return
	}
	h.show(w, r, http.StatusOK, "cluster", p.data)
}

func (h *handler) liveCluster(w http.ResponseWriter, r *http.Request) {
	h.stream(w, r, "", h.lookAtCluster)
}

func (h *handler) lookAtCluster(ctx context.Context, now time.Time) (part, error) {
	p := part{template: "cluster-live", polled: true, data: page{Title: "Cluster", Place: "cluster", Live: "/live/cluster", Now: now}}
	c, err := h.glimpse.look(ctx, h.Engine)
	if ctx.Err() != nil || errors.Is(err, engine.ErrClosed) {
		return p, err
	}
	b := clusterBody{Said: fmt.Sprintf("%d of %d shards have an owner; processes: %d", owned(&c), len(c.Shards), len(c.Members))}
	if err != nil {
		b.Error = h.Redact(err.Error())
	}
	for i := range c.Members {
		b.Members = append(b.Members, h.newMemberRow(&c, &c.Members[i]))
	}
	for i := range c.Shards {
		b.Shards = append(b.Shards, h.newShardRow(&c, c.Shards[i]))
	}
	for _, t := range c.Troubles {
		t.Error = h.Redact(t.Error)
		b.Troubles = append(b.Troubles, t)
	}
	p.data.Dead, p.data.Body = h.deadCount(ctx), b
	return p, nil
}

// owned counts the shards that somebody works on.
func owned(c *api.Cluster) (n int) {
	for i := range c.Shards {
		if c.Shards[i].Owner != "" {
			n++
		}
	}
	return n
}

// worthSaying is after how long it is told that a process was not heard of.
const worthSaying = 3 * time.Second

func (h *handler) newMemberRow(c *api.Cluster, m *journal.Member) memberRow {
	r := memberRow{Member: *m, Self: m.ID == c.Self, Owned: c.Owned(m)}
	r.Name = h.Redact(m.Name)
	if m.Silence > worthSaying {
		r.Silent = m.Silence.Round(time.Second).String()
	}
	return r
}

func (h *handler) newShardRow(c *api.Cluster, s engine.ShardInfo) shardRow {
	r := shardRow{ShardInfo: s, Size: textfmt.RoundedSize(s.Bytes), Mute: slices.Contains(c.Silent, s.Number), Unseen: s.Error != ""}
	r.Name = h.Redact(cmp.Or(s.Name, s.Owner))
	if s.Last >= s.First {
		r.Entries = s.Last - s.First + 1
	}
	switch {
	case s.Error != "":
		r.Trouble = h.Redact(s.Error)
	case r.Mute:
		r.Trouble = "did not answer; its runs are missing in lists"
	case len(s.Troubles) > 0:
		r.Trouble = s.Troubles[0].What + ": " + h.Redact(s.Troubles[0].Error)
	}
	return r
}

// soonTime is how long a page waits for those of a cluster that do not answer,
// before it is shown without.
const soonTime = 2 * time.Second

// soon returns the context in which others of a cluster are asked.
func (h *handler) soon(ctx context.Context) (context.Context, context.CancelFunc) {
	if !h.Clustered {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, soonTime)
}

// countTime is how long a page that is not about runs waits for their number.
const countTime = time.Second

// deadCount returns how many dead letters there are, for the navigation of pages
// that work also when nobody can be asked about runs.
func (h *handler) deadCount(ctx context.Context) int {
	ctx, cancel := context.WithTimeout(ctx, countTime)
	defer cancel()
	t, err := h.totals(ctx, false)
	if err != nil {
		return 0
	}
	return t.States["dead"]
}
