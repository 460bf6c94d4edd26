package pages

import (
	"bytes"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/console/control"
)

// Page is the data of the layout that all pages share, and the content of one page.
type Page struct {
	Title   string
	Place   string // name of its entry in the navigation
	Live    string // URL of its stream; "" for none
	Program string // name and version, for the end of the page
	Flash   string // sentence about the last action; "" for none
	Now     time.Time
	Dead    int    // number of dead letters, for the navigation
	Alone   bool   // the server has no engine
	Base    string // before the URLs of all pages
	File    bool   // workflows and schedules are in a configuration file
	Home    string // URL of the first page
	Nav     []MenuEntry
	Storms  []Storm
	Refresh int // seconds after which a browser without JavaScript loads the page again; 0 means never
	Display display
	Body    any // the content
}

// Current returns the label of the page in the navigation; "Menu" if the navigation does not have it.
func (p Page) Current() string {
	at := slices.IndexFunc(p.Nav, func(n MenuEntry) bool { return n.Name == p.Place })
	if at < 0 {
		return "Menu"
	}
	return p.Nav[at].Label
}

// Layout renders pages and dialogs.
type Layout struct {
	*Data
	options   Options
	templates *template.Template
}

// MenuEntry is an entry of the navigation. Key is its keyboard shortcut, after the key g.
type MenuEntry struct{ Name, Label, URL, Key string }

// The entries of the pages about runs.
var (
	MenuRuns      = MenuEntry{"runs", "Runs", "/runs", "r"}
	MenuDead      = MenuEntry{"dead", "Dead letters", "/dead", "d"}
	MenuWorkflows = MenuEntry{"workflows", "Workflows", "/workflows", "w"}
	MenuSchedules = MenuEntry{"schedules", "Schedules", "/schedules", "t"}
)

// menu returns the entries of the navigation. The first one is the first page.
func (h *Layout) menu() []MenuEntry {
	if h.options.Menu != nil {
		return h.options.Menu
	}
	return []MenuEntry{MenuRuns, MenuDead, MenuWorkflows, MenuSchedules}
}

// home returns the URL of the first page.
func (h *Layout) home() string { return h.menu()[0].URL }

// Show renders the template with the name, and sends the page with the status.
func (h *Layout) Show(w http.ResponseWriter, r *http.Request, status int, name string, p Page) {
	p.Program, p.Alone, p.Home, p.Nav, p.Base, p.File = h.options.Program, !h.HasEngine(), h.home(), h.menu(), h.options.Base, h.options.File
	if p.Now.IsZero() {
		p.Now = time.Now()
	}
	p.Storms, p.Display = h.storms(), newDisplay(r)
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
func (h *Layout) render(name string, data any) ([]byte, error) {
	b, err := h.execute(name, data)
	return h.rebase(visible(b)), err
}

// execute is render without the changes to the whole page.
func (h *Layout) execute(name string, data any) ([]byte, error) {
	var b bytes.Buffer
	err := h.templates.ExecuteTemplate(&b, name, data)
	return b.Bytes(), err
}

// urlAttribute matches the beginning of an attribute with a URL that begins at the root. No text of users does: the
// templates escape its quotation marks.
var urlAttribute = regexp.MustCompile(` (?:href|action|src|hx-post|hx-sse:connect)="/`)

// rebase puts the base before all URLs of a page.
func (h *Layout) rebase(page []byte) []byte {
	if h.options.Base == "" {
		return page
	}
	return urlAttribute.ReplaceAllFunc(page, func(found []byte) []byte {
		return append(append(found[:len(found)-1:len(found)-1], h.options.Base...), '/')
	})
}

// storms returns the retry storms at the moment.
func (h *Layout) storms() []Storm {
	if h.options.Storms == nil {
		return nil
	}
	return h.options.Storms()
}

// Question asks a user to confirm an action, with a form.
type Question struct {
	Title   string
	Text    string
	Button  string // "" if there is nothing to do
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
	Fields  []Fact            // hidden fields that the form also sends
	Problem string            // what is wrong with the form that was sent; "" for a new form
	Dialog  bool              // shown in a dialog, not as a page
}

// place returns the entry of the navigation that a question about a run belongs to.
func (q *Question) place() string {
	if q.Run != nil {
		return MenuRuns.Name
	}
	return ""
}

// Fact is a text with a name.
type Fact struct{ Name, Text string }

// showQuestion shows a question as a page or a dialog.
func (h *Layout) showQuestion(w http.ResponseWriter, r *http.Request, status int, q *Question) {
	q.Dialog = fromHTMX(r)
	h.showDialog(w, r, status, "confirm", Page{Title: q.Title, Place: q.place(), Body: q})
}

// showDialog sends a page. If htmx has sent the request, it sends only the content of the page, for
// a dialog.
func (h *Layout) showDialog(w http.ResponseWriter, r *http.Request, status int, name string, p Page) {
	if fromHTMX(r) {
		name += "-part"
	}
	h.Show(w, r, status, name, p)
}

// fromHTMX reports whether htmx sent the request, which then needs only a part of a page.
func fromHTMX(r *http.Request) bool { return r.Header.Get("HX-Request") == "true" }

// problem is the content of the page for an error.
type problem struct {
	Status int
	Text   string
	Back   string // URL of a page to go to
}

// Fail shows an error, with the status of its code.
func (h *Layout) Fail(w http.ResponseWriter, r *http.Request, err error) {
	status := StatusOf(err)
	p := problem{Status: status, Text: h.Redact(err.Error()), Back: h.home()}
	if id := r.PathValue("id"); id != "" && status != http.StatusNotFound {
		p.Back = RunURL(id)
	}
	for _, lists := range []map[string]string{{"workflow": MenuWorkflows.URL, "schedule": MenuSchedules.URL}, h.options.Lists} {
		for name, list := range lists {
			if r.PathValue(name) != "" {
				p.Back = list
			}
		}
	}
	h.showDialog(w, r, status, "problem", Page{Title: http.StatusText(status), Body: p})
}

// StatusOf returns the HTTP status of an error, which is the same as in the API.
func StatusOf(err error) int { return control.AsError(err).Status }

// ActionURL returns the URL of an action on the run, session or provider whose URL is page.
func ActionURL(page, action string) string { return page + "/" + url.PathEscape(action) }

// Action handles a form that was sent. did is a sentence about the result, for the page that is open
// behind the dialog. to is the URL for a browser without such a page. If did is "", the browser always
// goes to that URL.
type Action func(*http.Request) (did, to string, err error)

// parseForm parses the form of a request. An error has the status 413 if the form is too large, and 400
// otherwise.
func parseForm(r *http.Request) error {
	err := r.ParseForm()
	if err != nil && StatusOf(err) == http.StatusInternalServerError {
		return control.NewError(control.CodeBadRequest, err.Error(), "")
	}
	return err
}

// UnknownAction returns the error for an action that does not exist.
func UnknownAction(action string) error {
	return control.NewError(control.CodeNotFound, fmt.Sprintf("unknown action %q", action), "")
}

// inputError says that a field of a form is wrong. text is the input that the user has typed, so that
// the form can show it again.
type inputError struct{ problem, text string }

func (e *inputError) Error() string { return e.problem }

// flash shows the sentence about an action on the open page. The stream of the page updates the rest.
func (h *Layout) flash(w http.ResponseWriter, r *http.Request, text string) {
	w.Header().Set("HX-Trigger", "done")
	h.Show(w, r, http.StatusOK, "flash", Page{Flash: text})
}

// Redirect sends the browser to another page. The URL is one of our pages, without the base.
func (h *Layout) Redirect(w http.ResponseWriter, r *http.Request, to string) {
	http.Redirect(w, r, h.options.Base+to, http.StatusSeeOther)
}

// forward sends the browser, or the script that has sent a form, to another page.
func (h *Layout) forward(w http.ResponseWriter, r *http.Request, to string) {
	if fromHTMX(r) {
		w.Header().Set("HX-Redirect", h.options.Base+to)
		return
	}
	h.Redirect(w, r, to)
}

// serveKeys shows the keyboard shortcuts. static/app.js implements them.
func (h *Layout) serveKeys(w http.ResponseWriter, r *http.Request) {
	h.showDialog(w, r, http.StatusOK, "keys", Page{Title: "Keyboard"})
}

// setDisplay stores a setting in a cookie, and returns to the page. It changes nothing on the server,
// so that users who may only read can use it.
func (h *Layout) setDisplay(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	for _, s := range displaySettings {
		value := q.Get(s.name)
		if !slices.Contains(s.values, value) {
			continue
		}
		c := &http.Cookie{Name: "tideover-" + s.name, Value: value, Path: h.options.Base + "/", MaxAge: 365 * 24 * 3600, HttpOnly: true, SameSite: http.SameSiteLaxMode}
		if value == s.values[0] {
			c.MaxAge = -1
		}
		http.SetCookie(w, c)
		to := h.home()
		if back, err := url.Parse(q.Get("back")); err == nil && back.Scheme == "" && back.Host == "" && strings.HasPrefix(back.Path, "/") && !strings.HasPrefix(back.Path, "//") && !strings.Contains(q.Get("back"), `\`) {
			to = back.RequestURI()
		}
		h.Redirect(w, r, to)
		return
	}
	h.Fail(w, r, control.NewError(control.CodeBadRequest, "unknown setting", ""))
}
