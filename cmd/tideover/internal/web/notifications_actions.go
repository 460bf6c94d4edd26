package web

import (
	"fmt"
	"net/http"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/notify"
	"github.com/tideover/tideover/engine"
)

// testDone says that a test is on its way. Whether it arrives is in the list.
const testDone = "A test is on its way; the list says what becomes of it."

// notifierOf returns the workflow of the notifier that a request names.
func (h *handler) notifierOf(r *http.Request) (string, *engine.Workflow, error) {
	name := r.PathValue("notifier")
	flow, ok := h.Engine.Workflow(notifierPrefix + name)
	if !ok {
		return name, nil, fmt.Errorf("%w: there is no notifier %q", engine.ErrNotFound, name)
	}
	return name, flow, nil
}

// askTest asks whether a test shall be sent.
func (h *handler) askTest(w http.ResponseWriter, r *http.Request) {
	name, _, err := h.notifierOf(r)
	if err != nil {
		h.fail(w, r, statusOf(err), err)
		return
	}
	h.pose(w, r, http.StatusOK, &question{
		Title: "Send a test by " + name + "?", Button: "Send a test", Action: testURL(name), Back: "/notifications",
		Text: "Whoever gets its messages gets this one. Its limits do not count for a test; its retries do.",
	})
}

// sendTest starts a message, as everything that is sent is one: it is retried, it
// is in the list, and the trail has who did it.
func (h *handler) sendTest(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err != nil {
		h.fail(w, r, formStatus(err), err)
		return
	}
	name, flow, err := h.notifierOf(r)
	if err == nil {
		var from notify.Place
		if h.Place != nil {
			from = h.Place()
		}
		_, err = h.Engine.StartRegistered(r.Context(), flow, notify.TestMessage(name, time.Now(), from), engine.Source("test by "+h.Actor(r)))
	}
	if err != nil {
		h.fail(w, r, statusOf(err), err)
		return
	}
	if fromHTMX(r) {
		h.flash(w, r, testDone)
		return
	}
	forward(w, r, "/notifications?did=test")
}
