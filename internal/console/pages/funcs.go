package pages

import (
	"cmp"
	"embed"
	"encoding/json"
	"html/template"
	"maps"
	"strings"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/textfmt"
)

// State says how pages show a state or an outcome. The glyph distinguishes it not only by colour.
type State struct {
	Glyph string
	Label string // empty means the name of the state, with spaces instead of hyphens
}

// Glyph returns the glyph of a state or outcome of runs, steps, operations and attempts; "" if there is no such state.
func Glyph(state string) string { return runStates[state].Glyph }

// runStates has the states and outcomes of runs, steps, operations and attempts.
var runStates = map[string]State{
	"running": {Glyph: "●"}, "waiting": {Glyph: "◐"}, "queued": {Glyph: "◌"}, "scheduled": {Glyph: "○"}, "needs-handler": {Glyph: "?"},
	"dead": {Glyph: "✕"}, "failed": {Glyph: "✕"}, "succeeded": {Glyph: "✓"}, "canceled": {Glyph: "⊘"},
	"replaced": {Glyph: "→"}, "lost": {Glyph: "!"}, "late": {Glyph: "!"}, "released": {Glyph: "↺"}, "snoozed": {Glyph: "◐"},
	"limited": {Glyph: "◐"}, "paused": {Glyph: "∥"}, "undoing": {Glyph: "↶"}, "suspended": {Glyph: "∥"}, "continued": {Glyph: "→"},
	"asking": {Glyph: "?", Label: "asks"}, "skipped": {Glyph: "↷"}, "not-begun": {Glyph: "◌"}, "undone": {Glyph: "↶"}, "undo-failed": {Glyph: "✕"},
}

//go:embed templates
var templates embed.FS

// newTemplates parses the templates, also those of further pages.
func newTemplates(o *Options) *template.Template {
	t := template.Must(template.New("").Funcs(templateFuncs(loadAssets(), o)).ParseFS(templates, "templates/*.html"))
	if o.Templates != nil {
		template.Must(t.ParseFS(o.Templates, "templates/*.html"))
	}
	return t
}

// templateFuncs returns the functions that templates call.
func templateFuncs(a assets, o *Options) template.FuncMap {
	states := maps.Clone(runStates)
	maps.Copy(states, o.States)
	return template.FuncMap{
		"asset": a.url,
		"ago":   ago, "in": in, "since": since, "at": at,
		"exact": Exact, "stamp": stamp, "span": SpacedDuration,
		"minutes": func(d time.Duration) int { return int(d / time.Minute) },
		"shown":   shownState,
		"cause":   newCause,
		"short":   firstLine, "head": head, "hand": WaitSetter,
		"json":   func(text json.RawMessage) string { return pretty(string(text)) },
		"glyph":  func(state string) string { return states[state].Glyph },
		"words":  func(s string) string { return strings.ReplaceAll(s, "-", " ") },
		"label":  func(state string) string { return cmp.Or(states[state].Label, strings.ReplaceAll(state, "-", " ")) },
		"count":  textfmt.Plural,
		"long":   func(s string, n int) bool { return firstLine(s, n) != s },
		"list":   func(s ...string) string { return strings.Join(s, ", ") },
		"rows":   func(least int, s string) int { return min(max(strings.Count(s, "\n")+2, least), 24) },
		"millis": func(p Page) int64 { return p.Now.UnixMilli() },
		"pair":   func(p Page, v any) pair { return pair{p, v} },
	}
}

// shownState returns the state of a run as pages show it: one that asks a question needs a person,
// whatever else it does.
func shownState(i *engine.Info) string {
	if i.Asking && !i.Finished() {
		return "asking"
	}
	return i.State
}

// pair passes the page and a part of it to a template.
type pair struct {
	Page Page
	V    any
}
