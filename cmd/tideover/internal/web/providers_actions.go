package web

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/api"
	"github.com/tideover/tideover/gateway"
)

// providerDone says what was done.
var providerDone = map[string]string{
	gateway.Open: "Opened: nobody passes.", gateway.Close: "Closed: it counts as up whatever happens.",
	gateway.Reset: "It goes by its rules again.", gateway.Drain: "It is being drained.",
}

// providerOffers returns what can be done with a provider as it is.
func providerOffers(st *gateway.Status) (list []offer) {
	add := func(action, label string) {
		list = append(list, offer{action, label, providerURL(st.Name, action), action == gateway.Open})
	}
	told := st.Held || st.State == gateway.Opened || st.State == gateway.Draining
	if told || st.State == gateway.Down || len(st.Throttles) > 0 || slices.ContainsFunc(st.Keys, cools) {
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

// cools reports whether the key may not be used for now.
func cools(k gateway.KeyInfo) bool { return k.CoolUntil != nil && k.CoolUntil.After(time.Now()) }

// askProvider asks whether something shall be done with a provider.
func (h *handler) askProvider(w http.ResponseWriter, r *http.Request) {
	q, err := h.providerQuestion(r)
	if err != nil {
		h.fail(w, r, statusOf(err), err)
		return
	}
	h.pose(w, r, http.StatusOK, q)
}

func (h *handler) providerQuestion(r *http.Request) (*question, error) {
	name, action := r.PathValue("provider"), r.PathValue("action")
	st, err := api.FindProvider(h.Providers, name)
	if err != nil {
		return nil, err
	}
	q := &question{Action: providerURL(name, action), Back: "/providers"}
	switch action {
	case gateway.Open:
		q.Title, q.Button, q.Danger = "Open "+name+"?", "Open: let nobody pass", true
		q.Text = "Nobody passes until somebody closes or resets it. " + elsewhere(&st)
	case gateway.Close:
		q.Title, q.Button = "Close "+name+"?", "Close: let everybody pass"
		q.Text = "It counts as up whatever happens, until somebody opens or resets it. No failure keeps requests from it."
	case gateway.Reset:
		q.Title, q.Button = "Reset "+name+"?", "Reset"
		q.Text = "It goes by its rules again: what was said by hand counts no more, and what was told of its keys is forgotten. If it is down, the next request looks whether it still is."
	case gateway.Drain:
		q.Title, q.Button = "Drain "+name+"?", "Drain"
		q.Text = fmt.Sprintf("Requests under way are finished; there are %d. Until somebody resets it, no new ones pass. %s", st.InFlight, elsewhere(&st))
	default:
		return nil, noSuchAction(action)
	}
	return q, nil
}

// elsewhere says what becomes of requests that do not pass.
func elsewhere(st *gateway.Status) string {
	if len(st.Fallback) == 0 {
		return "It has no fallback: requests are refused."
	}
	return "Requests go to " + strings.Join(st.Fallback, ", ") + ", or are refused."
}

func noSuchAction(action string) error {
	return &api.Problem{Status: http.StatusNotFound, Code: api.CodeNotFound, Message: fmt.Sprintf("nothing is called %q", action)}
}

// actProvider does something with a provider.
func (h *handler) actProvider(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err != nil {
		h.fail(w, r, formStatus(err), err)
		return
	}
	action := r.PathValue("action")
	if providerDone[action] == "" {
		h.fail(w, r, http.StatusNotFound, noSuchAction(action))
		return
	}
	if _, err := api.TellProvider(h.Providers, h.Logger, r.PathValue("provider"), action, h.Actor(r)); err != nil {
		h.fail(w, r, statusOf(err), err)
		return
	}
	h.feed.stir()
	if fromHTMX(r) {
		h.flash(w, r, providerDone[action])
		return
	}
	forward(w, r, "/providers?did="+action)
}
