package web

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/api"
	"github.com/tideover/tideover/engine"
)

// shownGroups is how many groups of dead letters are shown.
const shownGroups = 100

// deadBody is the dead letters.
type deadBody struct {
	Query  query
	Count  int
	Groups []group
	Group  *group // the one that is looked at
	Rows   []deadRow
	First  string
	More   string
	All    string // address without the group
	Unsent int    // messages that are left out
	Hidden string // address of the list with them
	Silent string // which shards did not answer
}

// group is dead runs that failed alike.
type group struct {
	engine.Group
	Key    string
	URL    string // address of its list
	Retry  string // address of the question whether to retry all
	Latest string // the same with the current definition; none for workflows that are internal
	Drop   string // and whether to discard all
	On     bool
}

type deadRow struct {
	row
	Why    string
	Offers []offer
}

// groupKey names a group in addresses and forms. An error's text has no business
// there.
func groupKey(g *engine.Group) string {
	sum := sha256.Sum256([]byte(g.Workflow + "\x00" + g.Pattern))
	return hex.EncodeToString(sum[:8])
}

func (h *handler) dead(w http.ResponseWriter, r *http.Request) {
	p, err := h.lookAtDead(r.Context(), deadQuery(r), time.Now())
	if err != nil {
		status := statusOf(err)
		if q := deadQuery(r); q.After != "" && status == http.StatusInternalServerError {
			q.After = "" // of another list
			http.Redirect(w, r, q.url("/dead"), http.StatusSeeOther)
			return
		}
		h.fail(w, r, status, err)
		return
	}
	p.data.Flash = done(r.URL.Query())
	h.show(w, r, http.StatusOK, "dead", p.data)
}

func (h *handler) liveDead(w http.ResponseWriter, r *http.Request) {
	q := deadQuery(r)
	h.stream(w, r, "", func(ctx context.Context, now time.Time) (part, error) { return h.lookAtDead(ctx, q, now) })
}

func deadQuery(r *http.Request) query {
	q := parseQuery(r.URL.Query())
	return query{Group: q.Group, After: q.After, Internal: q.Internal, Order: orders[0]}
}

func (h *handler) lookAtDead(ctx context.Context, q query, now time.Time) (part, error) {
	t, err := h.totals(ctx, q.Internal)
	if err != nil {
		return part{}, err
	}
	all := query{Internal: q.Internal, Order: orders[0]}
	b := deadBody{Query: q, Count: t.States["dead"], All: all.url("/dead")}
	silent := t.Stats.Silent
	if !q.Internal {
		all.Internal = true
		b.Unsent, b.Hidden = t.Unsent, all.url("/dead")
	}
	if b.Groups, err = h.groups(ctx, q.Internal); err != nil {
		return part{}, err
	}
	f := engine.Filter{States: []string{"dead"}, Exclude: q.exclude(), After: q.After, Limit: rowsPerPage}
	if q.Group != "" {
		b.Group = find(b.Groups, q.Group)
		if b.Group == nil {
			f.Limit = 0 // nobody is in it any more
		} else {
			b.Group.On = true
			f.Workflow, f.ErrorLike = b.Group.Workflow, b.Group.Pattern
		}
	}
	if f.Limit > 0 {
		list, err := h.deadRows(ctx, &b, f)
		if err != nil {
			return part{}, err
		}
		silent = append(silent, list.Silent...)
	}
	b.Silent = silence(silent, nil)
	for i := range b.Groups {
		b.Groups[i].Error = h.Redact(b.Groups[i].Error)
		b.Groups[i].Pattern = h.Redact(b.Groups[i].Pattern)
	}
	return part{
		template: "dead-live", behind: t.Stats.Behind > 0,
		data: page{Title: "Dead letters", Place: "dead", Live: q.url("/live/dead"), Now: now, Dead: b.Count, Body: b},
	}, nil
}

func (h *handler) deadRows(ctx context.Context, b *deadBody, f engine.Filter) (engine.Page, error) {
	rows, list, err := h.list(ctx, f)
	if err != nil {
		return list, err
	}
	for _, r := range rows {
		b.Rows = append(b.Rows, deadRow{r, inWords(r.Reason), letterOffers(&r.Info)})
	}
	q := b.Query
	if q.After != "" {
		q.After = ""
		b.First = q.url("/dead")
	}
	if list.Next != "" {
		q.After = list.Next
		b.More = q.url("/dead")
	}
	return list, nil
}

// groups returns the groups of dead letters, as the engine has them.
func (h *handler) groups(ctx context.Context, internal bool) ([]group, error) {
	ctx, cancel := h.soon(ctx)
	defer cancel()
	dead, err := h.Engine.DeadGroups(ctx, shownGroups, query{Internal: internal}.exclude()...)
	if err != nil {
		return nil, err
	}
	groups := make([]group, len(dead.Groups))
	for i := range dead.Groups {
		g := dead.Groups[i]
		key := groupKey(&g)
		q := query{Group: key, Internal: internal, Order: orders[0]}
		groups[i] = group{Group: g, Key: key, URL: q.url("/dead"), Retry: q.url("/dead/retry"), Drop: q.url("/bulk/cancel")}
		if !api.Internal(g.Workflow) {
			groups[i].Latest = q.url("/bulk/latest")
		}
	}
	return groups, nil
}

func find(groups []group, key string) *group {
	for i := range groups {
		if groups[i].Key == key {
			return &groups[i]
		}
	}
	return nil
}

var errNoGroup = errors.New("nobody is left in this group of dead letters")

// groupOf returns the group that a request names.
func (h *handler) groupOf(r *http.Request, key string) (*group, error) {
	for _, internal := range []bool{false, true} {
		groups, err := h.groups(r.Context(), internal)
		if err != nil {
			return nil, err
		}
		if g := find(groups, key); g != nil {
			return g, nil
		}
	}
	return nil, errNoGroup
}
