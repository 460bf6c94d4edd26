package web

import (
	"context"
	"net/http"
	"strings"

	"github.com/tideover/tideover/cmd/tideover/internal/admin"
	"github.com/tideover/tideover/cmd/tideover/internal/httpserver"
	"github.com/tideover/tideover/gateway"
	"github.com/tideover/tideover/internal/console/pages"
)

// server is what the pages about the server need.
type server struct {
	*pages.Streams
	control *admin.Service
	redact  redactor
}

// program returns the name and the version of the program.
func program(c *admin.Service) string {
	return "tideover " + strings.TrimPrefix(c.System.Version(), "tideover ")
}

func callerOf(r *http.Request) pages.Caller { return pages.Caller(httpserver.CallerOf(r.Context())) }

func longRequest(w http.ResponseWriter, r *http.Request) (context.Context, context.CancelFunc) {
	return httpserver.LongRequest(w, r, 0)
}

func (h *server) storms() (list []pages.Storm) {
	for _, s := range h.control.System.Storms() {
		list = append(list, pages.Storm{Layer: s.Layer, Name: s.Name, Amplification: s.Amplification, Since: s.Since})
	}
	return list
}

// states are the states and outcomes of sessions, providers and requests.
var states = map[string]pages.State{
	"completed": {Glyph: "✓"}, "stopped": {Glyph: "⊘"}, "gave-up": {Glyph: "✕"}, "idle": {Glyph: "○"},
	gateway.InProgress: {Glyph: "◐"}, gateway.RequestRejected: {Glyph: "⊖"}, gateway.RequestCutShort: {Glyph: "!"},
	gateway.Up: {Glyph: "●"}, gateway.Throttled: {Glyph: "◐"}, gateway.Refused: {Glyph: "⊖"}, gateway.Recovering: {Glyph: "↗"},
	gateway.Probing: {Glyph: "?"}, gateway.Down: {Glyph: "✕"}, gateway.Opened: {Glyph: "⊘", Label: "blocked"}, gateway.Draining: {Glyph: "↘"},
}

// menu returns the entries of the pages that the server has.
func (h *server) menu() (list []pages.MenuEntry) {
	add := func(there bool, more ...pages.MenuEntry) {
		if there {
			list = append(list, more...)
		}
	}
	work := h.control.Runs != nil
	add(work, pages.MenuEntry{Name: "overview", Label: "Overview", URL: "/overview", Key: "o"}, pages.MenuRuns, pages.MenuDead, pages.MenuWorkflows, pages.MenuSchedules)
	add(work && h.control.Sessions != nil, pages.MenuEntry{Name: "sessions", Label: "Sessions", URL: "/sessions", Key: "s"})
	add(true, pages.MenuEntry{Name: "providers", Label: "Providers", URL: "/providers", Key: "p"}, pages.MenuEntry{Name: "requests", Label: "Requests", URL: "/requests", Key: "q"})
	add(work, pages.MenuEntry{Name: "policies", Label: "Policies", URL: "/policies", Key: "l"}, pages.MenuEntry{Name: "notifications", Label: "Notifications", URL: "/notifications", Key: "n"})
	add(work && h.control.System.Clustered(), pages.MenuEntry{Name: "cluster", Label: "Cluster", URL: "/cluster", Key: "c"})
	add(true, pages.MenuEntry{Name: "health", Label: "Health", URL: "/health", Key: "h"}, pages.MenuEntry{Name: "docs", Label: "Docs", URL: "/docs", Key: "m"})
	return list
}

// offersTo returns the actions, or none for a caller who may only look.
func offersTo(ctx context.Context, list []pages.Offer) []pages.Offer {
	if pages.CallerOf(ctx).ReadOnly {
		return nil
	}
	return list
}
