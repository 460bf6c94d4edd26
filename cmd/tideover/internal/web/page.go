package web

import (
	"bytes"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/control"
	"github.com/tideover/tideover/cmd/tideover/internal/storm"
	"github.com/tideover/tideover/engine"
)

// page is the data of the layout that all pages share, and the content of one page.
type page struct {
	Title   string
	Place   string // name of its entry in the navigation
	Live    string // URL of its stream; "" for none
	Version string
	Flash   string // sentence about the last action; "" for none
	Now     time.Time
	Dead    int    // number of dead letters, for the navigation
	Alone   bool   // the server has no engine
	Home    string // URL of the first page
	Nav     []navEntry
	Storms  []storm.Storm
	Refresh int // seconds after which a browser without JavaScript loads the page again; 0 means never
	Display display
	Body    any // the content
}

// Current returns the label of the page in the navigation; "Menu" if the navigation does not have it.
func (p page) Current() string {
	at := slices.IndexFunc(p.Nav, func(n navEntry) bool { return n.Name == p.Place })
	if at < 0 {
		return "Menu"
	}
	return p.Nav[at].Label
}

// layout renders pages and dialogs.
type layout struct {
	*runData
	templates *template.Template
}

// navEntry is an entry of the navigation. Key is its keyboard shortcut, after the key g.
type navEntry struct{ Name, Label, URL, Key string }

// navigation returns the entries of the pages that this server has.
func (h *layout) navigation() (list []navEntry) {
	add := func(there bool, p navEntry) {
		if there {
			list = append(list, p)
		}
	}
	work := h.hasEngine()
	add(work, navEntry{"overview", "Overview", "/overview", "o"})
	add(work, navEntry{"runs", "Runs", "/runs", "r"})
	add(work, navEntry{"dead", "Dead letters", "/dead", "d"})
	add(work, navEntry{"workflows", "Workflows", "/workflows", "w"})
	add(work, navEntry{"schedules", "Schedules", "/schedules", "t"})
	add(work && h.control.Sessions != nil, navEntry{"sessions", "Sessions", "/sessions", "s"})
	add(true, navEntry{"providers", "Providers", "/providers", "p"})
	add(true, navEntry{"requests", "Requests", "/requests", "q"})
	add(work, navEntry{"policies", "Policies", "/policies", "l"})
	add(work, navEntry{"notifications", "Notifications", "/notifications", "n"})
	add(work && h.clustered(), navEntry{"cluster", "Cluster", "/cluster", "c"})
	add(true, navEntry{"health", "Health", "/health", "h"})
	add(true, navEntry{"docs", "Docs", "/docs", "m"})
	return list
}

// home returns the URL of the first page.
func (h *layout) home() string {
	if !h.hasEngine() {
		return "/providers"
	}
	return "/overview"
}

// show renders the template with the name, and sends the page with the status.
func (h *layout) show(w http.ResponseWriter, r *http.Request, status int, name string, p page) {
	p.Version, p.Alone, p.Home, p.Nav = "tideover "+strings.TrimPrefix(h.control.System.Version(), "tideover "), !h.hasEngine(), h.home(), h.navigation()
	if p.Now.IsZero() {
		p.Now = time.Now()
	}
	p.Storms, p.Display = h.control.System.Storms(), newDisplay(r)
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
func (h *layout) render(name string, data any) ([]byte, error) {
	var b bytes.Buffer
	if err := h.templates.ExecuteTemplate(&b, name, data); err != nil {
		return nil, err
	}
	return visible(b.Bytes()), nil
}

// question asks a user to confirm an action, with a form.
type question struct {
	Title   string
	Text    string
	Button  string
	Danger  bool
	Action  string            // URL to which the form is sent
	Back    string            // URL of the page to return to
	Run     *engine.Info      // nil if the action is not about one run
	Steps   []engine.StepInfo // steps to choose from
	Same    bool              // the user may also choose no step, to keep the results of unchanged steps
	Step    int               // index of the step that is chosen at first; -1 for none
	Input   *string           // input to edit; nil for none
	Words   *string           // what the user says about an answer, to edit; nil for none
	Hidden  bool              // parts of the input are not shown
	Key     string            // of a group of dead letters
	Fields  []fact            // hidden fields that the form also sends
	Problem string            // what is wrong with the form that was sent; "" for a new form
	Dialog  bool              // shown in a dialog, not as a page
}

// fact is a text with a name.
type fact struct{ Name, Text string }

// showQuestion shows a question as a page or a dialog.
func (h *layout) showQuestion(w http.ResponseWriter, r *http.Request, status int, q *question) {
	q.Dialog = fromHTMX(r)
	h.showDialog(w, r, status, "confirm", page{Title: q.Title, Body: q})
}

// showDialog sends a page. If htmx has sent the request, it sends only the content of the page, for
// a dialog.
func (h *layout) showDialog(w http.ResponseWriter, r *http.Request, status int, name string, p page) {
	if fromHTMX(r) {
		name += "-part"
	}
	h.show(w, r, status, name, p)
}

// fromHTMX reports whether htmx sent the request, which then needs only a part of a page.
func fromHTMX(r *http.Request) bool { return r.Header.Get("HX-Request") == "true" }

// problem is the content of the page for an error.
type problem struct {
	Status int
	Text   string
	Back   string // URL of a page to go to
}

// fail shows an error, with the status of its code.
func (h *layout) fail(w http.ResponseWriter, r *http.Request, err error) {
	status := statusOf(err)
	p := problem{Status: status, Text: h.redact(err.Error()), Back: h.home()}
	if id := r.PathValue("id"); id != "" && status != http.StatusNotFound {
		p.Back = runURL(id)
	}
	for name, list := range map[string]string{"session": "/sessions", "provider": "/providers", "call": "/requests", "notifier": "/notifications", "workflow": "/workflows", "schedule": "/schedules"} {
		if r.PathValue(name) != "" {
			p.Back = list
		}
	}
	h.showDialog(w, r, status, "problem", page{Title: http.StatusText(status), Body: p})
}

// statusOf returns the HTTP status of an error, which is the same as in the API.
func statusOf(err error) int { return control.AsError(err).Status }

// actionURL returns the URL of an action on the run, session or provider whose URL is page.
func actionURL(page, action string) string { return page + "/" + url.PathEscape(action) }

// action handles a form that was sent. did is a sentence about the result, for the page that is open
// behind the dialog. to is the URL for a browser without such a page. If did is "", the browser always
// goes to that URL.
type action func(*http.Request) (did, to string, err error)

// parseForm parses the form of a request. An error has the status 413 if the form is too large, and 400
// otherwise.
func parseForm(r *http.Request) error {
	err := r.ParseForm()
	if err != nil && statusOf(err) == http.StatusInternalServerError {
		return control.NewError(control.CodeBadRequest, err.Error(), "")
	}
	return err
}

func unknownAction(action string) error {
	return control.NewError(control.CodeNotFound, fmt.Sprintf("unknown action %q", action), "")
}

// inputError says that a field of a form is wrong. text is the input that the user has typed, so that
// the form can show it again.
type inputError struct{ problem, text string }

func (e *inputError) Error() string { return e.problem }

// flash shows the sentence about an action on the open page. The stream of the page updates the rest.
func (h *layout) flash(w http.ResponseWriter, r *http.Request, text string) {
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
func (h *layout) serveKeys(w http.ResponseWriter, r *http.Request) {
	h.showDialog(w, r, http.StatusOK, "keys", page{Title: "Keyboard"})
}

// setDisplay stores a setting in a cookie, and returns to the page. It changes nothing on the server,
// so that users who may only read can use it.
func (h *layout) setDisplay(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	for _, s := range displaySettings {
		value := q.Get(s.name)
		if !slices.Contains(s.values, value) {
			continue
		}
		c := &http.Cookie{Name: "tideover-" + s.name, Value: value, Path: "/", MaxAge: 365 * 24 * 3600, HttpOnly: true, SameSite: http.SameSiteLaxMode}
		if value == s.values[0] {
			c.MaxAge = -1
		}
		http.SetCookie(w, c)
		to := h.home()
		if back, err := url.Parse(q.Get("back")); err == nil && back.Scheme == "" && back.Host == "" && strings.HasPrefix(back.Path, "/") && !strings.HasPrefix(back.Path, "//") && !strings.Contains(q.Get("back"), `\`) {
			to = back.RequestURI()
		}
		http.Redirect(w, r, to, http.StatusSeeOther)
		return
	}
	h.fail(w, r, control.NewError(control.CodeBadRequest, "unknown setting", ""))
}
