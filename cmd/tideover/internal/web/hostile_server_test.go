package web

import (
	"errors"
	"testing"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/doctor"
	"github.com/tideover/tideover/cmd/tideover/internal/storm"
	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/nostr"
)

// TestHostileTextAroundTheServer plants hostile texts in data that does not come from runs: in the
// names of storms, errors of relays, errors of the configuration and findings of the doctor.
func TestHostileTextAroundTheServer(t *testing.T) {
	t.Parallel()
	var found []doctor.Finding
	g := newFullSite(t, func(o *setup) { o.Findings = func() []doctor.Finding { return found } })
	for _, x := range hostile {
		found = append(found, doctor.Finding{Severity: journal.Weak, What: x.text, Why: x.text, Do: x.text})
	}
	for _, x := range hostile {
		t.Run(x.name, func(t *testing.T) {
			g := g.with(t)
			g.update(func() {
				g.storms = []storm.Storm{{Subject: storm.Subject{Layer: "provider", Name: x.text}, Amplification: 3, Since: time.Now()}}
				g.relays = []nostr.RelayStatus{{URL: x.text, Error: x.text}, {URL: x.text, Up: true, Trouble: x.text}}
				g.reload = errors.New(x.text)
			})
			for _, path := range []string{"/overview", "/health"} {
				has(t, path, g.page(path), x.shown)
			}
		})
	}
	g.with(t)
	for _, path := range []string{"/overview", "/health"} {
		g.message("/live" + path)
	}
}
