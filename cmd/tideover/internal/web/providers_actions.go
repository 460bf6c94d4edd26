package web

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/control"
	"github.com/tideover/tideover/gateway"
)

// providerTexts has the sentence that is shown after each action.
var providerTexts = map[string]string{
	gateway.Open: "Blocked: no requests are sent to it.", gateway.Close: "Forced: it counts as up even if it fails.",
	gateway.Reset: "Reset: its health decides again.", gateway.Drain: "Draining: no new requests are sent to it.",
}

// providerOffers returns the actions that are possible for a provider.
func providerOffers(st *gateway.Status) (list []offer) {
	add := func(action, label string) {
		list = append(list, offer{action, label, providerURL(st.Name, action), action == gateway.Open})
	}
	overridden := st.Held || st.State == gateway.Opened || st.State == gateway.Draining
	if overridden || st.State == gateway.Down || len(st.Throttles) > 0 || slices.ContainsFunc(st.Keys, isCooling) {
		add(gateway.Reset, "Reset")
	}
	if !st.Held {
		add(gateway.Close, "Force")
	}
	if st.State != gateway.Draining && st.State != gateway.Opened {
		add(gateway.Drain, "Drain")
	}
	if st.State != gateway.Opened {
		add(gateway.Open, "Block")
	}
	return list
}

// isCooling reports whether a key must not be used at the moment.
func isCooling(k gateway.KeyInfo) bool { return k.CoolUntil != nil && k.CoolUntil.After(time.Now()) }

// question asks whether to apply an action to a provider.
func (h providersPage) question(r *http.Request) (*question, error) {
	name, action := r.PathValue("provider"), r.PathValue("action")
	st, err := h.control.Providers.Get(name)
	if err != nil {
		return nil, err
	}
	q := &question{Action: providerURL(name, action), Back: "/providers"}
	switch action {
	case gateway.Open:
		q.Title, q.Button, q.Danger = "Block "+name+"?", "Block", true
		q.Text = "No requests are sent to this provider until an operator forces or resets it. " + fallbackText(&st)
	case gateway.Close:
		q.Title, q.Button = "Force "+name+"?", "Force"
		q.Text = "This provider counts as up even if it fails: requests are sent to it until an operator blocks or resets it."
	case gateway.Reset:
		q.Title, q.Button = "Reset "+name+"?", "Reset"
		q.Text = "Blocking, forcing or draining ends, and the throttles and rejections of its keys are cleared. If the provider is down, the next request is a probe."
	case gateway.Drain:
		q.Title, q.Button = "Drain "+name+"?", "Drain"
		q.Text = fmt.Sprintf("Requests in flight (%d) are finished. No new requests are sent to this provider until an operator resets it. %s", st.InFlight, fallbackText(&st))
	default:
		return nil, unknownAction(action)
	}
	return q, nil
}

// fallbackText returns a sentence about requests that the provider does not get.
func fallbackText(st *gateway.Status) string {
	if len(st.Fallback) == 0 {
		return "It has no fallback: requests are rejected."
	}
	return "Requests go to " + strings.Join(st.Fallback, ", ") + ", or are rejected."
}

func unknownAction(action string) error {
	return control.NewError(control.CodeNotFound, fmt.Sprintf("unknown action %q", action), "")
}

// act applies an action to a provider.
func (h providersPage) act(r *http.Request) (did, to string, err error) {
	action := r.PathValue("action")
	if providerTexts[action] == "" {
		return "", "", unknownAction(action)
	}
	if _, err := h.control.Providers.Apply(r.PathValue("provider"), action, h.actor(r)); err != nil {
		return "", "", err
	}
	h.feed.touchAll()
	return providerTexts[action], "/providers?did=" + action, nil
}
