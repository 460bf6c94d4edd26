package web

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	pages "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/tideover/tideover/engine"
)

// chromium returns the browser that there is.
func chromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("there is no chromium; scripts/test-tools.sh installs it")
	return ""
}

// browse starts a browser for a test and its subtests.
func browse(t *testing.T, more ...chromedp.ExecAllocatorOption) context.Context {
	t.Helper()
	opts := []chromedp.ExecAllocatorOption{
		chromedp.ExecPath(chromium(t)), chromedp.Headless, chromedp.NoSandbox, chromedp.DisableGPU, chromedp.NoFirstRun,
		chromedp.WSURLReadTimeout(60 * time.Second),
	}
	for _, f := range []string{"disable-quic", "disable-background-networking", "disable-component-update", "disable-sync", "disable-dev-shm-usage", "hide-scrollbars"} {
		opts = append(opts, chromedp.Flag(f, true))
	}
	alloc, stop := chromedp.NewExecAllocator(context.Background(), append(opts, more...)...)
	ctx, cancel := chromedp.NewContext(alloc)
	t.Cleanup(func() {
		cancel()
		stop()
	})
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("start the browser: %v", err)
	}
	return ctx
}

// tab is a page in a browser, over an engine of its own.
type tab struct {
	*bed
	ctx context.Context

	mu         sync.Mutex
	complaints []string // of the browser
}

func open(browser context.Context, t *testing.T, b *bed) *tab {
	t.Helper()
	return openFor(browser, t, b, 60*time.Second)
}

// openFor opens a tab that is closed after a time at the latest.
func openFor(browser context.Context, t *testing.T, b *bed, limit time.Duration) *tab {
	t.Helper()
	tab0, closeTab := chromedp.NewContext(browser, chromedp.WithNewBrowserContext())
	ctx, cancel := context.WithTimeout(tab0, limit)
	x := &tab{bed: b, ctx: ctx}
	if err := chromedp.Do(tab0); err != nil {
		t.Fatalf("open a tab: %v", err)
	}
	var listeners sync.WaitGroup
	messages, dialogs := chromedp.Console(ctx), chromedp.Events(ctx, pages.JavascriptDialogOpening)
	listeners.Go(func() {
		for m, err := range messages {
			if err != nil {
				return
			}
			if m.Type != "log" && m.Type != "debug" && m.Type != "info" {
				x.complain(fmt.Sprintf("%s: %s (%s)", m.Type, m.Text, m.URL))
			}
		}
	})
	listeners.Go(func() {
		for d, err := range dialogs {
			if err != nil {
				return
			}
			x.complain("a script opened a dialog: " + d.Message)
			_, _ = chromedp.Call(ctx, pages.HandleJavaScriptDialog, pages.HandleJavaScriptDialogParams{Accept: true})
		}
	})
	t.Cleanup(func() {
		cancel()
		listeners.Wait()
		closeTab()
	})
	x.do(chromedp.EmulateViewport(1280, 900))
	return x
}

func (x *tab) complain(text string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.complaints = append(x.complaints, text)
}

// scripts turns scripts on or off.
func (x *tab) scripts(on bool) {
	x.Helper()
	if _, err := chromedp.Call(x.ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: !on}); err != nil {
		x.Fatal(err)
	}
}

// colours turns the page light or dark.
func (x *tab) colours(scheme string) {
	x.Helper()
	features := []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}
	if _, err := chromedp.Call(x.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: features}); err != nil {
		x.Fatal(err)
	}
}

// quiet fails if the browser has complained.
func (x *tab) quiet() {
	x.Helper()
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, c := range x.complaints {
		x.Errorf("the browser says: %s", c)
	}
	x.complaints = nil
	for _, name := range eval[[]string](x, `performance.getEntriesByType("resource").map(e => e.name).filter(n => !n.startsWith(location.origin + "/"))`) {
		x.Errorf("the page has asked for %s", name)
	}
}

func (x *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	x.Helper()
	if err := chromedp.Do(x.ctx, actions...); err != nil {
		x.Fatalf("browser: %v", err)
	}
}

func (x *tab) visit(path string) {
	x.Helper()
	x.do(chromedp.Navigate(x.srv.URL + path))
}

// live visits a page and waits until it follows.
func (x *tab) live(path string) {
	x.Helper()
	x.visit(path)
	x.wait("the page is live", `document.getElementById("link").dataset.state === "live"`)
}

// eval returns the value of an expression.
func eval[T any](x *tab, expr string) T {
	x.Helper()
	v, err := chromedp.Run(x.ctx, chromedp.Evaluate[T](expr))
	if err != nil {
		x.Fatalf("%s: %v", expr, err)
	}
	return v
}

// exec runs a script.
func (x *tab) exec(script string) {
	x.Helper()
	eval[bool](x, "(() => {"+script+"\nreturn true})()")
}

// wait waits until an expression is true.
func (x *tab) wait(what, expr string) {
	x.Helper()
	limit := time.Now().Add(20 * time.Second)
	for {
		ok, err := chromedp.Run(x.ctx, chromedp.Evaluate[bool]("!!("+expr+")"))
		if ok {
			return
		}
		if time.Now().After(limit) || x.ctx.Err() != nil {
			x.Fatalf("waited in vain: %s (%v)\n%s", what, err, eval[string](x, "document.body.innerText"))
		}
		time.Sleep(30 * time.Millisecond)
	}
}

// seen waits until the page has an element with the text.
func (x *tab) seen(selector, text string) {
	x.Helper()
	x.wait(selector+" has "+text, fmt.Sprintf(`[...document.querySelectorAll(%q)].some(e => e.innerText.includes(%q))`, selector, text))
}

func (x *tab) click(selector string) {
	x.Helper()
	x.wait(selector+" is there", fmt.Sprintf(`document.querySelector(%q)`, selector))
	x.do(chromedp.Click(chromedp.CSS(selector)))
}

// visitor is a test with a browser.
type visitor struct {
	*testing.T
	browser context.Context
}

func TestBrowser(t *testing.T) {
	t.Parallel()
	browser := browse(t)
	for _, c := range []struct {
		name string
		do   func(visitor)
	}{
		{"pages load without a complaint", visitor.loads},
		{"a run appears and counts down", visitor.appears},
		{"what the reader has opened stays open", visitor.stays},
		{"a dead letter is retried in a dialog", visitor.retries},
		{"everything works without scripts", visitor.plain},
		{"filters are in the address", visitor.filters},
		{"nothing planted runs", visitor.hostile},
		{"a broken connection comes back", visitor.reconnects},
		{"the overview follows", visitor.overviewFollows},
		{"many runs are canceled in a dialog", visitor.bulk},
		{"a test is sent in a dialog", visitor.sendsTest},
		{"policies and health", visitor.looks},
		{"by keyboard", visitor.keys},
		{"pages that grew up, without scripts", visitor.grownPlain},
		{"pictures", visitor.pictures},
		{"pictures of pages that grew up", visitor.grownPictures},
	} {
		t.Run(c.name, func(t *testing.T) { c.do(visitor{t, browser}) })
	}
}

func (v visitor) loads() {
	t, browser := v.T, v.browser
	b := newBed(t)
	dead := b.dead(2, job{})[0]
	wait := b.start("order", job{Fail: 1, Progress: "half"})
	b.until(wait, "waiting")
	x := open(browser, t, b)
	for _, path := range []string{"/", "/runs?q=nothing", "/dead", "/runs/" + dead, "/runs/" + wait} {
		x.live(path)
		if eval[string](x, "document.title") == "" {
			t.Errorf("%s has no title", path)
		}
	}
	x.visit("/runs/" + dead + "/replay")
	x.quiet()

	// The policy is in force: what it forbids is refused.
	x.exec(`const s = document.createElement("script"); s.textContent = "window.planted = 1"; document.body.append(s)`)
	if eval[bool](x, "!!window.planted") {
		t.Error("an inline script has run")
	}
	poll(t, "the browser has said so", func() bool {
		x.mu.Lock()
		defer x.mu.Unlock()
		return slices.ContainsFunc(x.complaints, func(c string) bool { return strings.Contains(c, "Content Security Policy") })
	})
}

func (v visitor) appears() {
	t, browser := v.T, v.browser
	b := newBed(t)
	x := open(browser, t, b)
	x.live("/runs")
	x.seen("#pulse", "Nothing is running or waiting")
	id := b.start("soon", job{Fail: 1, Error: "503"})
	row := "#r-" + id
	x.seen(row, "waiting")
	x.seen(row, "by policy")
	x.seen(row, "503")
	x.seen("#totals", "next wake-up")

	// Note every text that the countdown ever has, also between two frames.
	x.exec(fmt.Sprintf(`window.texts = []; window.swaps = 0;
		const note = () => texts.push(document.querySelector("%s time[data-in]")?.textContent ?? "gone");
		note();
		new MutationObserver(note).observe(document.getElementById("live"), {childList: true, subtree: true, characterData: true});
		document.addEventListener("htmx:after:swap", () => swaps++);`, row))
	for range 3 {
		n := eval[int](x, "swaps")
		b.start("quick", job{})
		x.wait("another run swaps the list", fmt.Sprintf("swaps > %d", n))
	}
	x.wait("it counts down", `new Set(texts).size >= 4`)
	last := 21
	for _, text := range eval[[]string](x, "texts") {
		n := 0
		if _, err := fmt.Sscanf(text, "in %d s", &n); err != nil || n > last {
			t.Errorf("the countdown said %q after %d", text, last)
			break
		}
		last = n
	}
	b.act(id, "wake")
	x.seen(row, "succeeded")
	if n := eval[int](x, "performance.getEntriesByType('navigation').length"); n != 1 {
		t.Errorf("the page was loaded %d times", n)
	}
	x.quiet()
}

func (v visitor) stays() {
	t, browser := v.T, v.browser
	b := newBed(t)
	id := b.start("soon", job{Fail: 3, Error: "first line\nsecond line"})
	b.until(id, "waiting")
	x := open(browser, t, b)
	x.live("/runs/" + id)
	x.seen("#next", "Next attempt in")
	x.click("#s0-a1 details summary")
	x.seen("#s0-a1 details pre", "second line")
	x.do(chromedp.Focus(chromedp.CSS("#s0-a1 details summary")))
	b.act(id, "wake")
	x.wait("the second attempt is shown", `document.getElementById("s0-a2")`)
	x.seen("#s0-a1", "ended early by page")
	if !eval[bool](x, `document.querySelector("#s0-a1 details").open`) {
		t.Error("the error was closed by an update")
	}
	if !eval[bool](x, `document.activeElement.tagName === "SUMMARY"`) {
		t.Error("the focus was lost by an update")
	}
	x.quiet()
}

func (v visitor) retries() {
	t, browser := v.T, v.browser
	b := newBed(t)
	ids := b.dead(3, job{Error: "418"})
	x := open(browser, t, b)
	x.live("/runs/" + ids[0])
	x.seen("#said", "dead")
	x.click(`a[href$="/retry"]`)
	x.seen("#dialog[open]", "Retry this run?")
	x.click("#dialog [data-close]")
	x.wait("the dialog is closed", `!document.getElementById("dialog").open`)
	x.click(`a[href$="/retry"]`)
	x.seen("#dialog[open]", "Retry this run?")
	x.click("#dialog button.go")
	x.seen("#flash", "Put back to work.")
	x.seen("#said", "succeeded")
	x.seen("#notes", "page")

	x.live("/dead")
	x.seen("#said", "2 runs have given up")
	x.click("#groups a[data-dialog]")
	x.seen("#dialog[open]", "Retry 2 dead letters?")
	x.click("#dialog button.go")
	x.seen("#flash", "2 put back to work.")
	x.seen("#said", "No run has given up")
	for _, id := range ids {
		b.until(id, "succeeded")
	}

	bad := b.dead(1, job{Name: "wrong"})[0]
	x.click("#r-" + bad + ` a[href$="/replay"]`)
	x.seen("#dialog[open]", "Replay with this input?")
	x.do(chromedp.SetValue(chromedp.CSS("#dialog textarea"), `{"name": `))
	x.quiet()
	x.click("#dialog button.go")
	x.seen("#dialog[open] .problem", "not JSON")
	x.do(chromedp.SetValue(chromedp.CSS("#dialog textarea"), `{"name": "right"}`))
	x.click("#dialog button.go")
	x.seen("#flash", "This is the new run.")
	x.seen("#said", "succeeded")
	x.seen("#input pre", "right")
	x.refused("422")
}

// refused forgets that the browser noted an answer that was meant.
func (x *tab) refused(status string) {
	x.Helper()
	x.mu.Lock()
	x.complaints = slices.DeleteFunc(x.complaints, func(c string) bool { return strings.Contains(c, status) })
	x.mu.Unlock()
	x.quiet()
}

func (v visitor) plain() {
	t, browser := v.T, v.browser
	b := newBed(t)
	id := b.dead(1, job{})[0]
	x := open(browser, t, b)
	x.scripts(false)
	x.visit("/dead")
	x.seen("#link", "not live")
	x.click("#r-" + id + ` a[href$="/retry"]`)
	x.seen("form.question", "Retry this run?")
	x.click("form.question button")
	x.seen("#flash", "Put back to work.")
	b.until(id, "succeeded")
	x.visit("/runs/" + id)
	x.seen("#said", "succeeded")
	x.scripts(true)
	x.quiet()
}

func (v visitor) filters() {
	t, browser := v.T, v.browser
	b := newBed(t)
	dead := b.dead(1, job{})[0]
	wait := b.start("slow", job{Fail: 1}, engine.Key("the-key"))
	b.until(wait, "waiting")
	x := open(browser, t, b)
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
	x.wait("the address has the workflow", `location.search === "?q=the-key&workflow=quick"`)
	x.seen(".empty", "No run is like this")
	x.do(chromedp.SetValue(chromedp.CSS("input[name=q]"), dead[:20]))
	x.click("form.filter button")
	x.wait("the address has the search", fmt.Sprintf(`location.search === "?q=%s&workflow=quick"`, dead[:20]))
	x.wait("the list has it", `document.getElementById("rows")`)
	rows(dead)
	x.quiet()
}

func (v visitor) hostile() {
	t, browser := v.T, v.browser
	b := newBed(t)
	var ids []string
	for _, h := range hostile {
		text := strings.ReplaceAll(h.text, "alert(1)", "window.planted=1")
		ids = append(ids, b.start("quick", job{Name: text, Fail: 3, Error: text, Progress: text}, engine.Source(text)))
		b.start("quick", job{Name: text, Out: text}, engine.Key(strings.ToValidUTF8(text, ""))) // others are refused
	}
	for _, id := range ids {
		b.until(id, "dead")
	}
	x := open(browser, t, b)
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
	// By the stream too.
	x.live("/runs/" + ids[1])
	b.act(ids[1], "retry")
	x.seen("#said", "succeeded")
	check("the stream")
	x.quiet()
}

func (v visitor) reconnects() {
	t, browser := v.T, v.browser
	b := newBed(t)
	x := open(browser, t, b)
	x.live("/runs")
	// The server goes away, and comes back at the same address.
	addr := b.srv.Listener.Addr().String()
	b.srv.CloseClientConnections()
	b.srv.Close()
	x.wait("the page says so", `document.getElementById("link").innerText === "reconnecting…"`)
	id := b.start("quick", job{})
	var l net.Listener
	poll(t, "the address is free", func() (ok bool) {
		var err error
		l, err = net.Listen("tcp", addr)
		return err == nil
	})
	b.srv = &httptest.Server{Listener: l, Config: &http.Server{Handler: b.h}}
	b.srv.Start()
	x.wait("the page is live again", `document.getElementById("link").dataset.state === "live"`)
	x.seen("#r-"+id, "succeeded")

	// The first connection of a page may be refused too.
	b.h.streams.Add(maxStreams)
	x.visit("/runs")
	x.wait("the page says so", `document.getElementById("link").innerText === "reconnecting…"`)
	b.h.streams.Add(-maxStreams)
	x.wait("the page is live after all", `document.getElementById("link").dataset.state === "live"`)
}

// pictures looks at pages in sizes and colours. TIDEOVER_PICTURES names
// a folder to keep them in.
func (v visitor) pictures() {
	t, browser := v.T, v.browser
	dir := os.Getenv("TIDEOVER_PICTURES")
	b := newBed(t)
	b.start("quick", job{Name: "fine"})
	b.dead(3, job{Error: "dial tcp 10.0.0.1:443: connect: connection refused"})
	b.dead(1, job{Error: "parse response: invalid character '<' looking for beginning of value in a very long answer that goes on and on, " + strings.Repeat("and on ", 40)}, engine.Key("customer/4711"))
	order := b.start("order", job{Name: "4711", Fail: 2, Server: "150ms", Error: "503 Service Unavailable\nretry-after: 1", Progress: "3 of 7"}, engine.Source("cron"), engine.Key("order-4711"))
	b.start("slow", job{Hold: true, Name: "held"})
	wait := b.start("order", job{Name: "4712", Fail: 1, Error: "connection reset by peer", Progress: "half"})
	poll(t, "label waits", func() bool { return must(b.e.Get(t.Context(), wait)).Steps[2].Next != nil })
	b.until(b.start("soon", job{Fail: 1, Server: "40s", Error: "429 Too Many Requests"}), "waiting")
	b.until(order, "succeeded")
	dead := must(b.e.List(t.Context(), engine.Filter{States: []string{"dead"}})).Runs[0].ID
	x := open(browser, t, b)
	for i, c := range []struct {
		name, scheme  string
		width, height int64
	}{{"light", "light", 1280, 900}, {"phone-dark", "dark", 360, 740}, {"dark", "dark", 1280, 900}, {"phone", "light", 360, 740}} {
		if i > 1 && dir == "" {
			break
		}
		x.do(chromedp.EmulateViewport(c.width, c.height))
		x.colours(c.scheme)
		for name, path := range map[string]string{"runs": "/runs", "run": "/runs/" + order, "waiting": "/runs/" + wait, "dead": "/dead", "dialog": "/runs/" + dead} {
			x.live(path)
			if name == "dialog" {
				x.click(`a[href$="/replay"]`)
				x.seen("#dialog[open]", "Replay")
			}
			if w := eval[int64](x, "document.documentElement.scrollWidth"); w > c.width {
				t.Errorf("%s, %s: %d wide", name, c.name, w)
			}
			if dark := eval[string](x, "getComputedStyle(document.body).backgroundColor") != "rgb(251, 252, 252)"; dark != (c.scheme == "dark") {
				t.Errorf("%s, %s: dark is %v", name, c.name, dark)
			}
			if dir != "" {
				png, err := chromedp.Run(x.ctx, chromedp.FullScreenshot(100))
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, name+"-"+c.name+".png"), png, 0o600); err != nil {
					t.Error(err)
				}
			}
		}
	}
	x.quiet()
}
