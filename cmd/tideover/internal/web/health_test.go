package web

import (
	"errors"
	"net/http"
	"os"
	"slices"
	"testing"
	"time"
)

func TestHealthPage(t *testing.T) {
	t.Parallel()
	g := newFullSite(t, func(o *setup) { o.Version = "tideover v1.2.3" })
	body := g.page("/health")
	has(t, "/health", body, `aria-current="page">Health</a>`, "<dt>version</dt><dd>v1.2.3</dd>", "<dt>goroutines</dt>", "<dt>memory in use</dt>", "<dt>up for</dt><dd>",
		"<dt>log.db</dt>", "<dt>in all</dt>", "taken over", "<dt>runs that lists have yet to see</dt>", "What the doctor finds")
	has(t, "its stream", g.message("/live/health"), "goroutines")
	if f := (fact{"up for", "1 min 30 s"}); !slices.Contains(g.h.pages.health.process(g.h.began.Add(90*time.Second)), f) {
		t.Errorf("process after 90 s has no %v", f)
	}

	g.now(func() { g.reload = errors.New("tideover.yaml:3: unknown key <b>\ntideover.yaml:9: no such policy") })
	if err := os.Chmod(g.cfg.Server.Data, 0o755); err != nil { //nolint:gosec // what the doctor shall find
		t.Fatal(err)
	}
	g.h.findings.mu.Lock()
	g.h.findings.at = time.Time{}
	g.h.findings.mu.Unlock()
	body = g.page("/health")
	has(t, "with mistakes", body, "The file was not taken over", "unknown key &lt;b&gt;", "no such policy", "is accessible to other users", "chmod 700", "One thing is wrong.")
	g.now(func() { g.reload = nil })
	hasNot(t, "after they were mended", g.page("/health"), "was not taken over")
}

func TestHealthOfAnEngineThatHasEnded(t *testing.T) {
	t.Parallel()
	g := newFullSite(t)
	if err := g.e.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	has(t, "/health", g.page("/health"), "be asked", "failed", "goroutines")
}

func TestHealthWithoutAnEngine(t *testing.T) {
	t.Parallel()
	p := newGatewaySite(t, nil)
	body := p.page("/health")
	has(t, "/health", body, "All is well.", "goroutines")
	hasNot(t, "/health", body, "Disk", "doctor")
	if a := p.request("GET", "/overview", nil); a.status != http.StatusNotFound {
		t.Errorf("GET /overview: %d", a.status)
	}
}

func TestVerdict(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		bad, weak int
		want      string
	}{{0, 0, "succeeded"}, {0, 2, "waiting"}, {1, 0, "failed"}, {3, 1, "failed"}} {
		if got, text := verdict(c.bad, c.weak); got != c.want || text == "" {
			t.Errorf("%d wrong, %d weak: %s %q, want %s", c.bad, c.weak, got, text, c.want)
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
