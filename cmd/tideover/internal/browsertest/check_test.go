package browsertest

import (
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// TestMain closes the browser.
func TestMain(m *testing.M) { os.Exit(Main(m)) }

// recorder keeps the errors that a check reports.
type recorder struct {
	testing.TB
	errors []string
}

func (r *recorder) Errorf(format string, args ...any) {
	r.errors = append(r.errors, fmt.Sprintf(format, args...))
}

// TestCheckInABrowser opens a page with a defect for each check.
func TestCheckInABrowser(t *testing.T) {
	t.Parallel()
	x := Open(t)
	x.NeedAxe()
	r := &recorder{TB: t}
	x.With(r)
	x.Do(chromedp.Navigate("data:text/html," + url.PathEscape(`<!doctype html><html lang="en"><title>Defects</title>
		<style>@media (prefers-color-scheme: dark) { #dim { color: #333; background: #222 } } .plain:focus { outline: none }</style>
		<main><h1>Defects</h1><p id="dim">dark on dark</p><input><a class="plain" href="/">no focus</a>
		<button id="trap" onkeydown="event.preventDefault()">keeps the focus</button><button>out of reach</button>
		<ul style="margin-top: 500px"><li>first</li></ul><div style="width: 800px">wide</div></main>`)))
	x.Check(Checks{Name: "defects", Row: "li", Layouts: Layouts})
	for _, want := range []string{
		"defects, wide-light: label: input:", "defects, wide-dark: color-contrast: #dim:", "defects, phone-dark: color-contrast: #dim:",
		"defects, phone-light: the page is 8", "defects, phone-dark: the first of li begins at ",
		"defects: on a phone these targets are too close: ", "defects: the Tab key does not reach <button>out of reach", `defects: with the focus nothing changes at <a class="plain"`,
	} {
		found := false
		for _, e := range r.errors {
			found = found || strings.HasPrefix(e, want)
		}
		if !found {
			t.Errorf("no error begins with %q", want)
		}
	}
	if t.Failed() {
		t.Log(strings.Join(r.errors, "\n"))
	}
}
