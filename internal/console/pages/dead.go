package pages

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/console/control"
)

// shownGroups is how many groups of dead letters are shown.
const shownGroups = 100

// deadBody is the content of the page with the dead letters, which are dead runs.
type deadBody struct {
	Query  Query
	Count  int
	Groups []Group
	Group  *Group // the selected one; nil for all
	Rows   []deadRow
	Choose bool   // the user may choose runs and change them
	First  string // URL of the first page; "" if this is it
	More   string // URL of the next page; "" if there is none
	All    string // URL of the list of all groups
	Unsent int    // messages that could not be sent, and that the list leaves out
	Hidden string // URL of the list with these messages
	Silent string // which shards did not answer
}

// Group is a set of dead runs with similar errors.
type Group struct {
	engine.Group
	Key    string // see groupKey
	URL    string // URL of the list of its runs
	Offers []Offer
	On     bool // it is the selected group
}

type deadRow struct {
	Row
	Why    string // why the run gave up, in words
	Offers []Offer
}

// groupKey returns an id of the group for URLs and forms. It is a hash, since they must not contain
// the text of an error.
func groupKey(g *engine.Group) string {
	return Hash(g.Workflow+"\x00"+g.Pattern, 8)
}

// Groups returns the groups of dead runs. It does not remove secrets from their errors.
func (h *Data) Groups(ctx context.Context, internal bool) ([]Group, error) {
	ctx, cancel := h.Soon(ctx)
	defer cancel()
	dead, err := h.control.Runs.DeadGroups(ctx, control.DeadQuery{Limit: shownGroups, Internal: internal})
	if err != nil {
		return nil, err
	}
	groups := make([]Group, len(dead.Groups))
	for i := range dead.Groups {
		g := dead.Groups[i]
		key := groupKey(&g)
		q := Query{Group: key, Internal: internal, Order: Newest}
		groups[i] = Group{Group: g, Key: key, URL: q.URL("/dead"), Offers: groupOffers(&g, q)}
	}
	return groups, nil
}

// groupOffers returns the actions on all runs of a group.
func groupOffers(g *engine.Group, q Query) (list []Offer) {
	for i := range bulkKinds {
		e := &bulkKinds[i]
		label, to := fmt.Sprintf("%s all %d", e.verb, g.Count), q.URL("/bulk/"+string(e.name))
		if g.Count == 1 {
			label = e.verb + " it"
		}
		switch e.name {
		case control.BulkRetry:
			to = q.URL("/dead/retry")
		case control.BulkRetryLatest:
			if control.Internal(g.Workflow) {
				continue
			}
			label = "Retry with the current definition"
		}
		list = append(list, e.offer(label, to))
	}
	return Fold(list)
}

// groupOf returns the group with a key.
func (h *Data) groupOf(ctx context.Context, key string) (*Group, error) {
	for _, internal := range []bool{false, true} {
		groups, err := h.Groups(ctx, internal)
		if err != nil {
			return nil, err
		}
		if g := findGroup(groups, key); g != nil {
			return g, nil
		}
	}
	return nil, errNoGroup
}

// deadPage shows the dead runs.
type deadPage struct{ *Streams }

func (h deadPage) serve(w http.ResponseWriter, r *http.Request) {
	h.showList(w, r, "/dead", deadQuery(r), h.load)
}

func (h deadPage) live(w http.ResponseWriter, r *http.Request) {
	q := deadQuery(r)
	h.Stream(w, r, "", func(ctx context.Context, now time.Time) (Part, error) { return h.load(ctx, q, now) })
}

func deadQuery(r *http.Request) Query {
	q := parseQuery(r.URL.Query())
	return Query{Group: q.Group, After: q.After, Internal: q.Internal, Order: Newest}
}

func (h deadPage) load(ctx context.Context, q Query, now time.Time) (Part, error) {
	t, err := h.Totals(ctx, q.Internal)
	if err != nil {
		return Part{}, err
	}
	all := Query{Internal: q.Internal, Order: Newest}
	b := deadBody{Query: q, Count: t.States["dead"], All: all.URL("/dead"), Choose: !CallerOf(ctx).ReadOnly}
	silent := t.Stats.Silent
	if !q.Internal {
		all.Internal = true
		b.Unsent, b.Hidden = t.Unsent, all.URL("/dead")
	}
	if b.Groups, err = h.Groups(ctx, q.Internal); err != nil {
		return Part{}, err
	}
	f := control.Filter{States: []string{"dead"}, Internal: q.Internal, After: q.After, Limit: RowsPerPage}
	if q.Group != "" {
		b.Group = findGroup(b.Groups, q.Group)
		if b.Group == nil {
			f.Limit = 0 // the group has no runs any more
		} else {
			b.Group.On = true
			f.Workflow, f.Error = b.Group.Workflow, b.Group.Pattern
		}
	}
	if f.Limit > 0 {
		list, err := h.addRows(ctx, &b, f)
		if err != nil {
			return Part{}, err
		}
		silent = append(silent, list.Silent...)
	}
	b.Silent = SilentText(silent, nil)
	for i := range b.Groups {
		b.Groups[i].Error = h.Redact(b.Groups[i].Error)
	}
	return Part{
		Template: "dead", Behind: t.Stats.Behind > 0,
		Data: Page{Title: "Dead letters", Place: "dead", Live: q.URL("/live/dead"), Now: now, Dead: b.Count, Body: b},
	}, nil
}

func (h deadPage) addRows(ctx context.Context, b *deadBody, f control.Filter) (engine.Page, error) {
	rows, list, err := h.List(ctx, f)
	if err != nil {
		return list, err
	}
	for _, r := range rows {
		row := deadRow{Row: r, Why: whyStopped(r.Reason, r.Attempts == 1)}
		if b.Choose {
			row.Offers = LetterOffers(&r.Info)
		}
		b.Rows = append(b.Rows, row)
	}
	b.First, b.More = b.Query.pages("/dead", list.Next)
	return list, nil
}

func findGroup(groups []Group, key string) *Group {
	if i := slices.IndexFunc(groups, func(g Group) bool { return g.Key == key }); i >= 0 {
		return &groups[i]
	}
	return nil
}

var errNoGroup = control.NewError(control.CodeNotFound, "no runs are left in this group of dead letters", "")
