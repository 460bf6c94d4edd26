package browsertest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/tideover/tideover/internal/testwait"
)

// Tab is a tab of the browser with its own cookies and storage. Each method fails the test
// if the browser returns an error. A wait ends shortly before the deadline of the test
// binary.
type Tab struct {
	t       testing.TB
	ctx     context.Context
	noTimer bool // scripts of the page are disabled, and so are timers

	mu         sync.Mutex
	complaints []string // warnings and errors of the browser, and dialogs
}

// Open opens an empty tab, which is closed when the test ends. It skips the test if no
// browser is installed.
func Open(t testing.TB) *Tab {
	t.Helper()
	ctx, closeTab := chromedp.NewContext(sharedBrowser(t), chromedp.WithNewBrowserContext())
	if err := chromedp.Do(ctx); err != nil {
		closeTab()
		t.Fatalf("open a tab: %v", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	context.AfterFunc(testwait.Context(t), cancel)
	x := &Tab{t: t, ctx: ctx}
	var listeners sync.WaitGroup
	x.listen(&listeners)
	t.Cleanup(func() {
		cancel()
		listeners.Wait()
		closeTab()
	})
	if _, err := chromedp.Call(ctx, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true}); err != nil {
		t.Fatalf("open a tab: %v", err)
	}
	x.reset()
	return x
}

// With prepares the tab for another test, such as a subtest, and returns it. The tab is empty and
// has the settings of a new tab, but keeps its cookies and storage. The test that used it before
// must have ended.
func (x *Tab) With(t testing.TB) *Tab {
	t.Helper()
	x.t = t
	x.Do(chromedp.Navigate("about:blank"))
	x.reset()
	return x
}

// reset undoes the changes of Resize, SetColorScheme and EnableScripts, and removes all complaints.
func (x *Tab) reset() {
	x.t.Helper()
	x.ForgetComplaints("")
	x.EnableScripts(true)
	x.SetColorScheme("light")
	x.Resize(1024, 600)
}

// listen starts goroutines that record warnings and errors of the browser, and dialogs that a
// script opens.
func (x *Tab) listen(listeners *sync.WaitGroup) {
	messages, dialogs := chromedp.Console(x.ctx), chromedp.Events(x.ctx, page.JavascriptDialogOpening)
	listeners.Go(func() {
		for m, err := range messages {
			if err != nil {
				return
			}
			if m.Type != chromedp.ConsoleLog && m.Type != chromedp.ConsoleDebug && m.Type != chromedp.ConsoleInfo {
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
			_, _ = chromedp.Call(x.ctx, page.HandleJavaScriptDialog, page.HandleJavaScriptDialogParams{Accept: true})
		}
	})
}

func (x *Tab) complain(text string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.complaints = append(x.complaints, text)
}

// Complaints returns the recorded warnings and errors of the browser, without those that
// ForgetComplaints has removed.
func (x *Tab) Complaints() []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Clone(x.complaints)
}

// ForgetComplaints removes the complaints that contain the text.
func (x *Tab) ForgetComplaints(text string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.complaints = slices.DeleteFunc(x.complaints, func(c string) bool { return strings.Contains(c, text) })
}

// Chromedp returns the context of the tab, for functions of package chromedp.
func (x *Tab) Chromedp() context.Context { return x.ctx }

// Do performs actions in the tab.
func (x *Tab) Do(actions ...chromedp.Action[chromedp.Void]) {
	x.t.Helper()
	if err := chromedp.Do(x.ctx, actions...); err != nil {
		x.t.Fatalf("browser: %v", err)
	}
}

// PressEnter presses and releases the Enter key. It sends the character in the same event as the
// key press: if the key moves the focus, the newly focused element must not get the character.
func (x *Tab) PressEnter() {
	x.t.Helper()
	for _, kind := range []input.DispatchKeyEventType{input.DispatchKeyEventTypeKeyDown, input.DispatchKeyEventTypeKeyUp} {
		p := input.DispatchKeyEventParams{Type: kind, Key: "Enter", Code: "Enter", WindowsVirtualKeyCode: 13, NativeVirtualKeyCode: 13}
		if kind == input.DispatchKeyEventTypeKeyDown {
			p.Text, p.UnmodifiedText = "\r", "\r"
		}
		if _, err := chromedp.Call(x.ctx, input.DispatchKeyEvent, p); err != nil {
			x.t.Fatalf("press Enter: %v", err)
		}
	}
}

// Eval evaluates a JavaScript expression in the page, and returns its value.
func Eval[T any](x *Tab, expr string) T {
	x.t.Helper()
	v, err := chromedp.Run(x.ctx, chromedp.Evaluate[T](expr))
	if err != nil {
		x.t.Fatalf("%s: %v", expr, err)
	}
	return v
}

// Resize sets the size of the visible part of the page.
func (x *Tab) Resize(width, height int64) {
	x.t.Helper()
	x.Do(chromedp.EmulateViewport(width, height))
}

// SetColorScheme sets the preferred color scheme of the user: "light" or "dark".
func (x *Tab) SetColorScheme(scheme string) {
	x.t.Helper()
	features := []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}
	if _, err := chromedp.Call(x.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: features}); err != nil {
		x.t.Fatal(err)
	}
}

// EnableScripts enables or disables the scripts of pages.
func (x *Tab) EnableScripts(on bool) {
	x.t.Helper()
	if _, err := chromedp.Call(x.ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: !on}); err != nil {
		x.t.Fatal(err)
	}
	x.noTimer = !on
}

// Screenshot writes a picture of the whole page to a PNG file in the folder. It does
// nothing if the folder is "".
func (x *Tab) Screenshot(folder, name string) {
	x.t.Helper()
	if folder == "" {
		return
	}
	png, err := chromedp.Run(x.ctx, chromedp.FullScreenshot(100))
	if err != nil {
		x.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, name+".png"), png, 0o600); err != nil {
		x.t.Fatal(err)
	}
}

// untilTrue is the JavaScript of a promise that is fulfilled when a condition is true. The
// page checks the condition when the document changes, which costs less than polling by
// the test. The timer is for conditions outside of the document, such as the focus.
const untilTrue = `((holds) => new Promise((resolve) => {
	const check = () => {
		try { if (!holds()) return; } catch { return; }
		observer.disconnect();
		clearInterval(timer);
		resolve(true);
	};
	const observer = new MutationObserver(check);
	observer.observe(document, {subtree: true, childList: true, attributes: true, characterData: true});
	const timer = setInterval(check, 200);
	check();
}))(() => (%s))`

// Wait waits until a JavaScript expression is true, even if the tab loads another page
// meanwhile. what describes the condition, for the message of a failed test.
func (x *Tab) Wait(what, expr string) {
	x.t.Helper()
	script, opts := fmt.Sprintf(untilTrue, expr), []chromedp.EvaluateOption{chromedp.EvalAwaitPromise}
	if x.noTimer {
		script, opts = fmt.Sprintf("(() => { try { return !!(%s); } catch { return false; } })()", expr), nil
	}
	for {
		ok, err := chromedp.Run(x.ctx, chromedp.Evaluate[bool](script, opts...))
		if ok {
			return
		}
		if exception, ok := errors.AsType[*chromedp.ExceptionError](err); ok {
			x.t.Fatalf("wait until %s: %v", what, exception)
		}
		select {
		case <-time.After(50 * time.Millisecond): // real clock: asks again, without a limit
		case <-x.ctx.Done():
			x.t.Fatalf("did not happen before the test binary's deadline: %s (%v)\n%s", what, err, x.text())
		}
	}
}

// text returns the text of the page, for the message of a failed test.
func (x *Tab) text() string {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(x.ctx), 5*time.Second) // real clock: the test has failed already
	defer cancel()
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string]("document.body.innerText"))
	if err != nil {
		return err.Error()
	}
	return text
}
