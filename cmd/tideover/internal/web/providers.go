package web

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/control"
	"github.com/tideover/tideover/gateway"
)

// How much of a provider the list shows. Its own page shows all.
const (
	listedKeys      = 5
	listedThrottles = 5
	listedQuotas    = 4
	listedOutages   = 4
	listedFailovers = 3
)

// providersBody is the list of providers.
type providersBody struct {
	Rows []providerRow
	Said string // number of providers by state
}

// providerRow is a provider in the list.
type providerRow struct {
	gateway.Status
	URL      string // URL of its page
	Meaning  string // of its state, in words
	Offers   []offer
	Next     *time.Time // time of the next probe
	Expected *time.Time // when it is expected back
	Probed   *gateway.Recovery
	First    string // mean time to the first byte
	Ratio    string // attempts per request
	Others   []named

	Classes []gauge // waiting requests by priority
	Cooling []key   // all keys
	Limits  []gauge // quotas
	Course  []outage
	Handed  []gateway.Failover
	Left    []gauge // budgets
	More    int     // keys, waits, quotas, outages and failovers that are not shown
}

// named is a link to something with a name.
type named struct{ Name, URL string }

// key is one of the keys of a provider.
type key struct {
	gateway.KeyInfo
	Cools bool
	Rank  string
}

// providersPage is the list of providers, and the page of each.
type providersPage struct{ *Site }

func (h providersPage) loadList(ctx context.Context, now time.Time) (part, error) {
	p := h.newPart(ctx, "providers", "Providers", "/live/providers", now)
	var b providersBody
	states := map[string]int{}
	for _, st := range h.control.Providers.List() {
		st = h.redact.provider(st)
		states[st.State]++
		row := newProviderRow(&st, now)
		row.shorten()
		p.moving = p.moving || changesWithTime(&row)
		b.Rows = append(b.Rows, row)
	}
	var said []string
	for _, s := range gateway.States {
		if n := states[s]; n > 0 {
			said = append(said, fmt.Sprintf("%d %s", n, stateLabel(s)))
		}
	}
	b.Said = strings.Join(said, ", ")
	p.data.Body = b
	return p, nil
}

// loader returns the loader of the provider that a request names.
func (h providersPage) loader(r *http.Request) loader {
	name := r.PathValue("provider")
	return func(ctx context.Context, now time.Time) (part, error) { return h.load(ctx, name, now) }
}

func (h providersPage) load(ctx context.Context, name string, now time.Time) (part, error) {
	p := h.newPart(ctx, "provider", "Provider "+name, "/live/providers/"+url.PathEscape(name), now)
	st, err := h.control.Providers.Get(name)
	if err != nil {
		return p, err
	}
	st = h.redact.provider(st)
	row := newProviderRow(&st, now)
	p.moving = changesWithTime(&row)
	p.data.Body = row
	return p, nil
}

// newPart returns what all pages with providers have.
func (h providersPage) newPart(ctx context.Context, template, title, live string, now time.Time) part {
	p := page{Title: title, Place: "providers", Live: live, Now: now, Dead: h.deadCount(ctx)}
	return part{template: template, polled: true, data: p}
}

// changesWithTime reports whether the row of a provider changes with time alone.
func changesWithTime(r *providerRow) bool {
	return r.State != gateway.Up || len(r.Throttles) > 0 || slices.ContainsFunc(r.Cooling, func(k key) bool { return k.Cools })
}

func newProviderRow(st *gateway.Status, now time.Time) providerRow {
	r := providerRow{
		Status: *st, URL: providerPage(st.Name), Meaning: control.ProviderMeaning(st), Offers: providerOffers(st), Classes: classes(st.ByClass),
		Limits: quotas(st.Quotas), Course: outageBars(st, now), Handed: st.Failovers, Left: budgets(st.Budgets),
	}
	for _, k := range st.Keys {
		x := key{KeyInfo: k, Cools: k.CoolUntil != nil && k.CoolUntil.After(now), Rank: seconds(k.Score)}
		r.Cooling = append(r.Cooling, x)
	}
	for i := range st.Throttles {
		if x := &st.Throttles[i]; st.State == gateway.Throttled && (r.Next == nil || x.NextProbe.Before(*r.Next)) {
			r.Next = &x.NextProbe
		}
	}
	if x := recovery(st); x != nil {
		r.Next, r.Expected, r.Probed = x.Next, x.Expected, x
	}
	r.First = seconds(st.TTFB)
	if st.Totals.Requests > 0 {
		r.Ratio = fmt.Sprintf("%.2f", st.Totals.Amplified)
	}
	for _, name := range st.Fallback {
		r.Others = append(r.Others, named{name, providerPage(name)})
	}
	return r
}

// recovery returns the recovery of an outage, or nil if the provider is not down or an operator has
// set its state.
func recovery(st *gateway.Status) *gateway.Recovery {
	if st.State != gateway.Down && st.State != gateway.Probing {
		return nil
	}
	return st.Recovery
}

// shorten limits the lists of the row. Keys that can't be used come first.
func (r *providerRow) shorten() {
	slices.SortStableFunc(r.Cooling, func(a, b key) int {
		switch {
		case a.Cools == b.Cools:
			return 0
		case a.Cools:
			return -1
		}
		return 1
	})
	r.Cooling, r.More = limitList(r.Cooling, listedKeys, r.More)
	r.Throttles, r.More = limitList(r.Throttles, listedThrottles, r.More)
	r.Limits, r.More = limitList(r.Limits, listedQuotas, r.More)
	r.Course, r.More = limitList(r.Course, listedOutages, r.More)
	r.Handed, r.More = limitList(r.Handed, listedFailovers, r.More)
}

// limitList returns at most n elements, and adds the number of the others to more.
func limitList[T any](list []T, n, more int) ([]T, int) {
	if len(list) <= n {
		return list, more
	}
	return list[:n], more + len(list) - n
}

// roundToSecond returns the nearest full second.
func roundToSecond(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	w := t.Round(time.Second)
	return &w
}

// providerPage returns the URL of a provider.
func providerPage(name string) string { return "/providers/" + url.PathEscape(name) }

// providerURL returns the URL of an action on a provider.
func providerURL(name, action string) string {
	return providerPage(name) + "/" + url.PathEscape(action)
}
