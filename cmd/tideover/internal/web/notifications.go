package web

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/admin"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/console/control"
	"github.com/tideover/tideover/internal/console/pages"
)

const (
	shownMessages = 30 // messages on the page
	messageFlows  = 60 // most workflows whose messages are listed
)

// notificationsBody is the content of the page with the notifiers and their messages.
type notificationsBody struct {
	Choose   bool // the user may send a test message
	Rows     []notifierRow
	Messages []messageRow
	Failed   int
	Waiting  int
	AllURL   string // URL of the list of all messages that could not be sent
	Silent   string // which shards did not answer
}

// notifierRow is a notifier in the list.
type notifierRow struct {
	admin.Notifier
	On      string
	Sent    uint64
	Waiting int
	Failed  int
	URL     string // URL of the list of its messages
	Test    pages.Offer
}

// messageRow is a message in the list: the run that sends it.
type messageRow struct {
	pages.Row
	To     string // the notifier
	Event  string
	Title  string
	Held   string // why it was not sent
	Offers []pages.Offer
}

// notificationsPage shows the notifiers and their messages.
type notificationsPage struct{ server }

func (h notificationsPage) load(ctx context.Context, now time.Time) (pages.Part, error) {
	t, err := h.Totals(ctx, false)
	if err != nil {
		return pages.Part{}, err
	}
	b := notificationsBody{Rows: h.notifiers(&t), Choose: !pages.CallerOf(ctx).ReadOnly, AllURL: pages.Query{Internal: true, Order: pages.Newest}.URL("/dead")}
	for i := range b.Rows {
		b.Failed, b.Waiting = b.Failed+b.Rows[i].Failed, b.Waiting+b.Rows[i].Waiting
	}
	silent := t.Stats.Silent
	for _, name := range h.messageWorkflows(&t) {
		rows, list, err := h.List(ctx, control.Filter{Workflow: name, Limit: shownMessages})
		if err != nil {
			return pages.Part{}, err
		}
		silent = append(silent, list.Silent...)
		to := h.notifierNames(name)
		for i := range rows {
			message := newMessageRow(rows[i], to)
			message.Offers = offersTo(ctx, message.Offers)
			b.Messages = append(b.Messages, message)
		}
	}
	slices.SortFunc(b.Messages, func(x, y messageRow) int { return cmp.Compare(y.ID, x.ID) })
	b.Messages, b.Silent = b.Messages[:min(len(b.Messages), shownMessages)], pages.SilentText(silent, nil)
	return pages.Part{
		Template: "notifications", Behind: t.Stats.Behind > 0,
		Data: pages.Page{Title: "Notifications", Place: "notifications", Live: "/live/notifications", Now: now, Dead: t.States["dead"], Body: b},
	}, nil
}

// notifiers returns the notifiers, with the numbers of their messages by outcome.
func (h notificationsPage) notifiers(t *pages.Totals) (list []notifierRow) {
	for _, n := range h.control.Messages.Notifiers() {
		row := notifierRow{Notifier: n, On: strings.Join(n.On, ", ")}
		row.URL, row.Test = pages.Query{Workflow: n.Workflow, Order: pages.Newest}.URL("/runs"), pages.Offer{Name: "test", Label: "Send test message", URL: testURL(n.Name)}
		for _, w := range t.Stats.Workflows {
			if w.Name == n.Workflow {
				row.Sent, row.Failed = w.Totals.Succeeded, w.States["dead"]
				row.Waiting = w.States["waiting"] + w.States["queued"] + w.States["running"]
			}
		}
		list = append(list, row)
	}
	return list
}

// messageWorkflows returns the workflows that send messages and have had a run: those of notifiers, and
// those of follow-up runs that only send messages.
func (h notificationsPage) messageWorkflows(t *pages.Totals) (names []string) {
	for _, w := range t.Stats.Workflows {
		if w.Totals.Started > 0 && (control.Message(w.Name) || h.sendsMessages(w.Name)) {
			names = append(names, w.Name)
		}
	}
	return names[:min(len(names), messageFlows)]
}

// sendsMessages reports whether the follow-up runs of a workflow only send messages.
func (h notificationsPage) sendsMessages(workflow string) bool {
	if !strings.HasSuffix(workflow, control.GiveUpSuffix) {
		return false
	}
	flow, ok := h.control.Workflows.Get(workflow)
	return ok && !slices.ContainsFunc(flow.Steps(), func(s engine.StepInfo) bool { return !strings.HasPrefix(s.Handler, "notify") })
}

// notifierNames returns the names of the notifiers that a workflow uses, separated by commas.
func (h notificationsPage) notifierNames(workflow string) string {
	if !strings.HasSuffix(workflow, control.GiveUpSuffix) {
		return strings.TrimPrefix(workflow, control.NotifyPrefix)
	}
	var names []string
	if flow, ok := h.control.Workflows.Get(workflow); ok {
		for _, s := range flow.Steps() {
			names = append(names, s.Name) // such a step has the name of its notifier
		}
	}
	return strings.Join(names, ", ")
}

// newMessageRow returns the row of the message in the input of the run. Lists contain only the
// beginning of an input, so the message may be cut off.
func newMessageRow(r pages.Row, to string) messageRow {
	m := messageRow{Row: r, To: to}
	in := texts(r.InputPreview)
	m.Event, m.Title, m.Held = in["event"], in["title"], texts(r.OutputPreview)["held"]
	if of, ok := strings.CutSuffix(r.Workflow, control.GiveUpSuffix); ok {
		m.Event, m.Title = "gave-up", cmp.Or(in["workflow"], of)+" gave up"
		if in["error"] != "" {
			m.Title += ": " + in["error"]
		}
	}
	if m.Title == "" {
		m.Title = r.InputPreview
	}
	if r.State == "dead" {
		m.Offers = pages.LetterOffers(&r.Info)
	}
	return m
}

// texts returns the string fields of a JSON object, which may be cut off at its end.
func texts(object string) map[string]string {
	out := map[string]string{}
	d := json.NewDecoder(strings.NewReader(object))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return out
	}
	for {
		name, err := d.Token()
		if err != nil {
			return out
		}
		var value any
		if d.Decode(&value) != nil {
			return out
		}
		if key, ok := name.(string); ok {
			if text, ok := value.(string); ok {
				out[key] = text
			}
		}
	}
}

// testURL returns the URL for sending a test message with a notifier.
func testURL(name string) string { return "/notifications/" + url.PathEscape(name) + "/test" }

// notificationTexts has the sentence that is shown after a test message was queued.
var notificationTexts = map[string]string{"test": "The test message is queued; the list shows its result."}

// question returns the confirmation question for sending a test message.
func (h notificationsPage) question(r *http.Request) (*pages.Question, error) {
	name := r.PathValue("notifier")
	return &pages.Question{
		Title: "Send a test message with " + name + "?", Button: "Send", Action: testURL(name), Back: "/notifications",
		Text: "The recipients of this notifier get the message. Rate limits do not apply to a test; retries do.",
	}, h.control.Messages.Check(name)
}

// sendTest starts a run that sends a test message.
func (h notificationsPage) sendTest(r *http.Request) (did, to string, err error) {
	err = h.control.Messages.SendTest(r.Context(), r.PathValue("notifier"), pages.ActorOf(r))
	return notificationTexts["test"], "/notifications?did=test", err
}
