//go:build unix

package web

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/tideover/tideover/cmd/tideover/internal/browsertest"
	"github.com/tideover/tideover/internal/testwait"
)

// TestSessionsInABrowser runs subtests one after the other on a shared server. Each uses other
// sessions.
func TestSessionsInABrowser(t *testing.T) {
	t.Parallel()
	scripts := map[string]string{
		"night": limited, "obeys": limited, "plain": limited, "keys": limited,
		"busy": working, "done": "exit 0", "paused": limited, "spent": `echo "retry after 1000000s"; exit 1`,
		"a-very-long-name-of-a-session-that-does-not-fit-in": `echo "You've hit your usage limit, ` + strings.Repeat("and it goes on and on ", 20) + ` try again in 2 days 17 hours"; exit 1`,
	}
	dir := t.TempDir()
	for i, h := range hostile[:2] { // TestHostileSessions uses the other texts
		text := strings.ReplaceAll(h.text, "alert(1)", "window.planted=1")
		name := fmt.Sprintf("h%d", i)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text+" retry after 5400s\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		scripts[name] = "cat " + filepath.Join(dir, name) + "; exit 1"
	}
	d, tab := newSessionSite(t, scripts), browsertest.Open(t)
	for _, c := range []struct {
		name string
		do   func(visitor, *sessionSite)
	}{
		{"a session that waits", visitor.sessionWaits},
		{"paused, resumed, retried, stopped", visitor.sessionActions},
		{"without scripts", visitor.sessionPlain},
		{"by keyboard", visitor.sessionKeys},
		{"nothing planted runs", visitor.sessionHostile},
		{"pictures", visitor.sessionPictures},
	} {
		if c.name == "pictures" && !picturesWanted() {
			continue
		}
		t.Run(c.name, func(t *testing.T) { c.do(visitor{t, tab.With(t)}, &sessionSite{d.with(t), d.manager}) })
	}
}

func (v visitor) sessionWaits(d *sessionSite) {
	d.reach("night", "waiting")
	x := v.open(d.testSite)
	x.live("/runs")
	x.click(`nav a[href="/sessions"]`)
	x.Wait("the page is live", `location.pathname === "/sessions" && document.getElementById("link").dataset.state === "live"`)
	x.seen("#s-night", "waiting")
	x.seen("#s-night", "retry after 5400s")
	x.seen("#s-night", "set by the assistant")
	x.seen("#s-night", "windows 1/10")
	x.Wait("there is a countdown", `/^in 1 h \d+ min$/.test(document.querySelector("#s-night time[data-in]").textContent)`)

	// The script of the page counts down without further messages from the server.
	x.exec(`window.texts = new Set();
		const el = document.querySelector("#s-night time[data-in]");
		el.dateTime = new Date(Date.now() + 90e3).toISOString();
		new MutationObserver(() => texts.add(el.textContent)).observe(el, {childList: true, characterData: true, subtree: true});`)
	x.Wait("it counts down", `texts.size >= 2`)
	x.click("#s-night a[href='/sessions/night']")
	x.seen("#timeline", "Timeline")
	x.Wait("the page of the session is live", `document.getElementById("link").dataset.state === "live"`)
	x.click(`#title a[href$="/pause"]`)
	x.seen("#dialog[open]", "Pause night?")
	x.click("#dialog button:not([data-close])")
	x.seen("#title .state", "paused")
	x.click("#facts a[href^='/runs/']")
	x.seen("#timeline", "Timeline")
	x.quiet()
}

func (v visitor) sessionActions(d *sessionSite) {
	d.reach("obeys", "waiting")
	x := v.open(d.testSite)
	x.live("/sessions")
	do := func(action, question, said, state string) {
		v.Helper()
		x.click(fmt.Sprintf(`#s-obeys a[href$="/%s"]`, action))
		x.seen("#dialog[open]", question)
		x.click("#dialog button:not([data-close])")
		x.seen("#flash", said)
		x.Wait("the dialog is closed", `!document.getElementById("dialog").open`)
		x.seen("#s-obeys .state", state)
	}
	x.click(`#s-obeys a[href$="/stop"]`)
	x.seen("#dialog[open]", "Stop obeys?")
	x.click("#dialog [data-close]")
	x.Wait("the dialog is closed without an action", `!document.getElementById("dialog").open`)
	do("pause", "Pause obeys?", "Paused.", "paused")
	do("resume", "Resume obeys?", "Resumed.", "waiting")
	do("wake", "Wake obeys?", "The wait was ended;", "waiting")
	testwait.Until(v, "a second command", func() bool { return d.reach("obeys", "queued", "running", "waiting").Commands == 2 })
	x.seen("#s-obeys", "windows 2/10")
	do("reset", "Reset obeys?", "were reset", "waiting")
	x.seen("#s-obeys", "windows 0/10")
	do("tonight", "Stop obeys for tonight?", "Stopped for tonight.", "waiting")
	x.seen("#s-obeys", "set by an operator")
	do("stop", "Stop obeys?", "Stopped.", "stopped")
	if n := eval[int](x, "performance.getEntriesByType('navigation').length"); n != 1 {
		v.Errorf("the page was loaded %d times", n)
	}
	x.quiet()
}

func (v visitor) sessionPlain(d *sessionSite) {
	d.reach("plain", "waiting")
	x := v.open(d.testSite)
	x.EnableScripts(false)
	x.visit("/sessions")
	x.seen("#s-plain", "in 1 h")
	x.click(`#s-plain a[href$="/pause"]`)
	x.seen("form.question", "Pause plain?")
	x.click("form.question button")
	x.seen("#flash", "Paused.")
	x.seen("#s-plain .state", "paused")
	x.EnableScripts(true)
	x.quiet()
}

func (v visitor) sessionKeys(d *sessionSite) {
	d.reach("keys", "waiting")
	x := v.open(d.testSite)
	x.live("/sessions")
	x.Do(chromedp.Focus(chromedp.CSS("#s-keys .more summary")))
	x.PressEnter()
	x.Do(chromedp.Focus(chromedp.CSS(`#s-keys a[href$="/pause"]`)))
	x.PressEnter()
	x.seen("#dialog[open]", "Pause keys?")
	if !eval[bool](x, `document.getElementById("dialog").contains(document.activeElement)`) {
		v.Error("the focus is not in the dialog")
	}
	x.Do(chromedp.KeyEvent("\u001b"))
	x.Wait("Escape closes it", `!document.getElementById("dialog").open`)
	d.reach("keys", "waiting")
	x.quiet()
}

func (v visitor) sessionHostile(d *sessionSite) {
	d.reach("h0", "waiting")
	d.reach("h1", "waiting")
	x := v.open(d.testSite)
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
	d.apply("h1", "pause")
	x.seen("#s-h1 .state", "paused")
	check("the stream")
	x.quiet()
	x.visit("/sessions/%22%3E%3Cscript%3Ewindow.planted=1%3C%2Fscript%3E/stop")
	x.seen("main", "no such session")
	check("the refusal")
	x.expectStatus("404")
}

// sessionPictures checks the page in several sizes and colour schemes, as pictures does.
func (v visitor) sessionPictures(d *sessionSite) {
	dir := os.Getenv("TIDEOVER_PICTURES")
	d.reach("busy", "running")
	d.reach("paused", "waiting")
	d.reach("spent", "gave-up")
	d.apply("paused", "pause")
	x := v.open(d.testSite)
	x.live("/sessions")
	x.looksRight(dir, "sessions")
	x.quiet()
	if dir != "" {
		x = v.open(newSessionSite(v.T, nil).testSite)
		x.live("/sessions")
		x.looksRight(dir, "sessions-none")
	}
}
