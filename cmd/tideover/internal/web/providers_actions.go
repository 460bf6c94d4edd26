package web

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/control"
	"github.com/tideover/tideover/gateway"
)

// providerTexts has the sentence that is shown after each action.
var providerTexts = map[string]string{
	gateway.Open: "Opened: nobody passes.", gateway.Close: "Closed: it counts as up whatever happens.",
	gateway.Reset: "It goes by its rules again.", gateway.Drain: "It is being drained.",
}

// providerDone returns the sentence about the action of a query.
func providerDone(v url.Values) string { return providerTexts[v.Get("did")] }

// providerOffers returns the actions that are possible for a provider.
func providerOffers(st *gateway.Status) (list []offer) {
	add := func(action, label string) {
		list = append(list, offer{action, label, providerURL(st.Name, action), action == gateway.Open})
	}
	told := st.Held || st.State == gateway.Opened || st.State == gateway.Draining
	if told || st.State == gateway.Down || len(st.Throttles) > 0 || slices.ContainsFunc(st.Keys, isCooling) {
		add(gateway.Reset, "Reset")
	}
	if !st.Held {
		add(gateway.Close, "Close")
	}
	if st.State != gateway.Draining && st.State != gateway.Opened {
		add(gateway.Drain, "Drain")
	}
	if st.State != gateway.Opened {
		add(gateway.Open, "Open")
	}
	return list
}

// isCooling reports whether a key must not be used at the moment.
func isCooling(k gateway.KeyInfo) bool { return k.CoolUntil != nil && k.CoolUntil.After(time.Now()) }

// confirm asks whether to apply an action to a provider.
func (h providersPage) confirm(w http.ResponseWriter, r *http.Request) {
	q, err := h.question(r)
	if err != nil {
		h.failWith(w, r, err)
		return
	}
	h.showQuestion(w, r, http.StatusOK, q)
}

func (h providersPage) question(r *http.Request) (*question, error) {
	name, action := r.PathValue("provider"), r.PathValue("action")
	st, err := h.control.Providers.Get(name)
	if err != nil {
		return nil, err
	}
	q := &question{Action: providerURL(name, action), Back: "/providers"}
	switch action {
	case gateway.Open:
		q.Title, q.Button, q.Danger = "Open "+name+"?", "Open: let nobody pass", true
		q.Text = "Nobody passes until somebody closes or resets it. " + fallbackText(&st)
	case gateway.Close:
		q.Title, q.Button = "Close "+name+"?", "Close: let everybody pass"
		q.Text = "It counts as up whatever happens, until somebody opens or resets it. No failure keeps requests from it."
	case gateway.Reset:
		q.Title, q.Button = "Reset "+name+"?", "Reset"
		q.Text = "It goes by its rules again: what was said by hand counts no more, and what was told of its keys is forgotten. If it is down, the next request looks whether it still is."
	case gateway.Drain:
		q.Title, q.Button = "Drain "+name+"?", "Drain"
		q.Text = fmt.Sprintf("Requests under way are finished; there are %d. Until somebody resets it, no new ones pass. %s", st.InFlight, fallbackText(&st))
	default:
		return nil, unknownAction(action)
	}
	return q, nil
}

// fallbackText returns a sentence about requests that the provider does not get.
func fallbackText(st *gateway.Status) string {
	if len(st.Fallback) == 0 {
		return "It has no fallback: requests are refused."
	}
	return "Requests go to " + strings.Join(st.Fallback, ", ") + ", or are refused."
}

func unknownAction(action string) error {
	return control.NewError(control.CodeNotFound, fmt.Sprintf("nothing is called %q", action), "")
}

// act applies an action to a provider.
func (h providersPage) act(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err != nil {
		h.fail(w, r, formStatus(err), err)
		return
	}
	action := r.PathValue("action")
	if providerTexts[action] == "" {
		h.fail(w, r, http.StatusNotFound, unknownAction(action))
		return
	}
	if _, err := h.control.Providers.Apply(r.PathValue("provider"), action, h.actor(r)); err != nil {
		h.failWith(w, r, err)
		return
	}
	h.feed.touchAll()
	if fromHTMX(r) {
		h.flash(w, r, providerTexts[action])
		return
	}
	forward(w, r, "/providers?did="+action)
}
