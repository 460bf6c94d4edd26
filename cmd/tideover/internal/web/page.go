package web

import (
	"bytes"
	"net/http"
	"strings"
	"time"
)

// page is what every page needs.
type page struct {
	Title   string
	Place   string // which entry of the navigation it belongs to
	Live    string // address of its stream; "" for none
	Version string
	Flash   string // what was just done
	Now     time.Time
	Dead    int  // dead letters, for the navigation
	Alone   bool // there are providers only
	Home    string
	Nav     []station
	Storms  []Storm
	Body    any
}

// station is an entry of the navigation.
type station struct{ Name, Label, URL, Key string }

// stations returns the pages that there are. Key is what g is followed by to get
// there.
func (h *handler) stations() (list []station) {
	add := func(there bool, p station) {
		if there {
			list = append(list, p)
		}
	}
	work := h.Engine != nil
	add(work, station{"overview", "Overview", "/overview", "o"})
	add(work, station{"runs", "Runs", "/runs", "r"})
	add(work, station{"dead", "Dead letters", "/dead", "d"})
	add(work && h.Sessions != nil, station{"sessions", "Sessions", "/sessions", "s"})
	add(true, station{"providers", "Providers", "/providers", "p"})
	add(work, station{"policies", "Policies", "/policies", "l"})
	add(work, station{"notifications", "Notifications", "/notifications", "n"})
	add(work && h.Clustered, station{"cluster", "Cluster", "/cluster", "c"})
	add(true, station{"health", "Health", "/health", "h"})
	return list
}

// show answers with a page.
func (h *handler) show(w http.ResponseWriter, r *http.Request, status int, name string, p page) {
	p.Version, p.Alone, p.Home, p.Nav = "tideover "+strings.TrimPrefix(h.Version, "tideover "), h.Engine == nil, h.home(), h.stations()
	if p.Now.IsZero() {
		p.Now = time.Now()
	}
	p.Storms = h.storms(p.Now)
	b, err := h.render(name, p)
	if err != nil {
		http.Error(w, "the page can't be shown: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(b)
	}
}

// render runs a template. Everything that is shown passes here.
func (h *handler) render(name string, data any) ([]byte, error) {
	var b bytes.Buffer
	if err := h.templates.ExecuteTemplate(&b, name, data); err != nil {
		return nil, err
	}
	return visible(b.Bytes()), nil
}
