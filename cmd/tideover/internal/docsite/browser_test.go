package docsite

import (
	"fmt"
	"html/template"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/tideover/tideover/cmd/tideover/internal/browsertest"
)

// TestMain closes the browser that the tests share.
func TestMain(m *testing.M) { os.Exit(browsertest.Main(m)) }

func eval[T any](x *browsertest.Tab, expr string) T { return browsertest.Eval[T](x, expr) }

// checkQuiet fails the test if the browser has logged an error or has loaded something from elsewhere.
func checkQuiet(t *testing.T, x *browsertest.Tab) {
	t.Helper()
	for _, c := range x.Complaints() {
		t.Errorf("the browser says: %s", c)
	}
	x.ForgetComplaints("")
	for _, name := range eval[[]string](x, `performance.getEntriesByType("resource").map(e => e.name).filter(n => !n.startsWith(location.origin) && !n.startsWith("file:"))`) {
		t.Errorf("the page has asked for %s", name)
	}
}

// follow clicks a link, and waits until a page whose path ends with the path is loaded.
func follow(x *browsertest.Tab, selector, path string) {
	eval[bool](x, fmt.Sprintf("(document.querySelector(%q).click(), true)", selector))
	x.Wait(path+" is loaded", fmt.Sprintf(`location.pathname.endsWith(%q) && document.readyState === "complete"`, path))
}

// lowContrast is an expression for the texts whose contrast to their ground is below 4.5.
const lowContrast = `(() => {
	const parse = (c) => c.match(/[\d.]+/g).map(Number);
	const light = ([r, g, b]) => [r, g, b].map(v => v / 255).map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4).reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
	const ground = (e) => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c.length < 4 || c[3] > 0) return c; } return [255, 255, 255]; };
	const bad = new Set();
	for (const e of document.querySelectorAll("body *")) {
		if (![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()) || e.closest(".anchor, .skip, noscript")) continue;
		const a = light(parse(getComputedStyle(e).color)), b = light(ground(e));
		if ((Math.max(a, b) + .05) / (Math.min(a, b) + .05) < 4.5) bad.add(e.tagName + "." + e.className + ": " + e.textContent.slice(0, 40));
	}
	return [...bad];
})()`

// coveredCode is an expression for the code blocks that their own button to copy covers.
const coveredCode = `[...document.querySelectorAll(".code")].filter(e => {
	const a = e.querySelector(".copy").getBoundingClientRect(), b = e.querySelector("pre").getBoundingClientRect();
	return a.width > 0 && a.left < b.right && a.right > b.left && a.top < b.bottom && a.bottom > b.top;
}).map(e => e.querySelector("pre").textContent)`

// newBrowserSite returns a server of the documentation. It also has the bodies of all pages as one
// page, which takes a browser less time than many pages.
func newBrowserSite(t *testing.T) *httptest.Server {
	t.Helper()
	s := loadTest(t, false)
	all := &page{Path: "all", Title: "All"}
	for _, p := range s.pages {
		all.Body += "<section title='" + template.HTML(p.File) + "'>" + p.Body + "</section>"
	}
	mux := http.NewServeMux()
	mux.Handle("/", Handler())
	mux.HandleFunc("/docs/all", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", contentPolicy)
		show(w, r, http.StatusOK, newPageView(s, all))
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server
}

func TestPagesInABrowser(t *testing.T) {
	t.Parallel()
	server := newBrowserSite(t)
	tab := browsertest.Open(t)
	for turn, path := range []string{"/docs", "/docs/adr/0001-one-decision", "/docs/search?q=retry", "/docs/all"} {
		for _, l := range browsertest.LayoutsOf(turn, browsertest.Layouts) {
			name := fmt.Sprintf("docs-%s-%s", strings.NewReplacer("/docs/adr/", "", "/docs/", "", "/", "", "?", "-").Replace(path), l.Name)
			t.Run(name, func(t *testing.T) {
				x := tab.With(t)
				x.Resize(l.Width, l.Height)
				x.SetColorScheme(l.Scheme)
				x.Do(chromedp.Navigate(server.URL + path))
				for _, e := range x.TooWide() {
					t.Errorf("too wide: %s", e)
				}
				for _, e := range eval[[]string](x, lowContrast) {
					t.Errorf("low contrast: %s", e)
				}
				if eval[bool](x, `[...document.images].some(i => !i.complete || i.naturalWidth === 0)`) {
					t.Error("a picture is missing")
				}
				if covered := eval[[]string](x, coveredCode); len(covered) > 0 {
					t.Errorf("the button to copy covers %d code blocks, such as %.100q", len(covered), covered[0])
				}
				checkQuiet(t, x)
				if path != "/docs/all" {
					x.Screenshot(os.Getenv("PICTURES"), name)
				}
			})
		}
	}
}

func TestSearchInABrowser(t *testing.T) {
	t.Parallel()
	server := newBrowserSite(t)
	x := browsertest.Open(t)
	for _, scripts := range []bool{true, false} {
		x.With(t)
		x.EnableScripts(scripts)
		x.Resize(390, 800)
		x.Do(chromedp.Navigate(server.URL + "/docs/serve"))
		x.Do(chromedp.SendKeys(chromedp.CSS("#query"), "circuit breaker"))
		x.PressEnter()
		x.Wait("results are shown", `location.pathname === "/docs/search" && document.readyState === "complete" && document.querySelectorAll("#results li mark").length > 2`)
		for _, e := range x.TooWide() {
			t.Errorf("the search is too wide: %s", e)
		}
		x.Screenshot(os.Getenv("PICTURES"), fmt.Sprintf("docs-search-%v", scripts))
		follow(x, "#results a", "")
		x.Wait("the section is shown", `location.pathname !== "/docs/search" && document.readyState === "complete" && document.querySelector(location.hash)`)
		checkQuiet(t, x)
	}
}

// TestFilesInABrowser opens the written files. Their search must find the same as that of the
// server.
func TestFilesInABrowser(t *testing.T) {
	t.Parallel()
	x := browsertest.Open(t)
	dir := filepath.Join(t.TempDir(), "a folder")
	if _, err := Write(dir); err != nil {
		t.Fatal(err)
	}
	s := loadTest(t, true)
	base := (&url.URL{Scheme: "file", Path: filepath.ToSlash(dir)}).String()
	x.Do(chromedp.Navigate(base + "/index.html"))
	if ground := eval[string](x, `getComputedStyle(document.body).backgroundColor`); ground != "rgb(251, 252, 252)" {
		t.Errorf("the page has no style: its ground is %s", ground)
	}
	follow(x, `#contents a[href="adr.html"]`, "/adr.html")
	follow(x, `[rel="next"]`, "/adr/0001-one-decision.html")
	follow(x, `#contents a[href="../install.html"]`, "/install.html")
	x.Do(chromedp.SendKeys(chromedp.CSS("#query"), "first configuration"))
	x.PressEnter()
	x.Wait("results are shown", `location.pathname.endsWith("/search.html") && document.readyState === "complete" && document.querySelectorAll("#results li mark").length > 1`)
	for _, query := range []string{"circuit breaker", "install", "--policy", "RETRY budget", "a", "429", "größe", "xyzzy", "decisions", "<b>", "how do I cancel a run?", "jitter=full", "the"} {
		x.Do(chromedp.Navigate(base + "/search.html?" + url.Values{"q": {query}}.Encode()))
		var want []string
		for _, r := range s.search(query) {
			want = append(want, r.URL)
		}
		got := eval[[]string](x, `[...document.querySelectorAll("#results a")].map(a => a.getAttribute("href"))`)
		if !slices.Equal(got, want) {
			t.Errorf("the script finds %d sections for %q: %v\nthe server finds %d: %v", len(got), query, got, len(want), want)
		}
	}
	checkQuiet(t, x)
}

func TestCopyButtonsInABrowser(t *testing.T) {
	t.Parallel()
	server := newBrowserSite(t)
	x := browsertest.Open(t)
	x.Do(chromedp.Navigate(server.URL + "/docs"))
	// Record what is copied, because a test must not read the clipboard of the machine.
	eval[bool](x, `(() => { window.texts = []; navigator.clipboard.writeText = (text) => { texts.push(text); return Promise.resolve(); }; return true; })()`)
	x.Do(chromedp.Click(chromedp.CSS(".code:has(.language-console) .copy")))
	x.Wait("the button says so", `document.querySelector(".code:has(.language-console) .copy").textContent === "copied"`)
	eval[bool](x, `(document.querySelector(".code:has(.language-go) .copy").click(), true)`)
	got := eval[[]string](x, `texts.concat(document.querySelector(".language-go").textContent)`)
	if len(got) != 3 || got[0] != "tideover exec --policy 'exponential(500ms..5s) jitter=20% attempts=5' -- examples/flaky.sh\n" || got[1] != got[2] {
		t.Errorf("copied: %q", got)
	}
	x.EnableScripts(false)
	x.Do(chromedp.Navigate(server.URL + "/docs"))
	if shown := eval[string](x, `getComputedStyle(document.querySelector(".code .copy")).display`); shown != "none" {
		t.Errorf("without scripts the button is shown: %s", shown)
	}
	checkQuiet(t, x)
}
