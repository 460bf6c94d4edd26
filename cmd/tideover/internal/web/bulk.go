package web

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/control"
	"github.com/tideover/tideover/internal/textfmt"
)

// bulkActions are the actions on many runs.
type bulkActions struct{ *site }

// confirmGroup asks whether to retry all runs of a group.
func (h bulkActions) confirmGroup(w http.ResponseWriter, r *http.Request) {
	g, err := h.groupOf(r.Context(), r.URL.Query().Get("group"))
	if err != nil {
		h.fail(w, r, groupStatus(err), err)
		return
	}
	h.showQuestion(w, r, http.StatusOK, &question{
		Title: fmt.Sprintf("Retry %s?", textfmt.Plural(g.Count, "dead letter")), Button: fmt.Sprintf("Retry %d", g.Count),
		Text:   fmt.Sprintf("All runs of workflow %s with this error: %s", g.Workflow, h.redact(firstLine(g.Pattern, 200))),
		Action: "/dead/retry", Back: g.URL, Key: g.Key,
	})
}

func groupStatus(err error) int {
	if errors.Is(err, errNoGroup) {
		return http.StatusNotFound
	}
	return statusOf(err)
}

// retryGroup retries the runs of a group that died before the request.
func (h bulkActions) retryGroup(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err != nil {
		h.fail(w, r, formStatus(err), err)
		return
	}
	g, err := h.groupOf(r.Context(), r.PostForm.Get("group"))
	if err != nil {
		h.fail(w, r, groupStatus(err), err)
		return
	}
	f := control.Filter{States: []string{"dead"}, Workflow: g.Workflow, Error: g.Pattern, Until: time.Now()}
	h.forAll(w, r, &bulkKinds[0], f, "/dead")
}

// forAll applies an action to all runs of a filter, and shows how many they were.
func (h bulkActions) forAll(w http.ResponseWriter, r *http.Request, a *bulkAction, f control.Filter, back string) {
	t, err := h.control.Runs.ForAll(r.Context(), a.name, f, h.actor(r))
	if err != nil {
		err = fmt.Errorf("%d were %s, then: %w", t.Done, a.past, err)
		h.failWith(w, r, err)
		return
	}
	did := url.Values{"did": {string(a.name) + "-all"}, "n": {strconv.FormatInt(t.Done, 10)}, "left": {strconv.FormatInt(t.Refused, 10)}}
	if t.More {
		did.Set("more", "1")
	}
	if fromHTMX(r) {
		h.flash(w, r, done(did))
		return
	}
	sign := "?"
	if strings.Contains(back, sign) {
		sign = "&"
	}
	forward(w, r, back+sign+did.Encode())
}
