//go:build unix

package web

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// Not parallel: one browser at a time is enough for a small machine.
func TestSessionsInABrowser(t *testing.T) { //nolint:paralleltest // see above
	browser := browse(t)
	for _, c := range []struct {
		name string
		do   func(visitor)
	}{
		{"a session that waits", visitor.sessionWaits},
		{"paused, resumed, retried, stopped", visitor.sessionObeys},
		{"without scripts", visitor.sessionPlain},
		{"by keyboard", visitor.sessionKeys},
		{"nothing planted runs", visitor.sessionHostile},
		{"pictures", visitor.sessionPictures},
	} {
		t.Run(c.name, func(t *testing.T) { c.do(visitor{t, browser}) })
	}
}

func (v visitor) sessionWaits() {
	d := newDen(v.T, map[string]string{"night": limited})
	d.reach("night", "waiting")
	x := open(v.browser, v.T, d.bed)
	x.live("/runs")
	x.click(`nav a[href="/sessions"]`)
	x.wait("the page is live", `location.pathname === "/sessions" && document.getElementById("link").dataset.state === "live"`)
	x.seen("#s-night", "waiting")
	x.seen("#s-night", "retry after 3600s")
	x.seen("#s-night", "set by server")
	x.seen("#s-night", "windows 1/10")
	x.wait("there is a countdown", `/^in 1 h 0\d min$/.test(document.querySelector("#s-night time[data-in]").textContent)`)

	// Also when the server's clock and what it wrote are gone, it goes on.
	x.exec(`window.texts = new Set();
		const el = document.querySelector("#s-night time[data-in]");
		el.dateTime = new Date(Date.now() + 90e3).toISOString();
		new MutationObserver(() => texts.add(el.textContent)).observe(el, {childList: true, characterData: true, subtree: true});`)
	x.wait("it counts down", `texts.size >= 2`)
	x.click("#s-night a[href='/sessions/night']")
	x.seen("#timeline", "Timeline")
	x.wait("the page of the session is live", `document.getElementById("link").dataset.state === "live"`)
	x.click(`#title a[href$="/pause"]`)
	x.seen("#dialog[open]", "Pause night?")
	x.click("#dialog button:not([data-close])")
	x.seen("#title .state", "paused")
	x.click("#facts a[href^='/runs/']")
	x.seen("#timeline", "Timeline")
	x.quiet()
}

func (v visitor) sessionObeys() {
	d := newDen(v.T, map[string]string{"s": limited})
	d.reach("s", "waiting")
	x := open(v.browser, v.T, d.bed)
	x.live("/sessions")
	do := func(action, question, said, state string) {
		v.Helper()
		x.click(fmt.Sprintf(`#s-s a[href$="/%s"]`, action))
		x.seen("#dialog[open]", question)
		x.click("#dialog button:not([data-close])")
		x.seen("#flash", said)
		x.wait("the dialog is closed", `!document.getElementById("dialog").open`)
		x.seen("#s-s .state", state)
	}
	x.click(`#s-s a[href$="/stop"]`)
	x.seen("#dialog[open]", "Stop s?")
	x.click("#dialog [data-close]")
	x.wait("nothing is done without a yes", `!document.getElementById("dialog").open`)
	do("pause", "Pause s?", "Paused.", "paused")
	do("resume", "Have s go on?", "It goes on.", "waiting")
	do("retry-now", "Retry s now?", "The wait was ended.", "waiting")
	poll(v, "a second command", func() bool { return d.reach("s", "queued", "running", "waiting").Commands == 2 })
	x.seen("#s-s", "windows 2/10")
	do("reset", "Reset s?", "forgotten", "waiting")
	x.seen("#s-s", "windows 0/10")
	do("tonight", "Stop s for tonight?", "Stopped for tonight.", "waiting")
	x.seen("#s-s", "set by hand")
	do("stop", "Stop s?", "Stopped.", "stopped")
	if n := eval[int](x, "performance.getEntriesByType('navigation').length"); n != 1 {
		v.Errorf("the page was loaded %d times", n)
	}
	x.quiet()
}

func (v visitor) sessionPlain() {
	d := newDen(v.T, map[string]string{"s": limited})
	d.reach("s", "waiting")
	x := open(v.browser, v.T, d.bed)
	x.scripts(false)
	x.visit("/sessions")
	x.seen("#s-s", "in 1 h")
	x.click(`#s-s a[href$="/pause"]`)
	x.seen("form.question", "Pause s?")
	x.click("form.question button")
	x.seen("#flash", "Paused.")
	x.seen("#s-s .state", "paused")
	x.scripts(true)
	x.quiet()
}

func (v visitor) sessionKeys() {
	d := newDen(v.T, map[string]string{"s": limited})
	d.reach("s", "waiting")
	x := open(v.browser, v.T, d.bed)
	x.live("/sessions")
	x.do(chromedp.Focus(chromedp.CSS(`#s-s a[href$="/pause"]`)))
	x.do(chromedp.KeyEvent("\r"))
	x.seen("#dialog[open]", "Pause s?")
	if !eval[bool](x, `document.getElementById("dialog").contains(document.activeElement)`) {
		v.Error("the focus is not in the dialog")
	}
	x.do(chromedp.KeyEvent("\u001b"))
	x.wait("Escape closes it", `!document.getElementById("dialog").open`)
	d.reach("s", "waiting")
	x.quiet()
}

func (v visitor) sessionHostile() {
	dir := v.TempDir()
	scripts := map[string]string{}
	for i, h := range hostile {
		text := strings.ReplaceAll(strings.ReplaceAll(h.text, "alert(1)", "window.planted=1"), "\x00", "")
		name := fmt.Sprintf("h%d", i)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text+" retry after 3600s\n"), 0o600); err != nil {
			v.Fatal(err)
		}
		scripts[name] = "cat " + filepath.Join(dir, name) + "; exit 1"
	}
	d := newDen(v.T, scripts)
	for name := range scripts {
		d.reach(name, "waiting")
	}
	x := open(v.browser, v.T, d.bed)
	check := func(what string) {
		v.Helper()
		if eval[bool](x, "!!window.planted") || eval[int](x, `document.querySelectorAll("img, iframe, script:not([src])").length`) != 0 {
			v.Errorf("%s: what was planted has come to life", what)
		}
	}
	x.live("/sessions")
	x.seen("#s-h0", "m1<script>")
	x.seen("#s-h1", "m2<img")
	check("the page")
	d.tell("h1", "pause")
	x.seen("#s-h1 .state", "paused")
	check("the stream")
	x.quiet()
	x.visit("/sessions/%22%3E%3Cscript%3Ewindow.planted=1%3C%2Fscript%3E/stop")
	x.seen("main", "no such session")
	check("the refusal")
	x.refused("404")
}

// sessionPictures looks at the page in sizes and colours, as pictures does.
func (v visitor) sessionPictures() {
	dir := os.Getenv("TIDEOVER_PICTURES")
	long := `echo "You've hit your usage limit, ` + strings.Repeat("and it goes on and on ", 20) + ` try again in 2 days 17 hours"; exit 1`
	d := newDen(v.T, map[string]string{
		"nightly-refactor": limited, "busy": working, "done": "exit 0", "a-very-long-name-of-a-session-that-somebody-chose": long,
		"paused": limited, "spent": `echo "retry after 1000000s"; exit 1`,
	})
	d.reach("nightly-refactor", "waiting")
	d.reach("busy", "running")
	d.reach("paused", "waiting")
	d.reach("spent", "gave-up")
	d.tell("paused", "pause")
	empty := newDen(v.T, nil)
	for name, b := range map[string]*bed{"sessions": d.bed, "sessions-none": empty.bed} {
		x := open(v.browser, v.T, b)
		for _, c := range []struct {
			name, scheme  string
			width, height int64
		}{{"light", "light", 1280, 900}, {"phone-dark", "dark", 360, 740}} {
			x.do(chromedp.EmulateViewport(c.width, c.height))
			x.colours(c.scheme)
			x.live("/sessions")
			if w := eval[int64](x, "document.documentElement.scrollWidth"); w > c.width {
				v.Errorf("%s, %s: %d wide", name, c.name, w)
			}
			if dark := eval[string](x, "getComputedStyle(document.body).backgroundColor") != "rgb(251, 252, 252)"; dark != (c.scheme == "dark") {
				v.Errorf("%s, %s: dark is %v", name, c.name, dark)
			}
			if dir == "" {
				continue
			}
			png, err := chromedp.Run(x.ctx, chromedp.FullScreenshot(100))
			if err != nil {
				v.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, name+"-"+c.name+".png"), png, 0o600); err != nil {
				v.Error(err)
			}
		}
		x.quiet()
	}
}
