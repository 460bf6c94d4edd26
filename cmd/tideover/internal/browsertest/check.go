package browsertest

import (
	"flag"
	"fmt"
	"hash/fnv"
	"os"
	"sync"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"

	"github.com/tideover/tideover/internal/testfile"
)

// axe has the rules of axe-core, once a test needed them.
var axe struct {
	once sync.Once
	text string
	err  error
}

func (x *Tab) loadAxe() (rules string, err error) {
	x.t.Helper()
	axe.once.Do(func() {
		var text []byte
		text, axe.err = os.ReadFile(testfile.Repository(x.t, "suites", "sdk", "node_modules", "axe-core", "axe.min.js"))
		axe.text = string(text)
	})
	return axe.text, axe.err
}

// NeedAxe skips the test if axe-core is not installed.
func (x *Tab) NeedAxe() {
	x.t.Helper()
	if _, err := x.loadAxe(); err != nil {
		x.t.Skipf("there is no axe-core; scripts/test-tools.sh installs it: %v", err)
	}
}

// Layout is the size of a window, and the preferred color scheme of its user.
type Layout struct {
	Name   string
	Width  int64
	Height int64
	Scheme string
}

// Layouts are the windows of a computer and of a phone, in both color schemes.
var Layouts = []Layout{
	{"wide-light", 1280, 900, "light"}, {"wide-dark", 1280, 900, "dark"},
	{"phone-dark", 390, 844, "dark"}, {"phone-light", 390, 844, "light"},
}

// layouts is the flag for the layouts of each page.
var layouts = flag.String("layouts", "one", "`which` layouts to check each page in: one, or all")

// AllLayouts reports whether pages are checked in all Layouts.
func AllLayouts() bool { return *layouts == "all" }

// LayoutsOf returns the layouts in which to check a page: with the flag `-layouts all` all of them,
// else one of those that are given, by turns.
func LayoutsOf(turn int, given []Layout) []Layout {
	if AllLayouts() {
		return Layouts
	}
	turn %= len(given)
	return given[turn : turn+1]
}

// layoutsOf returns the layouts for a page. If it is one, that depends on the name of the page, and is
// that of a phone if the page has a list, whose first row must be near the top there.
func layoutsOf(c Checks) []Layout {
	given := Layouts
	if c.Row != "" {
		given = Layouts[2:]
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(c.Name))
	return LayoutsOf(int(h.Sum32()>>1), given)
}

// maxFirstRow is where the first row of a list must begin on a phone, in pixels from the top of the
// page.
const maxFirstRow = 310

// Checks has what [Tab.Check] needs to know of a page.
type Checks struct {
	Name     string
	Row      string // selector of the rows of the list that the page is about; "" if it is about none
	Pictures string // folder for screenshots; "" writes none

	// Main leaves out the header and the footer, which were checked on another page, of all checks
	// but the first, if there are several.
	Main bool

	Layouts []Layout // nil means one that depends on the name, or all; see [LayoutsOf]
}

// Check checks the page that is open in its layouts: axe-core has no serious finding, the page
// does not scroll sideways, and the first row of a list is near the top on a phone. It also checks the
// page by keyboard. It skips the test if axe-core is not installed.
func (x *Tab) Check(c Checks) {
	x.t.Helper()
	x.NeedAxe()
	source, _ := x.loadAxe()
	Eval[bool](x, source+";\ntrue")
	if c.Layouts == nil {
		c.Layouts = layoutsOf(c)
	}
	for _, l := range c.Layouts {
		x.Resize(l.Width, l.Height)
		x.SetColorScheme(l.Scheme)
		x.checkLayout(c, l)
		x.Screenshot(c.Pictures, c.Name+"-"+l.Name)
	}
	phone := Layouts[len(Layouts)-1]
	x.Resize(phone.Width, phone.Height)
	for _, text := range x.SmallTargets() {
		x.t.Errorf("%s: on a phone this target is too small: %s", c.Name, text)
	}
	for _, text := range x.CrowdedTargets() {
		x.t.Errorf("%s: on a phone these targets are too close: %s", c.Name, text)
	}
	if len(c.Layouts) > 1 || c.Layouts[0].Width != phone.Width {
		x.Resize(c.Layouts[0].Width, c.Layouts[0].Height)
		x.SetColorScheme(c.Layouts[0].Scheme)
	}
	x.checkKeyboard(c)
}

// findings is the JavaScript of a promise for the findings of axe-core that are serious or critical,
// each as a text. Its arguments are the part of the page to check, and the rules; an empty list means
// all, and the size of targets, which axe-core does not check by default.
const findings = `((part, only) => axe.run(part, {resultTypes: ["violations"], preload: false, ...(only.length ? {runOnly: only} : {rules: {"target-size": {enabled: true}}})}).then((r) => r.violations
	.filter((v) => v.impact === "serious" || v.impact === "critical")
	.flatMap((v) => v.nodes.map((n) => v.id + ": " + n.target.join(" ") + ": " + n.failureSummary.replace(/\s+/g, " ") + ": " + n.html.slice(0, 200)))))(%s, %s)`

// tooWide is an expression for the elements that make the page scroll sideways.
const tooWide = `(() => {
	const root = document.documentElement;
	if (root.scrollWidth <= root.clientWidth) return [];
	return ["the page is " + root.scrollWidth + " wide"].concat([...document.querySelectorAll("body *")]
		.filter((e) => e.getBoundingClientRect().right > root.clientWidth + 1).slice(0, 5).map((e) => e.outerHTML.slice(0, 120)));
})()`

// TooWide returns the elements that make the page scroll sideways, after its width. It is empty for a
// page that does not scroll sideways.
func (x *Tab) TooWide() []string {
	x.t.Helper()
	return Eval[[]string](x, tooWide)
}

// targets is the beginning of a function that finds the links and controls that a finger must hit. It
// leaves out links within a sentence, as WCAG 2.5.8 does.
const targets = `(() => {
	const controls = "a[href], button, input, select, textarea, summary";
	const inSentence = (e) => {
		if (e.localName !== "a" || getComputedStyle(e).display !== "inline") return false;
		let block = e.parentElement;
		while (getComputedStyle(block).display === "inline") block = block.parentElement;
		const texts = document.createTreeWalker(block, NodeFilter.SHOW_TEXT);
		let rest = "";
		while (texts.nextNode()) if (!texts.currentNode.parentElement.closest(controls)) rest += " " + texts.currentNode.data;
		return (rest.match(/\p{L}{2,}/gu) ?? []).length > 3;
	};
	const targets = [...document.querySelectorAll(controls)].filter((e) =>
		e.type !== "hidden" && e.checkVisibility({visibilityProperty: true}) && e.getBoundingClientRect().right > 0 && !inSentence(e));
`

// smallTargets is an expression for the targets with less than 24 pixels in a direction.
const smallTargets = targets + `
	return targets.map((e) => [e, e.getBoundingClientRect()]).filter(([, r]) => Math.min(r.width, r.height) < 23.9)
		.map(([e, r]) => r.width.toFixed(1) + " by " + r.height.toFixed(1) + ": " + e.outerHTML.slice(0, 120));
})()`

// crowdedTargets is an expression for the pairs of targets with less than 8 pixels between them. Of a link
// and a summary, the text counts, without the padding.
const crowdedTargets = targets + `
	const box = (e) => {
		const text = e.matches("a:not(.button), summary:not(.button)"), s = getComputedStyle(e), pad = (side) => text ? parseFloat(s["padding-" + side]) : 0;
		return [...(e.closest("label") ?? e).getClientRects()].map((r) => ({left: r.left + pad("left"), right: r.right - pad("right"), top: r.top + pad("top"), bottom: r.bottom - pad("bottom")}));
	};
	const boxes = targets.filter((e) => (document.querySelector("dialog[open]") ?? document).contains(e)).map((e) => [e, box(e)]), found = [];
	for (const [i, [a, ps]] of boxes.entries()) for (const [b, qs] of boxes.slice(i + 1)) {
		const gap = Math.min(...ps.flatMap((p) => qs.map((q) => Math.max(p.left - q.right, q.left - p.right, p.top - q.bottom, q.top - p.bottom))));
		if (gap < 7.9 && !a.contains(b)) found.push(gap.toFixed(1) + " pixels: " + a.outerHTML.slice(0, 90) + " and " + b.outerHTML.slice(0, 90));
	}
	return found;
})()`

// SmallTargets returns the links and controls that are too small for a finger, each with its size. The
// window should have the size of a phone.
func (x *Tab) SmallTargets() []string {
	x.t.Helper()
	return Eval[[]string](x, smallTargets)
}

// CrowdedTargets returns the pairs of targets that are too close to each other for a finger. The window
// should have the size of a phone.
func (x *Tab) CrowdedTargets() []string {
	x.t.Helper()
	return Eval[[]string](x, crowdedTargets)
}

func (x *Tab) checkLayout(c Checks, l Layout) {
	x.t.Helper()
	part, rules := "document", "[]"
	if c.Main && (l != c.Layouts[0] || len(c.Layouts) == 1) {
		part = `document.querySelector("main")`
	}
	if l.Scheme == "dark" && len(c.Layouts) > 1 { // only colors differ from the light scheme
		rules = `["color-contrast"]`
	}
	found, err := chromedp.Run(x.ctx, chromedp.Evaluate[[]string](fmt.Sprintf(findings, part, rules), chromedp.EvalAwaitPromise))
	if err != nil {
		x.t.Fatalf("%s, %s: axe-core: %v", c.Name, l.Name, err)
	}
	for _, text := range append(found, x.TooWide()...) {
		x.t.Errorf("%s, %s: %s", c.Name, l.Name, text)
	}
	if c.Row == "" || l.Width > 600 {
		return
	}
	top := Eval[float64](x, fmt.Sprintf(`(document.querySelector(%q)?.getBoundingClientRect().top ?? -1e6) + scrollY`, c.Row))
	if top < 0 || top > maxFirstRow {
		x.t.Errorf("%s, %s: the first of %s begins at %.0f px, want 0 to %d", c.Name, l.Name, c.Row, top, maxFirstRow)
	}
}

// watchFocus is a script that finds the elements that a user must reach with the Tab key, and notes
// which of them get the focus, and which of those look the same with the focus as without it.
const watchFocus = `((inMain) => {
	const main = inMain && document.querySelector("main[tabindex]");
	if (main) main.focus(); else document.activeElement?.blur();
	const root = document.querySelector("dialog[open]") ?? (main || document); // what is behind a dialog can't be reached
	const wanted = new Set([...root.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex='0']")].filter((e) =>
		e.checkVisibility({visibilityProperty: true}) && !e.disabled && e.type !== "hidden" && e.tabIndex >= 0 && (e.type !== "radio" || e.checked)));
	const style = (e) => [e, ...e.querySelectorAll("*")].slice(0, 5).map((e) => {
		const s = getComputedStyle(e);
		return [s.outlineStyle === "none" ? "" : s.outlineWidth + s.outlineColor, s.boxShadow, s.borderColor, s.backgroundColor, s.stroke, s.strokeWidth].join();
	}).join();
	const before = new Map([...wanted].map((e) => [e, style(e)]));
	window.focusCheck = {missed: wanted, unseen: [], outside: []};
	document.addEventListener("focusin", ({target: e}) => {
		if (!wanted.delete(e)) return;
		if (style(e) === before.get(e)) focusCheck.unseen.push(e.outerHTML.slice(0, 120));
		const r = e.getBoundingClientRect();
		if (r.bottom < 0 || r.top > innerHeight || r.right < 0 || r.left > innerWidth) focusCheck.outside.push(e.outerHTML.slice(0, 120));
	});
	return wanted.size;
})(%v)`

// checkKeyboard presses the Tab key until every control of the page has had the focus.
func (x *Tab) checkKeyboard(c Checks) {
	x.t.Helper()
	tab := input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeRawKeyDown, Key: "Tab", Code: "Tab", WindowsVirtualKeyCode: 9, NativeVirtualKeyCode: 9}
	// Regions that scroll have the focus, too, so that more keys than controls are needed.
	for left := 2*Eval[int](x, fmt.Sprintf(watchFocus, c.Main)) + 20; left > 0 && Eval[int](x, "focusCheck.missed.size") > 0; left -= 10 {
		for range 10 {
			if _, err := chromedp.Call(x.ctx, input.DispatchKeyEvent, tab); err != nil {
				x.t.Fatalf("press Tab: %v", err)
			}
		}
	}
	for what, list := range Eval[map[string][]string](x, `({
		"the Tab key does not reach": [...focusCheck.missed].map((e) => e.outerHTML.slice(0, 120)),
		"with the focus nothing changes at": focusCheck.unseen, "the focus is outside of the window at": focusCheck.outside})`) {
		for _, element := range list {
			x.t.Errorf("%s: %s %s", c.Name, what, element)
		}
	}
}
