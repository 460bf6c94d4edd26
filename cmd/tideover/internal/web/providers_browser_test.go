package web

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/tideover/tideover/cmd/tideover/internal/browsertest"
	"github.com/tideover/tideover/gateway"
)

// TestProvidersInABrowser runs subtests one after the other on a shared server.
func TestProvidersInABrowser(t *testing.T) {
	t.Parallel()
	p, tab := newProviderSite(t, nil), browsertest.Open(t)
	for _, c := range []struct {
		name string
		do   func(visitor, *providerSite)
	}{
		{"a provider goes down and comes back", visitor.providerFollows},
		{"opened, closed, drained, reset", visitor.providerActions},
		{"without scripts", visitor.providerPlain},
		{"by keyboard", visitor.providerKeys},
		{"nothing planted runs", visitor.providerHostile},
		{"pictures", visitor.providerPictures},
	} {
		if c.name == "pictures" && !picturesWanted() {
			continue
		}
		t.Run(c.name, func(t *testing.T) { c.do(visitor{t, tab.With(t)}, &providerSite{p.with(t), p.fleet}) })
	}
	t.Run("without an engine", func(t *testing.T) { visitor{t, tab.With(t)}.providerAlone() })
}

func (v visitor) providerFollows(p *providerSite) {
	p.fleet.set(fine("openai"))
	x := v.open(p.testSite)
	x.live("/runs")
	x.click(`nav a[href="/providers"]`)
	x.Wait("the page is live", `location.pathname === "/providers" && document.getElementById("link").dataset.state === "live"`)
	x.seen("#p-openai .state", "up")
	p.fleet.change("openai", func(st *gateway.Status) {
		*st = sick("openai")
		for i := range st.Outages { // make past outages longer than the current one will get during the test
			st.Outages[i].Seconds *= 60
			st.Outages[i].Predicted *= 60
		}
	})
	x.seen("#p-openai .state", "down")
	x.seen("#p-openai .next", "no requests are sent until the next probe")
	x.seen("#p-openai .cools", "402 insufficient_quota")
	x.seen("#p-openai .meters", "predicted 50 min 00 s")
	x.Wait("there is a countdown", `/^in 2 h \d+ min$/.test([...document.querySelectorAll("#p-openai .cools time[data-in]")].at(-1).textContent)`)

	// Check the widths of the bars. The first bar is the current outage; the third is the longest.
	widths := eval[[]float64](x, `[...document.querySelectorAll("#p-openai .lasted:not(.swatch)")].map(r => r.getBoundingClientRect().width / r.closest("svg").getBoundingClientRect().width)`)
	if len(widths) != 4 || widths[2] < 0.59 || widths[2] > 0.61 || widths[1] < 0.30 || widths[1] > 0.32 {
		v.Errorf("widths of the bars: %v", widths)
	}
	x.exec(`window.texts = new Set(); const note = () => texts.add(document.querySelector("#p-openai .next strong time")?.textContent);
		new MutationObserver(note).observe(document.getElementById("live"), {childList: true, subtree: true, characterData: true});`)
	x.Wait("it counts down", `texts.size >= 2`)
	x.click(`#p-openai a[href="/providers/openai"]`)
	x.seen("#keys", "team-f")
	x.Wait("the page of the provider is live", `document.getElementById("link").dataset.state === "live"`)
	p.fleet.change("openai", func(st *gateway.Status) { *st = fine("openai") })
	x.seen("#said .state", "up")
	x.Wait("there is nothing left of it", `!document.getElementById("outages")`)
	p.fleet.remove("openai")
	x.seen("#link", "no longer kept")
	x.quiet()
}

func (v visitor) providerActions(p *providerSite) {
	p.fleet.set(fine("openai"), sick("anthropic"))
	x := v.open(p.testSite)
	x.live("/providers")
	do := func(action, question, said, state string) {
		v.Helper()
		x.click(fmt.Sprintf(`#p-openai a[href$="/%s"]`, action))
		x.seen("#dialog[open]", question)
		x.click("#dialog button:not([data-close])")
		x.seen("#flash", said)
		x.Wait("the dialog is closed", `!document.getElementById("dialog").open`)
		x.seen("#p-openai .state", state)
	}
	x.click(`#p-openai a[href$="/open"]`)
	x.seen("#dialog[open]", "Block openai?")
	x.click("#dialog [data-close]")
	x.Wait("the dialog is closed without an action", `!document.getElementById("dialog").open`)
	if st := p.state("openai"); st.State != gateway.Up {
		v.Errorf("it is %s", st.State)
	}
	do("drain", "Drain openai?", "Draining: no new requests are sent to it.", "draining")
	do("open", "Block openai?", "Blocked: no requests are sent to it.", "blocked")
	do("close", "Force openai?", "Forced: it counts as up", "forced by an operator")
	do("reset", "Reset openai?", "Reset: its health decides again.", "up")
	x.Wait("it is not forced", `!document.querySelector("#p-openai .held")`)
	if st := p.state("anthropic"); st.State != gateway.Down {
		v.Errorf("the other one is %s", st.State)
	}
	if n := eval[int](x, "performance.getEntriesByType('navigation').length"); n != 1 {
		v.Errorf("the page was loaded %d times", n)
	}
	x.live("/providers/anthropic")
	x.click(`#title a[href$="/open"]`)
	x.seen("#dialog[open]", "Requests go to backup, bedrock, or are rejected.")
	p.fleet.remove("anthropic")
	x.click("#dialog button.danger")
	x.seen("#dialog[open]", "no such provider")
	x.expectStatus("404")
}

func (v visitor) providerPlain(p *providerSite) {
	p.fleet.set(fine("openai"), sick("anthropic"))
	x := v.open(p.testSite)
	x.EnableScripts(false)
	x.visit("/providers")
	x.seen("#link", "not live")
	x.seen("#p-anthropic .cools", "usable again in 1 h ")
	x.click(`#p-openai a[href$="/drain"]`)
	x.seen("form.question", "Drain openai?")
	x.click("form.question button")
	x.seen("#flash", "Draining: no new requests are sent to it.")
	x.seen("#p-openai .state", "draining")
	x.EnableScripts(true)
	x.quiet()
}

func (v visitor) providerKeys(p *providerSite) {
	p.fleet.set(fine("openai"))
	x := v.open(p.testSite)
	x.live("/providers")
	x.Do(chromedp.Focus(chromedp.CSS(`#p-openai a[href$="/drain"]`)))
	p.fleet.change("openai", func(st *gateway.Status) { st.InFlight = 4711 })
	x.seen("#p-openai", "4711")
	if !eval[bool](x, `document.activeElement.matches('#p-openai a[href$="/drain"]')`) {
		v.Error("the focus was lost by an update")
	}
	x.PressEnter()
	x.seen("#dialog[open]", "Drain openai?")
	if !eval[bool](x, `document.getElementById("dialog").contains(document.activeElement)`) {
		v.Error("the focus is not in the dialog")
	}
	x.Do(chromedp.KeyEvent("\u001b"))
	x.Wait("Escape closes it", `!document.getElementById("dialog").open`)
	if st := p.state("openai"); st.State != gateway.Up {
		v.Errorf("it is %s", st.State)
	}
	x.quiet()
}

func (v visitor) providerHostile(p *providerSite) {
	var list []gateway.Status
	for i, h := range hostile {
		text := strings.ReplaceAll(h.text, "alert(1)", "window.planted=1")
		list = append(list, poisoned(fmt.Sprintf("h%02d", i), text))
	}
	p.fleet.set(list...)
	x := v.open(p.testSite)
	check := func(what string) {
		v.Helper()
		if eval[bool](x, "!!window.planted") || eval[int](x, `document.querySelectorAll("img, iframe, script:not([src])").length`) != 0 {
			v.Errorf("%s: what was planted has come to life", what)
		}
	}
	x.live("/providers")
	x.seen("#p-h00 .cools", "m1<script>window.planted=1</script>")
	x.seen("#p-h01 .handed", "m2<img src=x onerror=window.planted=1>")
	check("the list")
	x.live("/providers/h00")
	x.seen("#keys .error", "m1<script>window.planted=1</script>")
	x.seen("#outages td", "m1<script>window.planted=1</script>")
	check("the page")
	p.fleet.change("h00", func(st *gateway.Status) {
		st.Keys = slices.Clone(st.Keys)
		st.Keys[1].Reason = "m99<img src=x onerror=window.planted=1>"
	})
	x.seen("#keys .error", "m99<img src=x onerror=window.planted=1>")
	check("the stream")
	x.quiet()
	x.visit("/providers/%22%3E%3Cscript%3Ewindow.planted=1%3C%2Fscript%3E/open")
	x.seen("main", "no such provider")
	check("the refusal")
	x.expectStatus("404")
}

func (v visitor) providerAlone() {
	p := newGatewaySite(v.T, []gateway.Status{fine("openai")})
	x := v.open(p.testSite)
	x.visit("/")
	x.Wait("the page is live", `location.pathname === "/providers" && document.getElementById("link").dataset.state === "live"`)
	if got := eval[string](x, `document.querySelector("nav").innerText.trim()`); got != "Providers\nRequests\nHealth\nDocs" {
		v.Errorf("the navigation has %q", got)
	}
	p.fleet.change("openai", func(st *gateway.Status) { st.State = gateway.Throttled })
	x.seen("#p-openai .state", "throttled")
	x.click(`#p-openai a[href$="/drain"]`)
	x.seen("#dialog[open]", "Drain openai?")
	x.click("#dialog button:not([data-close])")
	x.seen("#flash", "Draining: no new requests are sent to it.")
	x.seen("#p-openai .state", "draining")
	x.quiet()
}

// gallery returns a provider in every state.
func gallery() []gateway.Status {
	throttled := fine("gemini")
	throttled.Preset, throttled.BaseURL, throttled.State, throttled.Since, throttled.Waiting = gateway.Gemini, "https://generativelanguage.googleapis.com", gateway.Throttled, near(-12*time.Second), 3
	throttled.ByClass, throttled.Keys = map[string]int{"normal": 3}, []gateway.KeyInfo{{Name: "free", Failures: 2}}
	throttled.Throttles = []gateway.Throttle{{
		Key: "free", Route: "POST /v1beta/models/gemini-pro:generateContent", Model: "gemini-pro", Reason: "429", Since: *near(-12 * time.Second), Until: *near(90 * time.Second), NextProbe: *near(40 * time.Second),
	}}
	recovering := fine("recovering")
	recovering.State, recovering.Since, recovering.Waiting, recovering.ByClass = gateway.Recovering, near(-3*time.Second), 40, map[string]int{"high": 12, "normal": 20, "low": 8}
	recovering.Breaker = "half-open"
	probing := sick("a-provider-with-a-very-long-name-that-does-not-fit-into-a-column-of-a-table")
	probing.State, probing.Breaker, probing.Failovers, probing.Quotas = gateway.Probing, "half-open", nil, nil
	probing.Keys[1].Reason = "401 " + strings.Repeat("and it goes on and on ", 20)
	probing.BaseURL = "https://a-very-long-name-of-a-host.in-some-region.of-a-cloud.example.com/with/a/path"
	opened, draining, held := fine("opened"), fine("draining"), fine("held")
	opened.State, opened.Breaker, draining.State = gateway.Opened, "forced-open", gateway.Draining
	held.Held, held.Breaker, held.Totals = true, "forced-closed", gateway.Totals{}
	refused := fine("refused")
	refused.State, refused.Since, refused.Why = gateway.Refused, near(-time.Minute), "its keys were rejected (401)"
	refused.Keys = []gateway.KeyInfo{{Name: "only", CoolUntil: near(4 * time.Minute), Refused: true, Reason: "401"}}
	return []gateway.Status{sick("anthropic"), fine("openai"), throttled, refused, recovering, probing, opened, draining, held}
}

// providerPictures checks the pages in several sizes and colour schemes, as pictures does.
func (v visitor) providerPictures(p *providerSite) {
	dir := os.Getenv("TIDEOVER_PICTURES")
	x := v.open(p.testSite)
	p.fleet.set(gallery()...)
	for _, shot := range []struct{ name, path string }{
		{"providers", "/providers"}, {"provider-up", "/providers/openai"}, {"provider", "/providers/anthropic"}, {"provider-dialog", "/providers/anthropic"}, {"providers-none", "/providers"},
	} {
		if shot.name == "providers-none" {
			p.fleet.set()
		}
		if shot.name != "provider-dialog" { // the dialog opens on the page of the previous shot
			x.live(shot.path)
		} else {
			x.click(`a[href$="/open"]`)
			x.seen("#dialog[open]", "Block anthropic?")
		}
		x.looksRight(dir, shot.name)
		if same := `getComputedStyle(document.querySelector(".swatch."+c), "::before").backgroundColor === getComputedStyle(document.querySelector(".meter ."+c)).fill`; shot.name == "provider" &&
			!eval[bool](x, `["lasted", "predicted"].every(c => `+same+`)`) {
			v.Errorf("%s: the legend has other colours than the bars", shot.name)
		}
	}
	x.quiet()
}
