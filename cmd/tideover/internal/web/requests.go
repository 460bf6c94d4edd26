package web

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/admin"
	"github.com/tideover/tideover/gateway"
	"github.com/tideover/tideover/internal/console/pages"
	"github.com/tideover/tideover/internal/textfmt"
)

// listedRequests is how many requests the list shows.
const listedRequests = 100

// requestsBody is the content of the page with the list of requests.
type requestsBody struct {
	Query     requestQuery
	Providers []string
	Outcomes  []string
	Rows      []requestRow
	Since     time.Time
	Full      bool   // there may be more that match
	Off       string // why the server keeps no requests; "" if it does
}

// requestRow is a request in the list, or on its own page.
type requestRow struct {
	gateway.RequestInfo
	ID     string
	URL    string
	Path   string // the provider in its URL, and the one that answered if it is another
	Took   string // how long it took; "" for a request in progress
	Waits  string // sum of its waits
	Sizes  string // bytes of both bodies
	Tokens string // "" means unknown
	Line   []requestStep
}

// requestStep is a step of a request, with its bar in the timeline.
type requestStep struct {
	gateway.RequestStep
	From    string // time after the arrival of the request
	Took    string
	Began   time.Time
	Meaning string // of a wait: its source in words
	X, W    string // place and width of its bar
	Class   string // colour of its bar
}

// requestQuery is the filter of the list, as it is in a URL.
type requestQuery struct{ Provider, Status, Outcome, Least string }

// parseRequestQuery parses the query of a URL. It ignores values that are not valid.
func parseRequestQuery(v url.Values) requestQuery {
	q := requestQuery{Provider: strings.TrimSpace(v.Get("provider")), Status: strings.TrimSpace(v.Get("status")), Outcome: v.Get("outcome"), Least: strings.TrimSpace(v.Get("least"))}
	if admin.CheckRequestFilter(gateway.RequestFilter{Status: q.Status}) != nil {
		q.Status = ""
	}
	if !slices.Contains(gateway.Outcomes, q.Outcome) {
		q.Outcome = ""
	}
	if d, err := time.ParseDuration(q.Least); err != nil || d <= 0 {
		q.Least = ""
	}
	return q
}

func (q requestQuery) filter() gateway.RequestFilter {
	least, _ := time.ParseDuration(q.Least) // 0 for ""
	return gateway.RequestFilter{Provider: q.Provider, Status: q.Status, Outcome: q.Outcome, Least: least, Limit: listedRequests}
}

// Narrow reports whether the query has any condition.
func (q requestQuery) Narrow() bool { return q != requestQuery{} }

// encode returns the query as the query string of a URL, without empty values.
func (q requestQuery) encode() string {
	v := url.Values{}
	for name, value := range map[string]string{"provider": q.Provider, "status": q.Status, "outcome": q.Outcome, "least": q.Least} {
		if value != "" {
			v.Set(name, value)
		}
	}
	return v.Encode()
}

func (q requestQuery) url(path string) string {
	if s := q.encode(); s != "" {
		return path + "?" + s
	}
	return path
}

// requestsPage shows the list of requests, and the page of each.
type requestsPage struct{ server }

// serve shows the list. With the parameter call, or q, it goes to the page of that request.
func (h requestsPage) serve(w http.ResponseWriter, r *http.Request) {
	given := r.URL.Query()
	if id := callID(cmp.Or(given.Get("call"), given.Get("q"))); id != "" {
		h.Redirect(w, r, requestPage(id))
		return
	}
	q := parseRequestQuery(given)
	if q.encode() != given.Encode() {
		h.Redirect(w, r, q.url("/requests"))
		return
	}
	p, err := h.loadList(r.Context(), q, time.Now())
	if err != nil {
		h.Fail(w, r, err)
		return
	}
	h.Show(w, r, http.StatusOK, p.Template, p.Data)
}

// callID returns the id in the text of the search box, which may be the whole line of the header.
func callID(text string) string {
	if i := strings.LastIndexByte(text, ':'); i >= 0 {
		text = text[i+1:]
	}
	return strings.Trim(text, " \t\r\n\"'`")
}

func (h requestsPage) live(w http.ResponseWriter, r *http.Request) {
	q := parseRequestQuery(r.URL.Query())
	h.Stream(w, r, "", func(ctx context.Context, now time.Time) (pages.Part, error) { return h.loadList(ctx, q, now) })
}

func (h requestsPage) loadList(ctx context.Context, q requestQuery, now time.Time) (pages.Part, error) {
	p := h.newPart(ctx, "requests", "Requests", q.url("/live/requests"), now)
	list, err := h.control.Requests.List(q.filter())
	if err != nil {
		return p, err
	}
	b := requestsBody{Query: q, Outcomes: gateway.Outcomes, Since: list.Since, Full: len(list.Requests) == listedRequests}
	if list.Off {
		b.Off = admin.NoRequestsKept
	}
	for _, st := range h.control.Providers.List() {
		b.Providers = append(b.Providers, st.Name)
	}
	if q.Provider != "" && !slices.Contains(b.Providers, q.Provider) {
		b.Providers = append(b.Providers, q.Provider)
	}
	for _, r := range list.Requests {
		row := newRequestRow(h.redact.request(r))
		p.Moving = p.Moving || r.Outcome == gateway.InProgress
		b.Rows = append(b.Rows, row)
	}
	p.Data.Body = b
	return p, nil
}

func (h requestsPage) load(ctx context.Context, id string, now time.Time) (pages.Part, error) {
	p := h.newPart(ctx, "request", "Request "+id, "/live/requests/"+url.PathEscape(id), now)
	r, err := h.control.Requests.Get(id)
	if err != nil {
		return p, err
	}
	row := newRequestRow(h.redact.request(r))
	row.setLine()
	p.Moving = r.Outcome == gateway.InProgress
	p.Data.Body = row
	return p, nil
}

// newPart returns the part of a page about requests, without its content.
func (h requestsPage) newPart(ctx context.Context, template, title, live string, now time.Time) pages.Part {
	p := pages.Page{Title: title, Place: "requests", Live: live, Now: now, Dead: h.DeadCount(ctx)}
	return pages.Part{Template: template, Polled: true, Data: p}
}

// requestPage returns the URL of the page of a request.
func requestPage(id string) string { return "/requests/" + url.PathEscape(id) }

func newRequestRow(r gateway.RequestInfo) requestRow {
	row := requestRow{RequestInfo: r, ID: strconv.FormatUint(r.Call, 10), Path: r.Provider}
	row.URL = requestPage(row.ID)
	if r.From != "" && r.From != r.Provider {
		row.Path += " → " + r.From
	}
	if r.Outcome != gateway.InProgress {
		row.Took, row.Waits = pages.Exact(durationOf(r.Seconds)), seconds(r.Waited)
	}
	row.Sizes = textfmt.FormatSize(r.RequestBytes) + " in, " + textfmt.FormatSize(r.ResponseBytes) + " out"
	if r.InputTokens > 0 || r.OutputTokens > 0 {
		row.Tokens = fmt.Sprintf("%d in, %d out", r.InputTokens, r.OutputTokens)
	}
	return row
}

// setLine sets the steps. The timeline of a request in progress ends with the start of its last
// step, so that the page does not change while nothing happens.
func (r *requestRow) setLine() {
	whole := 0.0
	for _, s := range r.Steps {
		whole = max(whole, s.At)
		if !s.Open {
			whole = max(whole, s.At+s.Seconds)
		}
	}
	if r.Took != "" {
		whole = r.Seconds
	}
	for _, s := range r.Steps {
		x := requestStep{RequestStep: s, From: "+" + pages.Exact(durationOf(s.At)), Began: r.Time.Add(durationOf(s.At)), Class: stepClass(&s)}
		width := s.Seconds
		if s.Open {
			width = whole - s.At
		} else {
			x.Took = pages.Exact(durationOf(s.Seconds))
		}
		if s.Kind == gateway.StepWait {
			x.Meaning = admin.WaitMeaning(s.By)
		}
		if whole > 0 {
			w := min(max(100*width/whole, pages.Thinnest), 100)
			x.X, x.W = pages.Percent(min(100*s.At/whole, 100-w)), pages.Percent(w)
		}
		r.Line = append(r.Line, x)
	}
}

// stepClass returns the class of the colour of a step.
func stepClass(s *gateway.RequestStep) string {
	switch {
	case s.Kind == gateway.StepWait || s.Open:
		return "wait"
	case s.Kind == gateway.StepFailover || s.Kind == gateway.StepNotUsed || s.Result == gateway.AttemptCanceled:
		return "idle"
	case s.Result == gateway.AttemptSucceeded && s.Status < http.StatusBadRequest:
		return "good"
	}
	return "bad"
}

func durationOf(seconds float64) time.Duration {
	return time.Duration(seconds * float64(time.Second))
}
