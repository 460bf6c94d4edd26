package web

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/gateway"
	"github.com/tideover/tideover/internal/console/control"
	"github.com/tideover/tideover/internal/console/pages"
	"github.com/tideover/tideover/internal/textfmt"
	"github.com/tideover/tideover/nostr"
)

// The largest numbers of rows in the tables of the overview. Other pages show all.
const (
	shownWakeUps  = 8 // runs that wait
	shownAgain    = 5 // runs that are retried now
	shownFailures = 5 // groups of dead letters
	shownSessions = 6
	shownAsks     = 5 // runs that ask
	shownDue      = 4 // schedules
)

// overviewBody is the content of the overview.
type overviewBody struct {
	Totals   pages.Totals
	Pulse    pages.Sparkline
	Waits    waitCounts
	Asks     []alert // questions of runs, the first alerts
	Alerts   []alert
	Next     []pages.Row       // runs that wait, by the end of the wait
	Again    []pages.Row       // running runs whose current step has failed before
	Due      []engine.Schedule // schedules, by their next start
	Sick     []providerRow     // providers that are not up, or that an operator has forced to count as up
	Fleet    int               // number of all providers
	Groups   []pages.Group
	Sessions []sessionRow
	Kept     int // number of all sessions
	Relays   []relay
	Trends   *trends // nil if the server has no charts
	Silent   string  // which shards did not answer
	RetryURL string  // URL of the list of runs that wait
	AskURL   string  // URL of the list of runs that ask
	AgainURL string  // URL of the list of running runs with several attempts
}

// alert is a question of a run, or a problem that an operator should look at.
type alert struct {
	Text, URL string
	Asks      bool
}

// waitCounts has the numbers of runs that wait, by what they wait for.
type waitCounts struct {
	Asking int  // for an answer
	Retry  int  // for the next attempt
	Other  int  // for a signal, a child or the end of a sleep
	Many   bool // there are too many to look at: the numbers are not known
}

const (
	sampledWaits  = 100 // largest number of waiting runs of which the overview looks at what they wait for
	questionWidth = 80  // characters of a question in an alert
)

// relay is a Nostr relay for NIP-90. The page does not show its URL as a link.
type relay struct {
	nostr.RelayStatus
	State string
}

// overviewPage shows the overview, the first page of a server with an engine.
type overviewPage struct {
	server
	findings *findingsCache
	charts   string // the range of the charts; "" if none is chosen
}

func (h overviewPage) load(ctx context.Context, now time.Time) (pages.Part, error) {
	t, err := h.Totals(ctx, false)
	if err != nil {
		return pages.Part{}, err
	}
	b := overviewBody{Totals: t, Pulse: h.Activity(now), Relays: h.relays()}
	if err := h.addAsks(ctx, &b); err != nil {
		return pages.Part{}, err
	}
	if err := h.addWork(ctx, &b); err != nil {
		return pages.Part{}, err
	}
	if err := h.addFailures(ctx, &b); err != nil {
		return pages.Part{}, err
	}
	if b.Trends, err = loadTrends(h.control.Charts, "", h.charts, "/overview"); err != nil {
		return pages.Part{}, err
	}
	h.addSick(&b, now)
	h.addSessions(ctx, &b)
	b.Alerts = h.alerts(&b, now)
	return pages.Part{
		Template: "overview", Moving: true, Behind: t.Stats.Behind > 0,
		Data: pages.Page{Title: "Overview", Place: "overview", Live: rangeURL("/live/overview", h.charts), Now: now, Dead: t.States["dead"], Body: b},
	}, nil
}

// count counts the runs that wait for anything but an answer.
func (n *waitCounts) count(list []pages.Row, more bool) {
	n.Many = n.Many || more
	for i := range list {
		switch {
		case list[i].Asking || list[i].State != engine.StateWaiting:
		case list[i].By != "":
			n.Retry++
		default:
			n.Other++
		}
	}
}

// addAsks adds the questions of runs.
func (h overviewPage) addAsks(ctx context.Context, b *overviewBody) error {
	asking := pages.Query{Asking: true, Order: pages.Newest}
	b.AskURL = asking.URL("/runs")
	f := asking.Filter()
	f.Limit = sampledWaits
	asks, list, err := h.List(ctx, f)
	if err != nil {
		return err
	}
	b.Waits = waitCounts{Asking: len(asks), Many: list.Next != ""}
	for i := range asks {
		if len(b.Asks) >= shownAsks {
			b.Asks = append(b.Asks, alert{textfmt.PluralOf(len(asks)-i, "more run asks", "more runs ask"), b.AskURL, true})
			break
		}
		if full, err := h.Get(ctx, asks[i].ID); err == nil { // else it was deleted
			for _, s := range control.Questions(full) {
				b.Asks = append(b.Asks, alert{full.Workflow + " asks: " + textfmt.ClipWithin(s.Question.Text, questionWidth, "…"), asks[i].URL, true})
			}
		}
	}
	return nil
}

// addWork adds the runs that wait, the schedules, and the runs that are retried now.
func (h overviewPage) addWork(ctx context.Context, b *overviewBody) (err error) {
	waiting := pages.Query{States: []string{"waiting"}, Order: "next"}
	again := pages.Query{States: []string{"running"}, Attempts: 2, Order: pages.Newest}
	b.RetryURL, b.AgainURL = waiting.URL("/runs"), again.URL("/runs")
	waiting.States = []string{"waiting", "scheduled"}
	f := waiting.Filter()
	f.Limit = sampledWaits
	var list engine.Page
	if b.Next, list, err = h.List(ctx, f); err != nil {
		return err
	}
	b.Waits.count(b.Next, list.Next != "")
	b.Next = b.Next[:min(len(b.Next), shownWakeUps)]
	b.Silent = pages.SilentText(b.Totals.Stats.Silent, list.Silent)
	h.addSchedules(ctx, b)
	f = again.Filter()
	f.Limit = 4 * shownAgain
	rows, _, err := h.List(ctx, f)
	for i := range rows {
		// A run with several steps has several attempts even if none has failed: read its steps.
		if full, err := h.control.Runs.Get(ctx, rows[i].ID); err == nil && triesAgain(full) && len(b.Again) < shownAgain {
			b.Again = append(b.Again, rows[i])
		}
	}
	return err
}

// addSchedules adds the next scheduled starts. If their shard does not answer, it adds none: the page
// names the shards that did not answer.
func (h overviewPage) addSchedules(ctx context.Context, b *overviewBody) {
	b.Due, _ = h.control.Schedules.List(ctx) //nolint:errcheck // see above
	b.Due = slices.DeleteFunc(b.Due, func(s engine.Schedule) bool { return s.Paused != nil })
	for i := range b.Due {
		b.Due[i].Refused = pages.ChangedCopy(b.Due[i].Refused, func(r *engine.RefusedStart) { r.Error = h.redact(r.Error) })
	}
	slices.SortFunc(b.Due, func(x, y engine.Schedule) int { return cmp.Or(x.Next.Compare(y.Next), cmp.Compare(x.Name, y.Name)) })
	b.Due = b.Due[:min(len(b.Due), shownDue)]
	if next := &b.Totals.Stats.Next; len(b.Due) > 0 && (*next == nil || b.Due[0].Next.Before(**next)) {
		*next = &b.Due[0].Next
	}
}

// triesAgain reports whether a running step of the run has had attempts before.
func triesAgain(i *engine.Info) bool {
	return slices.ContainsFunc(i.Steps, func(s engine.StepInfo) bool { return s.Status == "running" && len(s.Attempts) > 1 })
}

// addFailures adds the largest groups of dead letters.
func (h overviewPage) addFailures(ctx context.Context, b *overviewBody) (err error) {
	if b.Groups, err = h.Groups(ctx, false); err != nil {
		return err
	}
	b.Groups = b.Groups[:min(len(b.Groups), shownFailures)]
	for i := range b.Groups {
		b.Groups[i].Error = h.redact(b.Groups[i].Error)
	}
	return nil
}

// addSick adds the providers that are not up, and those that count as up because an operator has
// forced them.
func (h overviewPage) addSick(b *overviewBody, now time.Time) {
	list := h.control.Providers.List()
	b.Fleet = len(list)
	for i := range list {
		if st := h.redact.provider(list[i]); st.State != gateway.Up || st.Held {
			b.Sick = append(b.Sick, newProviderRow(&st, now))
		}
	}
}

// addSessions adds the sessions that wait. If they can't be listed, the page is shown without them.
func (h overviewPage) addSessions(ctx context.Context, b *overviewBody) {
	if h.control.Sessions == nil {
		return
	}
	list, err := h.control.Sessions.List(ctx)
	if err != nil {
		return
	}
	b.Kept = len(list)
	for i := range list {
		if s := h.redact.session(list[i]); slices.Contains([]string{"waiting", "paused", "gave-up"}, s.State) && len(b.Sessions) < shownSessions {
			b.Sessions = append(b.Sessions, newSessionRow(s))
		}
	}
}

func (h overviewPage) relays() (list []relay) {
	for _, s := range h.control.System.Relays() {
		r := relay{s, "down"}
		r.URL, r.Error = h.redact(s.URL), h.redact(s.Error)
		switch {
		case s.Healthy():
			r.State, r.Error = "up", ""
		case s.Up:
			r.State, r.Error = "throttled", h.redact(s.Trouble)
		}
		list = append(list, r)
	}
	return list
}

// alerts returns the questions, and then the problems that an operator should look at. The page shows
// the troubles of the engine beside them.
func (h overviewPage) alerts(b *overviewBody, now time.Time) []alert {
	list := b.Asks
	add := func(n int, one, many, url string) {
		if n > 0 {
			list = append(list, alert{Text: textfmt.PluralOf(n, one, many), URL: url})
		}
	}
	add(b.Totals.States["dead"], "run has given up", "runs have given up", "/dead")
	add(len(b.Totals.Stats.Warnings), "schedule could not start a run", "schedules could not start a run", "/health")
	add(b.Totals.Unsent, "message could not be sent", "messages could not be sent", "/notifications")
	gaveUp := 0
	for i := range b.Sessions {
		if b.Sessions[i].State == "gave-up" {
			gaveUp++
		}
	}
	add(gaveUp, "session has given up", "sessions have given up", "/sessions")
	if h.control.System.Settings().Reload.Err != nil {
		list = append(list, alert{Text: "The configuration was not reloaded: the file has an error", URL: "/health"})
	}
	found, _ := h.findings.list(h.control.System, now)
	broken, _ := severe(found)
	add(broken, "check has failed", "checks have failed", "/health")
	return list
}
