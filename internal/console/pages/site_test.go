package pages

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/console/pagetest"
	"github.com/tideover/tideover/retry"
)

func TestOffers(t *testing.T) {
	next := time.Date(2026, 2, 5, 3, 4, 5, 0, time.UTC)
	for _, c := range []struct {
		name string
		info engine.Info
		want string
	}{
		{"a run at work", engine.Info{State: "running"}, "cancel"},
		{"a run that waits", engine.Info{State: "waiting", Next: &next}, "wake cancel"},
		{"a dead run", engine.Info{State: "dead"}, "retry latest rerun replay cancel"},
		{"a dead run that was replaced", engine.Info{State: "replaced", ReplacedBy: "x"}, ""},
		{"a session that is over", engine.Info{State: "succeeded", Workflow: "session.x"}, ""},
		{"a message that is dead", engine.Info{State: "dead", Workflow: "notify.x"}, "retry cancel"},
		{"a run that succeeded", engine.Info{State: "succeeded"}, "rerun replay"},
		{"a run that was canceled", engine.Info{State: "canceled"}, "rerun replay"},
	} {
		var got []string
		for _, o := range offers(&c.info) {
			got = append(got, o.Name)
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("%s: offers %q, want %q", c.name, s, c.want)
		}
	}
}

func TestAReaderFollowsItsRunOnly(t *testing.T) {
	t.Parallel()
	f := newFeed(nil)
	reader := f.subscribe("a")
	defer f.unsubscribe(reader)
	<-reader.dirty // a new reader is touched at once
	for _, c := range []struct {
		name, run    string
		missed, want bool
	}{
		{"an event of another run", "b", false, false},
		{"an event of the run", "a", false, true},
		{"an event of another run, after events that were missed", "b", true, true},
	} {
		f.publish(engine.Event{Event: retry.Event{Run: c.run}}, c.missed)
		if got := len(reader.dirty) > 0; got != c.want {
			t.Errorf("%s: the page is sent again: %v, want %v", c.name, got, c.want)
		}
		select {
		case <-reader.dirty:
		default:
		}
	}
}

func TestTooManyStreams(t *testing.T) {
	t.Parallel()
	h := New(Options{})
	h.open.Store(maxStreams)
	w := httptest.NewRecorder()
	h.Stream(w, httptest.NewRequest(http.MethodGet, "/live/x", nil), "", func(context.Context, time.Time) (Part, error) {
		t.Error("the page was read")
		return Part{}, nil
	})
	if w.Code != http.StatusServiceUnavailable || h.open.Load() != maxStreams {
		t.Errorf("one more than %d streams: %d, want 503; %d are open", maxStreams, w.Code, h.open.Load())
	}
}

// The vendored files must be equal to those of htmx.org 4.0.0 on npm.
func TestVendoredFiles(t *testing.T) {
	for name, want := range map[string]string{
		"htmx-4.0.0.min.js":   "e484d9171a9db30a39c8f16e3d709d4137f3211c659f8e6125816635033d593f",
		"hx-sse-4.0.0.min.js": "8a834680c4000a9034d79228872372a92e140c810a075cb6d4a76690dfc13085",
		"htmx-4.0.0.LICENSE":  "d3d2456f76414f2456104660ebd65aff1c04cd7966b942bdabd63f3cdb316a38",
	} {
		body, err := static.ReadFile("static/" + name)
		if err != nil {
			t.Error(err)
			continue
		}
		sum := sha256.Sum256(body)
		if got := hex.EncodeToString(sum[:]); got != want {
			t.Errorf("sha256 of %s is %s, want %s", name, got, want)
		}
	}
}

func TestAttemptsThatWereMadeAreCounted(t *testing.T) {
	t.Parallel()
	for status, want := range map[string]int{"running": 3, "succeeded": 3, "failed": 2, "waiting": 2, "blocked": 2} {
		if got := NewStep(&engine.StepInfo{Status: status, Spent: 2, Policy: "fixed(1s) attempts=4"}, 0, false); got.Made != want || got.Limit != "4" {
			t.Errorf("%s: %d of %s, want %d of 4", status, got.Made, got.Limit, want)
		}
	}
}

func TestNothingInline(t *testing.T) {
	t.Parallel()
	pagetest.NothingInline(t, templates)
	for _, name := range []string{"app.js", "page.css"} {
		body := loadAssets()[name].Body
		if len(body) == 0 {
			t.Errorf("%s is empty", name)
		}
		for _, bad := range []string{"eval(", "new Function", "innerHTML =", "outerHTML", "insertAdjacentHTML", "document.write", "@import", "http:", "https:"} {
			if strings.Contains(string(body), bad) {
				t.Errorf("%s has %q", name, bad)
			}
		}
	}
}
