package web

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/api"
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
	Said string // how many are in which state
}

// providerRow is a provider in the list.
type providerRow struct {
	gateway.Status
	URL      string // address of its page
	Meaning  string // of its state, in words
	Offers   []offer
	Next     *time.Time // when somebody looks again, or may
	Expected *time.Time // when it is thought to be back
	Probed   *gateway.Recovery
	First    string // mean time to the first byte
	Ratio    string // attempts per request
	Others   []named

	Classes []gauge // who waits, by priority
	Cooling []key   // and those that do not cool
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

func (h *handler) providers(w http.ResponseWriter, r *http.Request) {
	p, err := h.lookAtProviders(r.Context(), time.Now())
	if err != nil {
		h.fail(w, r, statusOf(err), err)
		return
	}
	p.data.Flash = providerDone[r.URL.Query().Get("did")]
	h.show(w, r, http.StatusOK, "providers", p.data)
}

func (h *handler) liveProviders(w http.ResponseWriter, r *http.Request) {
	h.stream(w, r, "", h.lookAtProviders)
}

func (h *handler) lookAtProviders(ctx context.Context, now time.Time) (part, error) {
	p := h.providerPart(ctx, "providers-live", "Providers", "/live/providers", now)
	var b providersBody
	states := map[string]int{}
	for _, st := range api.ListProviders(h.Providers) {
		st = h.cleanProvider(st)
		states[st.State]++
		row := newProviderRow(&st, now)
		row.shorten()
		p.moving = p.moving || changes(&row)
		b.Rows = append(b.Rows, row)
	}
	var said []string
	for _, s := range gateway.States {
		if n := states[s]; n > 0 {
			said = append(said, fmt.Sprintf("%d %s", n, s))
		}
	}
	b.Said = strings.Join(said, ", ")
	p.data.Body = b
	return p, nil
}

func (h *handler) provider(w http.ResponseWriter, r *http.Request) {
	p, err := h.lookAtProvider(r.Context(), r.PathValue("provider"), time.Now())
	if err != nil {
		h.fail(w, r, statusOf(err), err)
		return
	}
	h.show(w, r, http.StatusOK, "provider", p.data)
}

func (h *handler) liveProvider(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("provider")
	h.stream(w, r, "", func(ctx context.Context, now time.Time) (part, error) { return h.lookAtProvider(ctx, name, now) })
}

func (h *handler) lookAtProvider(ctx context.Context, name string, now time.Time) (part, error) {
	p := h.providerPart(ctx, "provider-live", "Provider "+name, "/live/providers/"+url.PathEscape(name), now)
	st, err := api.FindProvider(h.Providers, name)
	if err != nil {
		return p, err
	}
	st = h.cleanProvider(st)
	row := newProviderRow(&st, now)
	p.moving = changes(&row)
	p.data.Body = row
	return p, nil
}

// providerPart returns what all pages with providers have.
func (h *handler) providerPart(ctx context.Context, template, title, live string, now time.Time) part {
	p := part{template: template, polled: true, data: page{Title: title, Place: "providers", Live: live, Now: now, Alone: h.Engine == nil}}
	if h.Engine == nil {
		return p
	}
	p.data.Dead = h.deadCount(ctx)
	return p
}

// changes reports whether a provider looks different after a while though nothing
// has happened.
func changes(r *providerRow) bool {
	return r.State != gateway.Up || len(r.Throttles) > 0 || slices.ContainsFunc(r.Cooling, func(k key) bool { return k.Cools })
}

func newProviderRow(st *gateway.Status, now time.Time) providerRow {
	r := providerRow{
		Status: *st, URL: providerPage(st.Name), Meaning: api.ProviderMeaning(st), Offers: providerOffers(st), Classes: classes(st.ByClass),
		Limits: quotas(st.Quotas), Course: course(st, now), Handed: st.Failovers, Left: budgets(st.Budgets),
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

// recovery returns what is expected of the outage, unless somebody has said what
// counts more.
func recovery(st *gateway.Status) *gateway.Recovery {
	if st.State != gateway.Down && st.State != gateway.Probing {
		return nil
	}
	return st.Recovery
}

// shorten leaves out what the list has no room for. Keys that can't be used come
// first.
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
	r.Cooling, r.More = firsts(r.Cooling, listedKeys, r.More)
	r.Throttles, r.More = firsts(r.Throttles, listedThrottles, r.More)
	r.Limits, r.More = firsts(r.Limits, listedQuotas, r.More)
	r.Course, r.More = firsts(r.Course, listedOutages, r.More)
	r.Handed, r.More = firsts(r.Handed, listedFailovers, r.More)
}

// firsts returns the first of a list, and adds how many others there are.
func firsts[T any](list []T, n, more int) ([]T, int) {
	if len(list) <= n {
		return list, more
	}
	return list[:n], more + len(list) - n
}

// cleanProvider takes secrets out of what somebody else wrote. Times that are
// worked out anew whenever somebody looks are made the same, so that a page is not
// sent again because of nothing.
func (h *handler) cleanProvider(st gateway.Status) gateway.Status {
	st.Since = whole(st.Since)
	if st.Recovery != nil {
		r := *st.Recovery
		r.Next, r.Expected = whole(r.Next), whole(r.Expected)
		st.Recovery = &r
	}
	st.BaseURL, st.Why = h.Redact(st.BaseURL), h.Redact(st.Why)
	st.Keys, st.Outages, st.Failovers = slices.Clone(st.Keys), slices.Clone(st.Outages), slices.Clone(st.Failovers)
	st.Quotas, st.Budgets = slices.Clone(st.Quotas), slices.Clone(st.Budgets)
	for i := range st.Keys {
		st.Keys[i].Reason = h.Redact(st.Keys[i].Reason)
	}
	for i := range st.Outages {
		st.Outages[i].Cause = h.Redact(st.Outages[i].Cause)
	}
	for i := range st.Failovers {
		st.Failovers[i].Why = h.Redact(st.Failovers[i].Why)
	}
	for i := range st.Quotas {
		st.Quotas[i].Name = h.Redact(st.Quotas[i].Name)
	}
	for i := range st.Budgets {
		st.Budgets[i].Route = h.Redact(st.Budgets[i].Route)
	}
	st.Throttles = slices.Clone(st.Throttles)
	for i := range st.Throttles {
		x := &st.Throttles[i]
		x.Route, x.Model, x.Reason = h.Redact(x.Route), h.Redact(x.Model), h.Redact(x.Reason)
		x.Until, x.NextProbe = *whole(&x.Until), *whole(&x.NextProbe)
	}
	return st
}

// whole returns a time without parts of a second.
func whole(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	w := t.Round(time.Second)
	return &w
}

// providerPage returns the address of a provider.
func providerPage(name string) string { return "/providers/" + url.PathEscape(name) }

// providerURL returns the address of something that can be done with a provider.
func providerURL(name, action string) string {
	return providerPage(name) + "/" + url.PathEscape(action)
}
