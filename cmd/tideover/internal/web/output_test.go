package web

import (
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/output"
)

// withOutputs makes a site show outputs of attempts.
func withOutputs(store *output.Store) func(*setup) { return func(s *setup) { s.Outputs = store } }

// keepOutput stores an output of an attempt of the step call.
func keepOutput(store *output.Store, run string, number int, text string) error {
	c := &output.Capture{Limit: 64 << 10}
	_, _ = c.Write([]byte(text))
	return store.Append(&output.Record{
		Attempt: output.Attempt{Run: run, Step: "call", Number: number}, Ended: time.Now(), Exit: new(1), Streams: []output.Stream{c.Stream("stdout")},
	})
}

func TestOutputPages(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "outputs")
	store := output.New(output.Config{Dir: dir, Logger: slog.New(slog.DiscardHandler)})
	t.Cleanup(func() { _ = store.Close() })
	b := newTestSite(t, withOutputs(store), func(s *setup) {
		s.Redact = func(text string) string { return strings.ReplaceAll(text, "PLANTED", "***") }
	})
	id := b.dead(1, job{Fail: 9})[0]
	text := "<script>window.planted=1</script>\n\x1b]0;title\x07\x1b[2Jred PLANTED\n" + strings.Repeat("x\n", 50_000) + "last & least\xff\u202e"
	if err := keepOutput(store, id, 1, text); err != nil {
		t.Fatal(err)
	}
	if err := keepOutput(store, id, 2, ""); err != nil {
		t.Fatal(err)
	}
	_ = store.Close()
	if err := os.Rename(dir, dir+".moved"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir, nil, 0o600); err != nil { // it can't become a folder again
		t.Fatal(err)
	}
	if keepOutput(store, id, 3, "lost") == nil {
		t.Error("it was stored")
	}
	if page := b.page("/health"); !strings.Contains(page, "outputs of attempts can&#39;t be stored, 1 are lost") {
		t.Error("the health page does not say that outputs are lost")
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(dir+".moved", dir); err != nil {
		t.Fatal(err)
	}
	page := b.page("/runs/" + id)
	for _, want := range []string{" in stdout</summary>", "last &amp; least", "No output.", "The output was not kept: "} {
		if !strings.Contains(page, want) {
			t.Errorf("the page of the run does not have %q", want)
		}
	}
	query := "?" + url.Values{"step": {"call"}, "attempt": {"1"}}.Encode()
	whole := b.page("/runs/" + id + "/output" + query)
	for _, want := range []string{"&lt;script&gt;", "red ***", "bytes omitted", `last &amp; least` + "\uFFFD[U+202E]", "exit code 1"} {
		if !strings.Contains(whole, want) {
			t.Errorf("the page of the output does not have %q", want)
		}
	}
	for _, bad := range []string{"<script>window", "\x1b", "PLANTED", "\u202e"} {
		if strings.Contains(whole+page, bad) {
			t.Errorf("a page has %q", bad)
		}
	}
	found := b.page("/runs/" + id + "/output" + query + "&q=LAST")
	if !strings.Contains(found, "stdout:50003: last &amp; least") || !strings.Contains(found, "1 line") || strings.Contains(found, "red ***") {
		t.Errorf("the search has found something else: %.2000s", found)
	}
	if many := b.page("/runs/" + id + "/output" + query + "&q=x"); strings.Count(many, "stdout:") != foundLines || !strings.Contains(many, "Only the first 1000") {
		t.Errorf("a search with many results shows %d lines", strings.Count(many, "stdout:"))
	}
	download := b.request(http.MethodGet, "/runs/"+id+"/output.txt"+query, nil)
	if download.head.Get("Content-Type") != "text/plain; charset=utf-8" || !strings.HasPrefix(download.head.Get("Content-Disposition"), "attachment") ||
		download.head.Get("X-Content-Type-Options") != "nosniff" || !strings.Contains(download.body, "\x1b[2Jred") {
		t.Errorf("download: %v %.100q", download.head, download.body)
	}
	for path, want := range map[string]int{
		"/output" + strings.Replace(query, "1", "3", 1): http.StatusNotFound, "/output?step=nonsense": http.StatusBadRequest, "/output?attempt=x": http.StatusBadRequest,
		"/output.txt?attempt=99": http.StatusNotFound,
	} {
		if got := b.request(http.MethodGet, "/runs/"+id+path, nil); got.status != want {
			t.Errorf("%s: %d, want %d", path, got.status, want)
		}
	}
}

// outputs opens the output of an attempt from the page of its run, and searches in it.
func (v visitor) outputs(b *testSite) {
	id := b.dead(1, job{Fail: 9})[0]
	if err := keepOutput(b.outputs, id, 3, "first\n<img src=x onerror='window.planted=1'>\nneedle & thread\n"); err != nil {
		v.Fatal(err)
	}
	x := v.open(b)
	x.visit("/runs/" + id)
	x.click("#s0-a3-output summary")
	x.seen("#s0-a3-output pre", "needle & thread")
	x.click("#s0-a3-output a")
	x.seen("#stdout pre", "<img src=x")
	x.exec(`document.querySelector("input[name=q]").value = "NEEDLE"`)
	x.click(".filter button")
	x.seen("#found pre", "stdout:3: needle & thread")
	if eval[bool](x, "!!window.planted") {
		v.Error("what was planted has come to life")
	}
	x.quiet()
	b.act(id, "cancel")
}
