package web

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/tideover/tideover/cmd/tideover/internal/browsertest"
	"github.com/tideover/tideover/cmd/tideover/internal/output"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/console/control"
	"github.com/tideover/tideover/internal/testwait"
)

// TestMain closes the browser that the tests share.
func TestMain(m *testing.M) { os.Exit(browsertest.Main(m)) }

// tab is a tab of the browser that shows the pages of a test site.
type tab struct {
	*testSite
	*browsertest.Tab
}

// open opens a tab for the pages of a test site.
func open(b *testSite) *tab {
	b.Helper()
	return &tab{b, browsertest.Open(b)}
}

// quiet fails the test if the browser has logged an error.
func (x *tab) quiet() {
	x.Helper()
	for _, c := range x.Complaints() {
		x.Errorf("the browser says: %s", c)
	}
	x.ForgetComplaints("")
	for _, name := range eval[[]string](x, `performance.getEntriesByType("resource").map(e => e.name).filter(n => !n.startsWith(location.origin + "/"))`) {
		x.Errorf("the page has asked for %s", name)
	}
}

func (x *tab) visit(path string) {
	x.Helper()
	x.Do(chromedp.Navigate(x.srv.URL + path))
}

// live opens a page and waits until its stream is connected.
func (x *tab) live(path string) {
	x.Helper()
	x.visit(path)
	x.Wait("the page is live", `document.getElementById("link").dataset.state === "live"`)
}

// eval returns the value of a JavaScript expression.
func eval[T any](x *tab, expr string) T {
	x.Helper()
	return browsertest.Eval[T](x.Tab, expr)
}

// exec runs a script.
func (x *tab) exec(script string) {
	x.Helper()
	eval[bool](x, "(() => {"+script+"\nreturn true})()")
}

// seen waits until an element that matches the selector contains the text.
func (x *tab) seen(selector, text string) {
	x.Helper()
	x.Wait(selector+" has "+text, fmt.Sprintf(`[...document.querySelectorAll(%q)].some(e => e.innerText.includes(%q))`, selector, text))
}

// click clicks on an element, after opening the menu that it is in.
func (x *tab) click(selector string) {
	x.Helper()
	x.Wait(selector+" is there", fmt.Sprintf(`document.querySelector(%q)`, selector))
	x.exec(fmt.Sprintf(`document.querySelector(%q).closest(".more:not([open])")?.querySelector("summary").click()`, selector))
	x.Do(chromedp.Click(chromedp.CSS(selector)))
}

// visitor is a subtest with the browser tab that all subtests of a test share.
type visitor struct {
	*testing.T
	tab *browsertest.Tab
}

// open returns the shared tab for the pages of a test site.
func (v visitor) open(b *testSite) *tab { return &tab{b, v.tab} }

// picturesWanted reports whether tests check pages in several sizes and color schemes. By default only
// a test of the command does, which visits the same pages.
func picturesWanted() bool { return browsertest.AllLayouts() || os.Getenv("TIDEOVER_PICTURES") != "" }

// TestBrowser runs subtests one after the other on shared servers. A subtest may rely on
// the fact that no earlier subtest has left a run that is dead or waits.
func TestBrowser(t *testing.T) {
	t.Parallel()
	store := output.New(output.Config{Dir: t.TempDir()})
	t.Cleanup(func() { _ = store.Close() })
	b, tab := newTestSite(t, withOutputs(store)), browsertest.Open(t)
	b.outputs = store
	for _, c := range []struct {
		name string
		do   func(visitor, *testSite)
	}{
		{"a run appears and counts down", visitor.appears},
		{"a dead letter is retried in a dialog", visitor.retries},
		{"many runs are canceled in a dialog", visitor.bulk},
		{"runs are chosen in a list", visitor.chooses},
		{"a theme and a clock are chosen", visitor.theme},
		{"everything works without scripts", visitor.plain},
		{"details that the user has opened stay open", visitor.stays},
		{"the menu of a phone", visitor.menu},
		{"pages load without errors", visitor.loads},
		{"filters are in the address", visitor.filters},
		{"planted scripts do not run", visitor.hostile},
		{"a row of the list is one line", visitor.rows},
		{"the output of an attempt", visitor.outputs},
		{"a broken connection comes back", visitor.reconnects},
	} {
		t.Run(c.name, func(t *testing.T) { c.do(visitor{t, tab.With(t)}, b.with(t)) })
	}
	t.Run("the progress of an action", func(t *testing.T) { visitor{t, tab.With(t)}.progress(b.with(t)) })
	if picturesWanted() {
		t.Run("pictures", func(t *testing.T) { visitor{t, tab.With(t)}.pictures() })
	}
}

// TestFullSiteInABrowser visits the pages of a server with all features.
func TestFullSiteInABrowser(t *testing.T) {
	t.Parallel()
	g, tab := newFullSite(t), browsertest.Open(t)
	for _, c := range []struct {
		name string
		do   func(visitor, *fullSite)
	}{
		{"the overview follows", visitor.overviewFollows},
		{"a test is sent in a dialog", visitor.sendsTest},
		{"policies and health", visitor.policiesAndHealth},
		{"by keyboard", visitor.keys},
		{"without scripts", visitor.fullSitePlain},
		{"workflows and schedules", visitor.workflows},
		{"pictures of workflows", visitor.workflowPictures},
		{"pictures", visitor.fullSitePictures},
	} {
		if strings.HasPrefix(c.name, "pictures") && !picturesWanted() {
			continue
		}
		t.Run(c.name, func(t *testing.T) { c.do(visitor{t, tab.With(t)}, g.with(t)) })
	}
}

func (v visitor) loads(b *testSite) {
	t := v.T
	dead := b.dead(2, job{})[0]
	wait := b.start("order", job{Fail: 1, Progress: "half"})
	b.until(wait, "waiting")
	x := v.open(b)
	for _, path := range []string{"/", "/runs?q=nothing", "/dead", "/runs/" + dead, "/runs/" + wait} {
		x.live(path)
		if eval[string](x, "document.title") == "" {
			t.Errorf("%s has no title", path)
		}
	}
	x.visit("/runs/" + dead + "/replay")
	x.quiet()

	// The browser enforces the Content-Security-Policy.
	x.exec(`const s = document.createElement("script"); s.textContent = "window.planted = 1"; document.body.append(s)`)
	if eval[bool](x, "!!window.planted") {
		t.Error("an inline script has run")
	}
	testwait.Until(t, "the browser has said so", func() bool {
		return slices.ContainsFunc(x.Complaints(), func(c string) bool { return strings.Contains(c, "Content Security Policy") })
	})
}

func (v visitor) appears(b *testSite) {
	t := v.T
	x := v.open(b)
	x.live("/runs")
	x.seen("#pulse", "Nothing is running or waiting")
	id := b.start("soon", job{Fail: 1, Error: "503"})
	row := "#r-" + id
	x.seen(row, "waiting")
	x.seen(row, "by policy")
	x.seen(row, "503")
	x.seen("#pulse", "Next wake-up in")

	// Record every text of the countdown, even one that is replaced before it is drawn.
	x.exec(fmt.Sprintf(`window.texts = []; window.swaps = 0;
		const note = () => texts.push(document.querySelector("%s time[data-in]")?.textContent ?? "gone");
		note();
		new MutationObserver(note).observe(document.getElementById("live"), {childList: true, subtree: true, characterData: true});
		document.addEventListener("htmx:after:swap", () => swaps++);`, row))
	for range 2 {
		n := eval[int](x, "swaps")
		b.start("quick", job{})
		x.Wait("another run swaps the list", fmt.Sprintf("swaps > %d", n))
	}
	x.Wait("it counts down", `new Set(texts).size >= 3`)
	last := 51 * 60 // a minute more than the wait: the page may assume that the server's clock is behind
	for _, text := range eval[[]string](x, "texts") {
		minutes, seconds := 0, 0
		_, err := fmt.Sscanf(text, "in %d min %d s", &minutes, &seconds)
		if n := 60*minutes + seconds; err != nil || n > last {
			t.Errorf("the countdown said %q after %d s", text, last)
			break
		}
		last = 60*minutes + seconds
	}
	b.act(id, "wake")
	x.seen(row, "succeeded")
	if n := eval[int](x, "performance.getEntriesByType('navigation').length"); n != 1 {
		t.Errorf("the page was loaded %d times", n)
	}
	x.quiet()
}

func (v visitor) stays(b *testSite) {
	t := v.T
	id := b.start("soon", job{Fail: 3, Error: "first line\nsecond line"})
	b.until(id, "waiting")
	x := v.open(b)
	x.live("/runs/" + id)
	x.seen("#next", "Next attempt in")
	x.click("#s0-a1 details summary")
	x.seen("#s0-a1 details pre", "second line")
	x.Do(chromedp.Focus(chromedp.CSS("#s0-a1 details summary")))
	b.act(id, "wake")
	x.Wait("the second attempt is shown", `document.getElementById("s0-a2")`)
	x.seen("#s0-a1", "ended early by page")
	if !eval[bool](x, `document.querySelector("#s0-a1 details").open`) {
		t.Error("the error was closed by an update")
	}
	if !eval[bool](x, `document.activeElement.tagName === "SUMMARY"`) {
		t.Error("the focus was lost by an update")
	}

	// A step that has succeeded at once is one line.
	first := func(context.Context, job) (string, error) { return "done", nil }
	b.w["pair"] = must(engine.NewWorkflow("pair", engine.Step("first", first), engine.Step("second", do, engine.After("first"), engine.Policy("fixed(1h) attempts=3"))))
	if err := b.e.Register(b.w["pair"]); err != nil {
		t.Fatal(err)
	}
	id = b.start("pair", job{Fail: 1})
	x.live("/runs/" + id)
	x.seen("#step-1", "waiting")
	x.seen("details#step-0", "first")
	if eval[bool](x, `document.getElementById("s0-a1").checkVisibility()`) {
		t.Error("the attempt is shown")
	}
	x.click("#step-0 summary")
	x.Wait("the attempt is shown", `document.getElementById("s0-a1").checkVisibility()`)
	b.act(id, "wake")
	x.seen("#said", "succeeded")
	if !eval[bool](x, `document.getElementById("step-0").open`) {
		t.Error("the step was closed by an update")
	}
	x.quiet()
}

// menu opens the menu on a phone, with scripts and without.
func (v visitor) menu(b *testSite) {
	t := v.T
	ids := b.dead(1, job{Error: "418"})
	x := v.open(b)
	x.Resize(390, 844)
	const shown = `document.getElementById("pages").checkVisibility()`
	for _, scripts := range []bool{true, false} {
		x.EnableScripts(scripts)
		x.visit("/dead")
		x.seen(".menu", "Dead letters")
		x.seen(".menu", "1 dead")
		x.Wait("the menu is closed, in one row", "!"+shown+` && document.querySelector("header").offsetHeight < 60`)
		x.Wait("the number is not cut off", `document.querySelector(".menu .count").getBoundingClientRect().right <= document.querySelector(".menu").getBoundingClientRect().right`)
		x.click(".menu")
		x.Wait("the menu is open", shown)
		for _, text := range append(x.SmallTargets(), x.TooWide()...) {
			t.Errorf("with the menu: %s", text)
		}
		x.Screenshot(os.Getenv("TIDEOVER_PICTURES"), "menu")
		x.Do(chromedp.KeyEvent(kb.Escape))
		x.Wait("the menu is closed", "!"+shown)
		x.Do(chromedp.Focus(chromedp.CSS(".menu")), chromedp.KeyEvent(" "))
		x.Wait("a key opens the menu", shown)
		x.click(`nav a[href="/runs"]`)
		x.Wait("it leads to a page", `location.pathname === "/runs"`)
	}
	x.EnableScripts(true)
	x.live("/dead")
	ids = append(ids, b.dead(1, job{Error: "418"})...)
	x.seen(".menu", "2 dead")
	for _, id := range ids {
		b.act(id, "retry")
		b.until(id, "succeeded")
	}
	x.Resize(1280, 800)
	x.Wait("a wide page has no menu to open", shown+` && !document.querySelector(".menu").checkVisibility()`)
	x.quiet()
}

func (v visitor) retries(b *testSite) {
	ids := b.dead(3, job{Error: "418"})
	x := v.open(b)
	x.live("/runs/" + ids[0])
	x.seen("#said", "dead")
	x.click(`a[href$="/retry"]`)
	x.seen("#dialog[open]", "Retry this run?")
	x.click("#dialog [data-close]")
	x.Wait("the dialog is closed", `!document.getElementById("dialog").open`)
	x.click(`a[href$="/retry"]`)
	x.seen("#dialog[open]", "Retry this run?")
	x.click("#dialog button.go")
	x.seen("#flash", "Retried.")
	x.seen("#said", "succeeded")
	x.seen("#notes", "page")

	x.live("/dead")
	x.seen("#said", "2 runs have given up")
	x.click("#groups a[data-dialog]")
	x.seen("#dialog[open]", "Retry 2 dead letters?")
	x.click("#dialog button.go")
	x.seen("#flash", "2 retried.")
	x.seen("#said", "No run has given up")
	for _, id := range ids {
		b.until(id, "succeeded")
	}

	bad := b.dead(1, job{Name: "wrong"})[0]
	x.click("#r-" + bad + ` a[href$="/replay"]`)
	x.seen("#dialog[open]", "Retry with this input?")
	x.Do(chromedp.SetValue(chromedp.CSS("#dialog textarea"), `{"name": `))
	x.quiet()
	x.click("#dialog button.go")
	x.seen("#dialog[open] .problem", "not JSON")
	x.Do(chromedp.SetValue(chromedp.CSS("#dialog textarea"), `{"name": "right"}`))
	x.click("#dialog button.go")
	x.seen("#flash", "This is the new run.")
	x.seen("#said", "succeeded")
	x.seen("#input pre", "right")
	x.expectStatus("422")
}

// expectStatus removes an expected error status from the log of the browser.
func (x *tab) expectStatus(status string) {
	x.Helper()
	x.ForgetComplaints(status)
	x.quiet()
}

func (v visitor) plain(b *testSite) {
	id := b.dead(1, job{})[0]
	x := v.open(b)
	x.EnableScripts(false)
	x.visit("/dead")
	x.seen("#link", "not live")
	x.click("#r-" + id + ` a[href$="/retry"]`)
	x.seen("form.question", "Retry this run?")
	x.click("form.question button")
	x.seen("#flash", "Retried.")
	b.until(id, "succeeded")
	x.visit("/runs/" + id)
	x.seen("#said", "succeeded")
	x.EnableScripts(true)
	x.quiet()
}

func (v visitor) filters(b *testSite) {
	t := v.T
	dead := b.dead(1, job{})[0]
	wait := b.start("slow", job{Fail: 1}, engine.Key("the-key"))
	b.until(wait, "waiting")
	x := v.open(b)
	x.live("/runs?state=dead")
	x.seen("#rows", "dead")
	rows := func(want ...string) {
		t.Helper()
		for _, id := range []string{dead, wait} {
			if got := eval[bool](x, fmt.Sprintf(`!!document.getElementById("r-%s")`, id)); got != slices.Contains(want, id) {
				t.Errorf("%s lists %s: %v", eval[string](x, "location.search"), id, got)
			}
		}
	}
	rows(dead)
	x.live("/runs?q=the-key")
	rows(wait)
	x.exec(`const s = document.querySelector("select[name=workflow]");
		s.value = "quick";
		s.dispatchEvent(new Event("change", {bubbles: true}));`)
	x.Wait("the address has the workflow", `location.search === "?q=the-key&workflow=quick"`)
	x.seen(".empty", "No runs match")
	x.Do(chromedp.SetValue(chromedp.CSS("input[name=q]"), dead[:20]))
	x.click("form.filter button")
	x.Wait("the address has the search", fmt.Sprintf(`location.search === "?q=%s&workflow=quick"`, dead[:20]))
	x.Wait("the list has it", `document.getElementById("rows")`)
	rows(dead)
	x.visit("/runs")
	x.Resize(390, 844)
	x.click("#more-filters")
	x.Wait("the other filters are shown", `document.querySelector("select[name=workflow]").offsetHeight > 0`)
	x.quiet()
}

// rows checks the rows of the list of runs: their height, and that the cause of an error is not cut off.
func (v visitor) rows(b *testSite) {
	id := b.start("soon", job{Fail: 1, Error: strings.Repeat("a long error ", 40)}, engine.Key(strings.Repeat("key/", 20)))
	b.until(id, "waiting")
	chain := b.start("soon", job{Fail: 1, Error: "exit code 1: dial tcp 10.0.0.1:5432: connect: connection refused"})
	b.until(chain, "waiting")
	x := v.open(b)
	x.Resize(1280, 800)
	x.live("/runs")
	x.seen("#r-"+id, "by policy")
	if n := eval[int](x, `Math.max(...[...document.querySelectorAll("#rows tr")].map(e => e.offsetHeight))`); n > 40 {
		v.Errorf("a row is %d pixels high", n)
	}
	x.seen("#r-"+chain, "connection refused")
	for _, path := range []string{"/runs", "/workflows/soon"} {
		x.visit(path)
		if n := eval[float64](x, fmt.Sprintf(`(() => { const e = document.querySelector("#r-%s .chain span:last-child"); return e.scrollWidth - e.clientWidth; })()`, chain)); n > 0 {
			v.Errorf("%s: %.0f pixels of the cause are cut off", path, n)
		}
		for _, text := range x.TooWide() {
			v.Errorf("%s: %s", path, text)
		}
	}
	x.visit("/runs")
	if !eval[bool](x, `(() => { const e = document.querySelector("input[type=search]"), c = document.createElement("canvas").getContext("2d"), s = getComputedStyle(e);
		c.font = s.font;
		return c.measureText(e.placeholder).width <= e.clientWidth - parseFloat(s.paddingLeft) - parseFloat(s.paddingRight); })()`) {
		v.Error("the placeholder of the search is cut off")
	}
	x.Resize(1024, 800)
	for _, text := range x.TooWide() {
		v.Errorf("in a narrow window: %s", text)
	}
	for _, id := range []string{id, chain} {
		b.act(id, "cancel")
	}
	x.quiet()
}

func (v visitor) hostile(b *testSite) {
	t := v.T
	var ids []string
	for _, h := range hostile {
		text := strings.ReplaceAll(h.text, "alert(1)", "window.planted=1")
		ids = append(ids, b.start("quick", job{Name: text, Fail: 3, Error: text, Progress: text}, engine.Source(text)))
		b.start("quick", job{Name: text, Out: text}, engine.Key(strings.ToValidUTF8(text, ""))) // a key that is not UTF-8 would be rejected
	}
	for _, id := range ids {
		b.until(id, "dead")
	}
	x := v.open(b)
	check := func(path string) {
		t.Helper()
		if eval[bool](x, "!!window.planted") || eval[int](x, `document.querySelectorAll("img, iframe, script:not([src])").length`) != 0 {
			t.Errorf("%s: what was planted has come to life", path)
		}
	}
	for _, path := range append([]string{"/runs", "/dead", "/runs/" + ids[0] + "/replay"}, "/runs/"+ids[1], "/runs/"+ids[6]) {
		x.visit(path)
		check(path)
	}
	// Check an update by the stream, too.
	x.live("/runs/" + ids[1])
	b.act(ids[1], "retry")
	x.seen("#said", "succeeded")
	check("the stream")
	x.quiet()
}

func (v visitor) reconnects(b *testSite) {
	x := v.open(b)
	x.live("/runs")
	// The server closes all connections without an answer.
	b.away.Store(true)
	b.srv.CloseClientConnections()
	x.Wait("the page says so", `document.getElementById("link").innerText === "reconnecting…"`)
	id := b.start("quick", job{})
	b.away.Store(false)
	x.Wait("the page is live again", `document.getElementById("link").dataset.state === "live"`)
	x.seen("#r-"+id, "succeeded")

	// A page whose first connection fails also reconnects.
	b.full.Store(true)
	x.visit("/runs")
	x.Wait("the page says so", `document.getElementById("link").innerText === "reconnecting…"`)
	b.full.Store(false)
	x.Wait("the page is live after all", `document.getElementById("link").dataset.state === "live"`)
}

func (v visitor) progress(b *testSite) {
	x := v.open(b)
	x.live(b.h.Progress(new(control.BulkJob), control.BulkRetry, 7, "/dead"))
	x.Check(browsertest.Checks{Name: "progress", Pictures: os.Getenv("TIDEOVER_PICTURES")})
}

// pictures checks pages in several sizes and colour schemes. TIDEOVER_PICTURES names a folder for
// screenshots.
func (v visitor) pictures() {
	t := v.T
	dir := os.Getenv("TIDEOVER_PICTURES")
	b := newTestSite(t)
	b.start("quick", job{Name: "fine"})
	b.dead(3, job{Error: "dial tcp 10.0.0.1:443: connect: connection refused"})
	b.dead(1, job{Error: "parse response: invalid character '<' looking for beginning of value in a very long answer that goes on and on, " + strings.Repeat("and on ", 40)}, engine.Key("customer/4711"))
	order := b.start("order", job{Name: "4711", Fail: 2, Server: "150ms", Error: "503 Service Unavailable\nretry-after: 1", Progress: "3 of 7"}, engine.Source("cron"), engine.Key("order-4711"))
	b.start("slow", job{Hold: true, Name: "held"})
	wait := b.start("order", job{Name: "4712", Fail: 1, Error: "connection reset by peer", Progress: "half"})
	testwait.Until(t, "label waits", func() bool { return must(b.e.Get(t.Context(), wait)).Steps[2].Next != nil })
	b.until(b.start("soon", job{Fail: 1, Server: "50m", Error: "429 Too Many Requests"}), "waiting")
	b.until(order, "succeeded")
	dead := must(b.e.List(t.Context(), engine.Filter{States: []string{"dead"}})).Runs[0].ID
	x := v.open(b)
	for name, path := range map[string]string{"runs": "/runs", "run": "/runs/" + order, "waiting": "/runs/" + wait, "dead": "/dead", "dialog": "/runs/" + dead} {
		x.live(path)
		if name == "dialog" {
			x.click(`a[href$="/replay"]`)
			x.seen("#dialog[open]", "Retry with this input?")
		}
		x.looksRight(dir, name)
	}
	x.quiet()
}

// looksRight checks a page in several sizes and colour schemes, and writes screenshots to the folder
// if it is not "".
func (x *tab) looksRight(dir, name string) {
	x.Helper()
	for _, c := range []struct {
		name, scheme  string
		width, height int64
	}{{"light", "light", 1280, 900}, {"phone-dark", "dark", 360, 740}, {"dark", "dark", 1280, 900}, {"phone", "light", 360, 740}} {
		if dir == "" && (c.name == "dark" || c.name == "phone") {
			continue
		}
		x.Resize(c.width, c.height)
		x.SetColorScheme(c.scheme)
		for _, text := range x.TooWide() {
			x.Errorf("%s, %s: %s", name, c.name, text)
		}
		if dark := eval[string](x, `getComputedStyle(document.body).backgroundColor`) != "rgb(251, 252, 252)"; dark != (c.scheme == "dark") {
			x.Errorf("%s, %s: dark is %v", name, c.name, dark)
		}
		x.Screenshot(dir, name+"-"+c.name)
	}
}
