package web

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/admin"
	"github.com/tideover/tideover/gateway"
	"github.com/tideover/tideover/internal/console/pages"
)

// The largest numbers of rows that the list shows of each provider. The provider's page shows all.
const (
	listedKeys      = 5
	listedThrottles = 5
	listedQuotas    = 4
	listedOutages   = 4
	listedFailovers = 3
)

// providersBody is the content of the page with all providers.
type providersBody struct {
	Rows []providerRow
	Said string // numbers of providers by state, in words
}

// providerRow is a provider, in the list or on its own page.
type providerRow struct {
	gateway.Status
	URL      string // URL of its page
	Meaning  string // effect of its state on requests, in words
	Offers   []pages.Offer
	Next     *time.Time        // time of the next probe
	Expected *time.Time        // when it is expected back
	Probed   *gateway.Recovery // of the current outage; nil if there is none
	First    string            // mean time to the first byte
	Ratio    string            // attempts per request
	Others   []named           // fallbacks

	Classes []gauge // waiting requests by priority
	Cooling []key   // all keys, whether they cool down or not
	Limits  []gauge // quotas
	Course  []outage
	Handed  []gateway.Failover // the latest failovers
	Left    []gauge            // budgets
	More    int                // keys, waits, quotas, outages and failovers that are not shown
}

// named is a link, and the name that it shows.
type named struct{ Name, URL string }

// key is one of the keys of a provider.
type key struct {
	gateway.KeyInfo
	Cools bool   // the key is not used at the moment
	Rank  string // the score of the key, in seconds
}

// providersPage shows the list of providers, and the page of each.
type providersPage struct{ server }

func (h providersPage) loadList(ctx context.Context, now time.Time) (pages.Part, error) {
	p := h.newPart(ctx, "providers", "Providers", "/live/providers", now)
	var b providersBody
	count := map[string]int{}
	for _, st := range h.control.Providers.List() {
		st = h.redact.provider(st)
		count[st.State]++
		row := newProviderRow(&st, now)
		row.Offers = offersTo(ctx, row.Offers)
		row.shorten()
		p.Moving = p.Moving || changesWithTime(&row)
		b.Rows = append(b.Rows, row)
	}
	var said []string
	for _, s := range gateway.States {
		if n := count[s]; n > 0 {
			said = append(said, fmt.Sprintf("%d %s", n, cmp.Or(states[s].Label, s)))
		}
	}
	b.Said = strings.Join(said, ", ")
	p.Data.Body = b
	return p, nil
}

func (h providersPage) load(ctx context.Context, name string, now time.Time) (pages.Part, error) {
	p := h.newPart(ctx, "provider", "Provider "+name, "/live/providers/"+url.PathEscape(name), now)
	st, err := h.control.Providers.Get(name)
	if err != nil {
		return p, err
	}
	st = h.redact.provider(st)
	row := newProviderRow(&st, now)
	row.Offers = offersTo(ctx, row.Offers)
	p.Moving = changesWithTime(&row)
	p.Data.Body = row
	return p, nil
}

// newPart returns the part of a page about providers, without its content.
func (h providersPage) newPart(ctx context.Context, template, title, live string, now time.Time) pages.Part {
	p := pages.Page{Title: title, Place: "providers", Live: live, Now: now, Dead: h.DeadCount(ctx)}
	return pages.Part{Template: template, Polled: true, Data: p}
}

// changesWithTime reports whether the row of a provider shows times that change without an event.
func changesWithTime(r *providerRow) bool {
	return r.State != gateway.Up || len(r.Throttles) > 0 || slices.ContainsFunc(r.Cooling, func(k key) bool { return k.Cools })
}

func newProviderRow(st *gateway.Status, now time.Time) providerRow {
	r := providerRow{
		Status: *st, URL: providerPage(st.Name), Meaning: admin.ProviderMeaning(st), Offers: providerOffers(st), Classes: classes(st.ByClass),
		Limits: quotas(st.Quotas), Course: outageBars(st, now), Handed: st.Failovers, Left: budgets(st.Budgets),
	}
	for _, k := range st.Keys {
		r.Cooling = append(r.Cooling, key{KeyInfo: k, Cools: isCooling(&k, now), Rank: seconds(k.Score)})
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

// recovery returns the recovery from the current outage. It returns nil if the provider is not down,
// or if an operator has set its state.
func recovery(st *gateway.Status) *gateway.Recovery {
	if st.State != gateway.Down && st.State != gateway.Probing {
		return nil
	}
	return st.Recovery
}

// shorten limits the lists of the row. Keys that can't be used come first.
func (r *providerRow) shorten() {
	usable := slices.DeleteFunc(slices.Clone(r.Cooling), func(k key) bool { return k.Cools })
	r.Cooling = append(slices.DeleteFunc(r.Cooling, func(k key) bool { return !k.Cools }), usable...)
	r.Cooling, r.More = limitList(r.Cooling, listedKeys, r.More)
	r.Throttles, r.More = limitList(r.Throttles, listedThrottles, r.More)
	r.Limits, r.More = limitList(r.Limits, listedQuotas, r.More)
	r.Course, r.More = limitList(r.Course, listedOutages, r.More)
	r.Handed, r.More = limitList(r.Handed, listedFailovers, r.More)
}

// limitList shortens the list to n elements, and adds the number of the elements that it left out
// to more. It returns both.
func limitList[T any](list []T, n, more int) ([]T, int) {
	if len(list) <= n {
		return list, more
	}
	return list[:n], more + len(list) - n
}

// providerPage returns the URL of the page of a provider.
func providerPage(name string) string { return "/providers/" + url.PathEscape(name) }

// providerTexts has the sentence that is shown after each action on a provider.
var providerTexts = map[string]string{
	gateway.Open: "Blocked: no requests are sent to it.", gateway.Close: "Forced: it counts as up even if it fails.",
	gateway.Reset: "Reset: its health decides again.", gateway.Drain: "Draining: no new requests are sent to it.",
}

// providerMeanings has a sentence about each action on a provider that can be in the menu.
var providerMeanings = map[string]string{
	gateway.Close: "This provider counts as up even if it fails.", gateway.Drain: "Requests in flight are finished. No new requests are sent to this provider.",
}

// providerOffers returns the actions that are possible for a provider.
func providerOffers(st *gateway.Status) (list []pages.Offer) {
	add := func(action, label string) {
		list = append(list, pages.Offer{Name: action, Label: label, URL: pages.ActionURL(providerPage(st.Name), action), Danger: action == gateway.Open, Text: providerMeanings[action]})
	}
	cooling := func(k gateway.KeyInfo) bool { return isCooling(&k, time.Now()) }
	overridden := st.Held || st.State == gateway.Opened || st.State == gateway.Draining
	if overridden || st.State == gateway.Down || len(st.Throttles) > 0 || slices.ContainsFunc(st.Keys, cooling) {
		add(gateway.Reset, "Reset")
	}
	if st.State != gateway.Draining && st.State != gateway.Opened {
		add(gateway.Drain, "Drain")
	}
	if !st.Held {
		add(gateway.Close, "Force")
	}
	if st.State != gateway.Opened {
		add(gateway.Open, "Block")
	}
	return pages.Fold(list)
}

// isCooling reports whether the key cools down at the time now, after it was rejected.
func isCooling(k *gateway.KeyInfo, now time.Time) bool {
	return k.CoolUntil != nil && k.CoolUntil.After(now)
}

// question returns the confirmation question for an action on a provider.
func (h providersPage) question(r *http.Request) (*pages.Question, error) {
	name, action := r.PathValue("provider"), r.PathValue("action")
	st, err := h.control.Providers.Get(name)
	if err != nil {
		return nil, err
	}
	q := &pages.Question{Action: pages.ActionURL(providerPage(name), action), Back: "/providers"}
	switch action {
	case gateway.Open:
		q.Title, q.Button, q.Danger = "Block "+name+"?", "Block", true
		q.Text = "No requests are sent to this provider until an operator forces or resets it. " + fallbackText(&st)
	case gateway.Close:
		q.Title, q.Button = "Force "+name+"?", "Force"
		q.Text = providerMeanings[action] + " Requests are sent to it until an operator blocks or resets it."
	case gateway.Reset:
		q.Title, q.Button = "Reset "+name+"?", "Reset"
		q.Text = "Blocking, forcing or draining ends, and the throttles and rejections of its keys are cleared. If the provider is down, the next request is a probe."
	case gateway.Drain:
		q.Title, q.Button = "Drain "+name+"?", "Drain"
		q.Text = fmt.Sprintf("Requests in flight (%d) are finished. No new requests are sent to this provider until an operator resets it. %s", st.InFlight, fallbackText(&st))
	default:
		return nil, pages.UnknownAction(action)
	}
	return q, nil
}

// fallbackText returns a sentence about where requests go while the provider gets none.
func fallbackText(st *gateway.Status) string {
	if len(st.Fallback) == 0 {
		return "It has no fallback: requests are rejected."
	}
	return "Requests go to " + strings.Join(st.Fallback, ", ") + ", or are rejected."
}

// act applies an action to a provider.
func (h providersPage) act(r *http.Request) (did, to string, err error) {
	action := r.PathValue("action")
	if providerTexts[action] == "" {
		return "", "", pages.UnknownAction(action)
	}
	if _, err := h.control.Providers.Apply(r.PathValue("provider"), action, pages.ActorOf(r)); err != nil {
		return "", "", err
	}
	h.Changed()
	return providerTexts[action], "/providers?did=" + action, nil
}
