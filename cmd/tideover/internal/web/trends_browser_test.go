package web

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"

	"github.com/tideover/tideover/cmd/tideover/internal/browsertest"
	"github.com/tideover/tideover/cmd/tideover/internal/timeseries"
)

// hover moves the pointer to the middle of an element, after scrolling to it.
func (x *tab) hover(selector string) {
	x.Helper()
	at := eval[[]float64](x, `(() => { const e = document.querySelector("`+selector+`"); e.scrollIntoView({block: "center"}); const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; })()`)
	if _, err := chromedp.Call(x.Chromedp(), input.DispatchMouseEvent, input.DispatchMouseEventParams{Type: input.DispatchMouseEventTypeMouseMoved, X: at[0], Y: at[1]}); err != nil {
		x.Fatal(err)
	}
}

// shownValue is an expression for the value that the charts show for the pointer, "" for none.
const shownValue = `[...document.querySelectorAll(".values span span")].filter(e => e.checkVisibility()).map(e => e.innerText).join()`

// tableSum is an expression for the number of started runs in the table of the charts. An interval may
// have ended between two runs.
const tableSum = `[...document.querySelector("#trends table").innerText.matchAll(/(\d+) started/g)].reduce((sum, m) => sum + Number(m[1]), 0)`

// The values of the charts can be read with a pointer and with a keyboard, also without scripts, and the
// chosen range stays when the page is updated.
func TestChartsInABrowser(t *testing.T) {
	t.Parallel()
	store := timeseries.Open(filepath.Join(t.TempDir(), "charts"), slog.New(slog.DiscardHandler))
	b := newTestSite(t, func(o *setup) { o.Charts = store })
	count(store, "quick", 3)
	x := open(b)
	x.live("/overview")
	x.click(`#trends .chips a[href$="range=day#trends"]`)
	x.Wait("the day is shown", `location.search === "?range=day" && document.querySelector("#trends [aria-current]").innerText === "last day" && document.getElementById("link").dataset.state === "live"`)
	x.hover("#trends .values > span:has(span)")
	x.Wait("the value is shown", `/\d started, \d succeeded/.test(`+shownValue+")")
	x.hover("#trends .values > span:not(:has(span))")
	x.Wait("no value is shown", shownValue+` === ""`)
	eval[bool](x, `(document.querySelector("#trends summary").focus(), true)`)
	x.PressEnter()
	x.Wait("the table has the values", tableSum+" === 3")
	count(store, "slow", 4)
	b.h.Changed()
	x.Wait("the table has the new values", tableSum+" === 7")
	x.Wait("the range stays", `document.querySelector("#trends [aria-current]").innerText === "last day" && document.querySelector("#trends .legend").innerText.includes("7 started")`)
	x.Check(browsertest.Checks{Name: "charts", Main: true, Pictures: os.Getenv("TIDEOVER_PICTURES")})
	x.EnableScripts(false)
	x.visit("/overview?range=two-weeks")
	x.hover("#trends .values > span:has(span)")
	x.Wait("the value is shown without scripts", `/\d started, \d succeeded/.test(`+shownValue+")")
	x.click("#trends summary")
	x.Wait("the table has the values without scripts", tableSum+" === 7 && document.querySelector('#trends table').checkVisibility()")
	x.EnableScripts(true)
	x.quiet()
}
