package web

import (
	"embed"
	"encoding/json"
	"html/template"
	"strings"
	"sync"
	"time"

	"github.com/tideover/tideover/gateway"
	"github.com/tideover/tideover/internal/textfmt"
)

// glyphs has a symbol for each state and outcome, so that pages distinguish them not only by colour.
var glyphs = map[string]string{
	"running": "●", "waiting": "◐", "queued": "◌", "scheduled": "○", "needs-handler": "?",
	"dead": "✕", "failed": "✕", "succeeded": "✓", "canceled": "⊘", "replaced": "→", "lost": "!", "late": "!", "released": "↺", "snoozed": "◐", "limited": "◐", "paused": "∥", "undoing": "↶", "suspended": "∥", "continued": "→", "asking": "?",
	"skipped": "↷", "not-begun": "◌", "undone": "↶", "undo-failed": "✕",
	"completed": "✓", "stopped": "⊘", "gave-up": "✕", "idle": "○",
	gateway.InProgress: "◐", gateway.RequestRejected: "⊖", gateway.RequestCutShort: "!",
	gateway.Up: "●", gateway.Throttled: "◐", gateway.Refused: "⊖", gateway.Recovering: "↗", gateway.Probing: "?", gateway.Down: "✕", gateway.Opened: "⊘", gateway.Draining: "↘",
}

//go:embed templates
var templates embed.FS

// loadTemplates parses the templates once for all pages of the process.
var loadTemplates = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("").Funcs(templateFuncs(loadAssets())).ParseFS(templates, "templates/*.html"))
})

// templateFuncs returns the functions that templates call.
func templateFuncs(a assets) template.FuncMap {
	return template.FuncMap{
		"asset": a.url,
		"ago":   ago, "in": in, "since": since, "at": at,
		"exact": exact, "stamp": stamp, "span": spacedDuration,
		"minutes": func(d time.Duration) int { return int(d / time.Minute) },
		"short":   firstLine, "head": head, "hand": waitSetter,
		"json":   func(text json.RawMessage) string { return pretty(string(text)) },
		"glyph":  func(state string) string { return glyphs[state] },
		"words":  func(s string) string { return strings.ReplaceAll(s, "-", " ") },
		"label":  stateLabel,
		"count":  textfmt.Plural,
		"long":   func(s string, n int) bool { return firstLine(s, n) != s },
		"list":   func(s ...string) string { return strings.Join(s, ", ") },
		"rows":   func(least int, s string) int { return min(max(strings.Count(s, "\n")+2, least), 24) },
		"millis": func(p page) int64 { return p.Now.UnixMilli() },
		"pair":   func(p page, v any) pair { return pair{p, v} },
	}
}

// stateLabel returns the name of a state as pages show it. The state "opened" of a provider is shown
// as "blocked".
func stateLabel(state string) string {
	if state == gateway.Opened {
		return "blocked"
	}
	return strings.ReplaceAll(state, "-", " ")
}

// pair passes the page and a part of it to a template.
type pair struct {
	Page page
	V    any
}
