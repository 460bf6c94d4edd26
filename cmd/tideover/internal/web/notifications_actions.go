package web

import (
	"net/http"
	"net/url"
)

// testDone is shown after a test message was started. The list shows whether it arrives.
const testDone = "The test message is queued; the list shows its result."

// notificationDone returns the sentence about the action of a query.
func notificationDone(v url.Values) string {
	if v.Get("did") == "test" {
		return testDone
	}
	return ""
}

// confirmTest asks whether to send a test message.
func (h notificationsPage) confirmTest(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("notifier")
	if err := h.control.Messages.Check(name); err != nil {
		h.failWith(w, r, err)
		return
	}
	h.showQuestion(w, r, http.StatusOK, &question{
		Title: "Send a test message with " + name + "?", Button: "Send", Action: testURL(name), Back: "/notifications",
		Text: "The recipients of this notifier get the message. Rate limits do not apply to a test; retries do.",
	})
}

// sendTest sends a test message.
func (h notificationsPage) sendTest(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err != nil {
		h.fail(w, r, formStatus(err), err)
		return
	}
	if err := h.control.Messages.SendTest(r.Context(), r.PathValue("notifier"), h.actor(r)); err != nil {
		h.failWith(w, r, err)
		return
	}
	if fromHTMX(r) {
		h.flash(w, r, testDone)
		return
	}
	forward(w, r, "/notifications?did=test")
}
