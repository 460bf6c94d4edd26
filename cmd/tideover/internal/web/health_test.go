package web

import (
	"errors"
	"net/http"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/tideover/tideover/internal/console/pages"
)

func TestHealthPage(t *testing.T) {
	t.Parallel()
	g := newFullSite(t, func(o *setup) { o.Version = "tideover v1.2.3" })
	body := g.page("/health")
	has(t, "/health", body, `aria-current="page">Health</a>`, "<dt>version</dt><dd>v1.2.3</dd>", "<dt>goroutines</dt>", "<dt>heap in use</dt>", "<dt>uptime</dt><dd>",
		"<dt>log.db</dt>", "<dt>total</dt>", "Reloaded", "<dt>runs not indexed yet</dt>", "<h2>Checks</h2>")
	has(t, "its stream", g.message("/live/health"), "goroutines")
	if f := (pages.Fact{Name: "uptime", Text: "1 min 30 s"}); !slices.Contains(healthPage{g.h.server, &g.h.findings, g.h.began}.process(g.h.began.Add(90*time.Second)), f) {
		t.Errorf("process after 90 s has no %v", f)
	}

	g.update(func() { g.reload = errors.New("tideover.yaml:3: unknown key <b>\ntideover.yaml:9: no such policy") })
	if err := os.Chmod(g.cfg.Server.Data, 0o755); err != nil { //nolint:gosec // the problem that the doctor must find
		t.Fatal(err)
	}
	g.h.findings.mu.Lock()
	g.h.findings.at = time.Time{}
	g.h.findings.mu.Unlock()
	body = g.page("/health")
	has(t, "with mistakes", body, "The configuration was not reloaded", "unknown key &lt;b&gt;", "no such policy", "is accessible to other users", "chmod 700", "Unhealthy, 1 problem")
	g.update(func() { g.reload = nil })
	hasNot(t, "after they were mended", g.page("/health"), "was not reloaded")
}

func TestHealthOfAnEngineThatHasEnded(t *testing.T) {
	t.Parallel()
	g := newFullSite(t)
	if err := g.e.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	has(t, "/health", g.page("/health"), "The state of the engine is unknown", "failed", "goroutines")
}

func TestHealthWithoutAnEngine(t *testing.T) {
	t.Parallel()
	p := newGatewaySite(t, nil)
	body := p.page("/health")
	has(t, "/health", body, "Healthy", "goroutines")
	hasNot(t, "/health", body, "Disk", "doctor")
	if a := p.request("GET", "/overview", nil); a.status != http.StatusNotFound {
		t.Errorf("GET /overview: %d", a.status)
	}
}

func TestVerdict(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		bad, weak   int
		state, text string
	}{
		{0, 0, "succeeded", "Healthy"}, {0, 1, "waiting", "Healthy, 1 warning"}, {0, 2, "waiting", "Healthy, 2 warnings"},
		{1, 0, "failed", "Unhealthy, 1 problem"}, {3, 1, "failed", "Unhealthy, 3 problems"},
	} {
		if state, text := verdict(c.bad, c.weak); state != c.state || text != c.text {
			t.Errorf("%d problems, %d warnings: %s %q, want %s %q", c.bad, c.weak, state, text, c.state, c.text)
		}
	}
}

func TestFilesOfTheFolderAreGathered(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"log.db": "log.db", "log.db-wal": "log.db", "blobs/a/b": "blobs/", `blobs\a`: "blobs/", "token": "token"} {
		if got := fileGroup(name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}
