package web

import (
	"bytes"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/storm"
	"github.com/tideover/tideover/engine"
)

// page is the data that every page needs.
type page struct {
	Title   string
	Place   string // name of its entry in the navigation
	Live    string // URL of its stream; "" for none
	Version string
	Flash   string // what the last action did
	Now     time.Time
	Dead    int  // dead letters, for the navigation
	Alone   bool // there is no engine
	Home    string
	Nav     []navEntry
	Storms  []storm.Storm
	Body    any
}

// navEntry is an entry of the navigation.
type navEntry struct{ Name, Label, URL, Key string }

// navigation returns the entries of the pages that exist. The keys g and Key open a page.
func (h *Site) navigation() (list []navEntry) {
	add := func(there bool, p navEntry) {
		if there {
			list = append(list, p)
		}
	}
	work := h.hasEngine()
	add(work, navEntry{"overview", "Overview", "/overview", "o"})
	add(work, navEntry{"runs", "Runs", "/runs", "r"})
	add(work, navEntry{"dead", "Dead letters", "/dead", "d"})
	add(work && h.control.Sessions != nil, navEntry{"sessions", "Sessions", "/sessions", "s"})
	add(true, navEntry{"providers", "Providers", "/providers", "p"})
	add(work, navEntry{"policies", "Policies", "/policies", "l"})
	add(work, navEntry{"notifications", "Notifications", "/notifications", "n"})
	add(work && h.clustered(), navEntry{"cluster", "Cluster", "/cluster", "c"})
	add(true, navEntry{"health", "Health", "/health", "h"})
	return list
}

// show sends a page.
func (h *Site) show(w http.ResponseWriter, r *http.Request, status int, name string, p page) {
	p.Version, p.Alone, p.Home, p.Nav = "tideover "+strings.TrimPrefix(h.control.System.Version(), "tideover "), !h.hasEngine(), h.home(), h.navigation()
	if p.Now.IsZero() {
		p.Now = time.Now()
	}
	p.Storms = h.control.System.Storms()
	b, err := h.render(name, p)
	if err != nil {
		http.Error(w, "can't render the page: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(b)
	}
}

// render executes a template. All output of the package passes through here.
func (h *Site) render(name string, data any) ([]byte, error) {
	var b bytes.Buffer
	if err := h.templates.ExecuteTemplate(&b, name, data); err != nil {
		return nil, err
	}
	return visible(b.Bytes()), nil
}

// question is asked before an action.
type question struct {
	Title   string
	Text    string
	Button  string
	Danger  bool
	Action  string // URL of the form
	Back    string
	Run     *engine.Info
	Steps   []engine.StepInfo // to choose from
	Same    bool              // or no step, to keep the results of the steps that are the same
	Step    int               // chosen
	Input   *string           // to edit
	Hidden  bool              // parts of the input are not shown
	Key     string            // of a group
	Fields  []fact            // what else the form sends
	Problem string            // with what was sent
	Dialog  bool
}

// showQuestion shows a question as a page or a dialog.
func (h *Site) showQuestion(w http.ResponseWriter, r *http.Request, status int, q *question) {
	q.Dialog = fromHTMX(r)
	h.showDialog(w, r, status, "confirm", page{Title: q.Title, Body: q})
}

// showDialog sends a page, or only its content for a dialog.
func (h *Site) showDialog(w http.ResponseWriter, r *http.Request, status int, name string, p page) {
	if fromHTMX(r) {
		name += "-part"
	}
	h.show(w, r, status, name, p)
}

// action does what a form requests. It returns a sentence about what it did, for the page on which
// the question was asked, and the URL of the page for a browser that is not on it. Without a sentence
// the browser always goes there.
type action func(*http.Request) (did, to string, err error)

// form adds the question before an action, and the action.
func (h *Site) form(path string, ask func(*http.Request) (*question, error), do action) {
	h.mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
		q, err := ask(r)
		if err != nil {
			h.failWith(w, r, err)
			return
		}
		h.showQuestion(w, r, http.StatusOK, q)
	})
	h.mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
		if err := r.ParseForm(); err != nil {
			status := statusOf(err)
			if status == http.StatusInternalServerError {
				status = http.StatusBadRequest
			}
			h.fail(w, r, status, err)
			return
		}
		did, to, err := do(r)
		var q *question
		wrong, again := errors.AsType[*inputError](err)
		if again {
			q, err = ask(r)
		}
		switch {
		case err != nil:
			h.failWith(w, r, err)
		case again:
			if q.Problem = wrong.problem; q.Input != nil {
				q.Input = &wrong.text
			}
			h.showQuestion(w, r, http.StatusUnprocessableEntity, q)
		case did != "" && fromHTMX(r):
			h.flash(w, r, did)
		default:
			forward(w, r, to)
		}
	})
}

// inputError is an error in a form.
type inputError struct{ problem, text string }

func (e *inputError) Error() string { return e.problem }

// flash shows the result of an action on an open page. The stream of the page updates the rest.
func (h *Site) flash(w http.ResponseWriter, r *http.Request, text string) {
	w.Header().Set("HX-Trigger", "done")
	h.show(w, r, http.StatusOK, "flash", page{Flash: text})
}

// forward sends the browser to another page.
func forward(w http.ResponseWriter, r *http.Request, to string) {
	if fromHTMX(r) {
		w.Header().Set("HX-Redirect", to)
		return
	}
	http.Redirect(w, r, to, http.StatusSeeOther)
}

// serveKeys shows the keyboard shortcuts. static/app.js implements them.
func (h *Site) serveKeys(w http.ResponseWriter, r *http.Request) {
	h.showDialog(w, r, http.StatusOK, "keys", page{Title: "Keyboard"})
}
