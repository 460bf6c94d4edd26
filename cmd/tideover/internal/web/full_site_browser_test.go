package web

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/tideover/tideover/cmd/tideover/internal/storm"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/testwait"
	"github.com/tideover/tideover/nostr"
)

// busy starts runs and sends test messages, so that every page has content. Only its first call does
// anything.
func (g *fullSite) busy() {
	if g.isBusy {
		return
	}
	g.isBusy = true
	g.dead(3, job{Error: "dial tcp 10.0.0.1:443: connect: connection refused"})
	g.dead(1, job{Error: "parse response: invalid character '<' looking for beginning of value"})
	for range 12 {
		g.start("quick", job{Fail: 1})
	}
	g.until(g.start("order", job{Name: "4711", Fail: 2, Server: "150ms", Error: "503 Service Unavailable"}, engine.Key("order-4711")), "succeeded")
	g.until(g.start("soon", job{Fail: 1, Server: "50m", Error: "429 Too Many Requests"}), "waiting")
	g.until(g.start("slow", job{Fail: 1, Error: "connection reset by peer"}), "waiting")
	for _, name := range []string{"phone", "pager"} {
		if a := g.request("POST", testURL(name), nil); a.to == "" {
			g.Fatalf("test of %s: %d", name, a.status)
		}
	}
	testwait.Until(g, "the pager has given up", func() bool {
		return len(must(g.e.List(g.Context(), engine.Filter{Workflow: "notify.pager", States: []string{"dead"}})).Runs) > 0
	})
}

// storm sets a retry storm, a failed relay and a failed reload.
func (g *fullSite) storm() {
	g.update(func() {
		g.storms = []storm.Storm{{Subject: storm.Subject{Layer: "workflow", Name: "quick"}, Amplification: 3.4, Since: time.Now().Add(-time.Minute)}}
		g.reload = errors.New("tideover.yaml:12:3: policies.api: unknown key \"tries\"; did you mean attempts?")
		g.relays = []nostr.RelayStatus{{URL: "wss://relay.example", Up: true, Since: time.Now().Add(-time.Hour)}, {URL: "wss://another.relay.example", Error: "dial tcp: connection refused", Queued: 3, Since: time.Now().Add(-time.Minute)}}
	})
	g.h.Changed()
}

func (v visitor) overviewFollows(g *fullSite) {
	x := v.open(g.testSite)
	x.live("/")
	x.Wait("it is the overview", `location.pathname === "/overview"`)
	x.seen("#next", "Nothing is waiting.")
	id := g.start("soon", job{Fail: 1, Error: "503"})
	x.seen("#n-"+id, "by policy")
	x.Wait("it counts down", fmt.Sprintf(`/^in \d+ min \d+ s$/.test(document.querySelector("#n-%s time").textContent)`, id))
	x.Wait("the pulse has it", `document.querySelectorAll("#pulse rect").length > 0`)
	g.storm()
	x.seen("#storms", "Retry storm")
	x.seen("#alerts", "was not reloaded")
	g.update(func() { g.storms, g.reload = nil, nil })
	g.act(id, "wake")
	x.seen("#next", "Nothing is waiting.")
	x.Wait("the storm is over", `document.getElementById("storms").children.length === 0`)
	g.dead(1, job{Error: "418"})
	x.seen("#groups", "418")
	x.seen("#said", "1 run has given up")
	if n := eval[int](x, "performance.getEntriesByType('navigation').length"); n != 1 {
		v.Errorf("the page was loaded %d times", n)
	}
	x.quiet()
}

func (v visitor) bulk(b *testSite) {
	ids := []string{b.start("slow", job{Fail: 1}), b.start("slow", job{Fail: 1})}
	for _, id := range ids {
		b.until(id, "waiting")
	}
	x := v.open(b)
	x.live("/runs?workflow=slow")
	x.click(`#bulk a[href^="/bulk/cancel"]`)
	x.seen("#dialog[open]", "Cancel 2 runs?")
	x.click("#dialog [data-close]")
	x.Wait("nothing is done without a yes", `!document.getElementById("dialog").open`)
	x.click(`#bulk a[href^="/bulk/cancel"]`)
	x.seen("#dialog[open]", "Cancel 2 runs?")
	x.click("#dialog button.danger")
	x.seen("#flash", "2 canceled.")
	for _, id := range ids {
		x.seen("#r-"+id, "canceled")
	}
	b.dead(2, job{Error: "418"})
	x.live("/dead")
	x.click(`#groups a.danger`)
	x.seen("#dialog[open]", "Cancel 2 runs?")
	x.click("#dialog button.danger")
	x.seen("#said", "No run has given up")
	x.quiet()
}

func (v visitor) sendsTest(g *fullSite) {
	x := v.open(g.testSite)
	x.live("/notifications")
	x.click("#n-phone a[data-dialog]")
	x.seen("#dialog[open]", "Send a test message with phone?")
	x.click("#dialog button.go")
	x.seen("#flash", "The test message is queued")
	x.seen("#messages", "tideover: a test of phone")
	x.seen("#messages .state", "sent")
	x.click("#n-pager a[data-dialog]")
	x.seen("#dialog[open]", "Send a test message with pager?")
	x.click("#dialog button.go")
	x.seen("#said", "1 message could not be sent")
	x.seen("#messages", "no subscriber")
	x.quiet()
}

func (v visitor) policiesAndHealth(g *fullSite) {
	g.busy()
	x := v.open(g.testSite)
	x.visit("/policies")
	x.seen("main", "actual wait, set by server")
	x.Wait("dots are drawn", `document.querySelectorAll("circle.used").length > 3`)
	x.Wait("a dot is where it belongs", `[...document.querySelectorAll(".plot .area")].every(p => [...p.querySelectorAll("circle")].every(c => { const a = p.getBoundingClientRect(), b = c.getBoundingClientRect(); return b.left > a.left - 5 && b.right < a.right + 5 && b.top > a.top - 5 && b.bottom < a.bottom + 5; }))`)
	x.live("/health")
	x.seen("#process", "goroutines")
	x.seen("#disk", "log.db")
	g.storm()
	x.seen("#config", "did you mean attempts?")
	const script, image = "<script>window.planted=1</script>", "<img src=x onerror=window.planted=1>"
	g.update(func() {
		g.storms, g.reload = []storm.Storm{{Subject: storm.Subject{Layer: "provider", Name: image}, Amplification: 3, Since: time.Now()}}, errors.New(script+"\n"+image)
		g.relays = []nostr.RelayStatus{{URL: script, Error: image}, {URL: image, Up: true, Trouble: script}}
	})
	g.h.Changed()
	x.seen("#config", script)
	x.visit("/overview")
	x.seen("#storms", image)
	x.seen("main", script)
	if eval[bool](x, `!!window.planted || document.querySelectorAll("img, iframe, script:not([src])").length > 0`) {
		v.Error("what was planted has come to life")
	}
	g.update(func() { g.storms, g.reload, g.relays = nil, nil, nil })
	x.quiet()
}

func (v visitor) keys(g *fullSite) {
	g.busy()
	x := v.open(g.testSite)
	press := func(keys string) {
		v.Helper()
		x.Do(chromedp.KeyEvent(keys))
	}
	x.live("/runs")
	press("?")
	x.seen("#dialog[open]", "Keyboard")
	press("g")
	press("d") // must do nothing while a dialog is open
	press(kb.Escape)
	x.Wait("it is closed", `!document.getElementById("dialog").open && location.pathname === "/runs" && !document.getElementById("dialog").contains(document.activeElement)`)
	press("j")
	x.Wait("the first run has the focus", `document.activeElement === document.querySelector("#rows tr a")`)
	if eval[string](x, `getComputedStyle(document.activeElement).outlineStyle`) != "solid" {
		v.Error("the focus can't be seen")
	}
	press("j")
	press("k")
	x.Wait("the first again", `document.activeElement === document.querySelector("#rows tr a")`)
	press("/")
	x.Wait("the search has the focus", `document.activeElement.name === "q"`)
	x.exec(`document.activeElement.value = ""`) // remove the "/": a real keyboard would not type it, since the page handles the key
	press("gd?")                                // in a text field, shortcuts are normal text
	x.Wait("it was typed", `document.activeElement.value === "gd?" && !document.getElementById("dialog").open`)
	x.exec(`document.activeElement.blur()
		const now = Date.now(); // stop the clock: the two keys of a shortcut must follow each other quickly
		Date.now = () => now;`)
	press("g")
	press("o")
	x.Wait("the overview", `location.pathname === "/overview" && document.getElementById("link").dataset.state === "live"`)
	press("?")
	x.click("#shortcuts")
	press(kb.Escape)
	x.Wait("it is closed", `!document.getElementById("dialog").open`)
	press("?")
	x.visit("/keys")
	x.Wait("that they are off is kept", `!document.getElementById("shortcuts").checked`)
	x.exec(`localStorage.clear()`)
	x.quiet()
}

func (v visitor) fullSitePlain(g *fullSite) {
	g.busy()
	x := v.open(g.testSite)
	x.EnableScripts(false)
	x.visit("/overview")
	x.seen("#next", "in ")
	x.visit("/notifications")
	x.click("#n-phone a[data-dialog]")
	x.click("form.question button")
	x.seen("#flash", "The test message is queued")
	x.visit("/runs?workflow=soon")
	x.click(`#bulk a[href^="/bulk/cancel"]`)
	x.click("form.question button")
	x.seen("#flash", "1 canceled.")
	for _, path := range []string{"/policies", "/health", "/keys"} {
		x.visit(path)
		x.seen("h1", "")
	}
	x.EnableScripts(true)
	x.quiet()
}

// fullSitePictures checks pages in several sizes and colour schemes, as pictures does.
func (v visitor) fullSitePictures(g *fullSite) {
	dir := os.Getenv("TIDEOVER_PICTURES")
	g.busy()
	g.storm()
	x := v.open(g.testSite)
	for _, name := range []string{"overview", "policies", "notifications", "health", "keys", "bulk"} {
		path := "/" + name
		if name == "bulk" {
			path = "/runs?workflow=quick"
		}
		x.visit(path)
		if name == "bulk" {
			x.click(`#bulk a[href^="/bulk/retry"]`)
			x.seen("#dialog[open]", "Retry")
		}
		x.looksRight(dir, name)
	}
	x.quiet()
}
