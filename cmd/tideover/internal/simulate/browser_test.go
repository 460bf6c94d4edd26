package simulate

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/tideover/tideover/sim"
)

// browse starts a browser. A test without one is skipped.
func browse(t *testing.T) context.Context {
	t.Helper()
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil && path == "" {
			path = found
		}
	}
	if path == "" {
		t.Skip("there is no chromium; scripts/test-tools.sh installs it")
	}
	opts := []chromedp.ExecAllocatorOption{
		chromedp.ExecPath(path), chromedp.Headless, chromedp.NoSandbox, chromedp.DisableGPU, chromedp.NoFirstRun,
		chromedp.WSURLReadTimeout(60 * time.Second),
	}
	for _, f := range []string{"disable-quic", "disable-background-networking", "disable-component-update", "disable-sync", "disable-dev-shm-usage", "hide-scrollbars"} {
		opts = append(opts, chromedp.Flag(f, true))
	}
	alloc, stop := chromedp.NewExecAllocator(context.Background(), opts...)
	ctx, cancel := chromedp.NewContext(alloc)
	ctx, expire := context.WithTimeout(ctx, 2*time.Minute)
	t.Cleanup(func() {
		expire()
		cancel()
		stop()
	})
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("start the browser: %v", err)
	}
	return ctx
}

// visit is a page in a browser, and all that it asked for or complained about.
type visit struct {
	*testing.T
	ctx context.Context

	mu         sync.Mutex
	complaints []string
	requests   []string
}

// open shows a page in the browser.
func open(ctx context.Context, t *testing.T, page []byte) *visit {
	t.Helper()
	x := &visit{T: t, ctx: ctx}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x.mu.Lock()
		x.requests = append(x.requests, r.URL.Path)
		x.mu.Unlock()
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write(page)
	}))
	t.Cleanup(srv.Close)
	messages := chromedp.Console(ctx)
	var listener sync.WaitGroup
	listener.Go(func() {
		for m, err := range messages {
			if err != nil {
				return
			}
			x.mu.Lock()
			x.complaints = append(x.complaints, fmt.Sprintf("%s: %s", m.Type, m.Text))
			x.mu.Unlock()
		}
	})
	if err := chromedp.Do(ctx, chromedp.EmulateViewport(1280, 900), chromedp.Navigate(srv.URL+"/")); err != nil {
		t.Fatalf("browser: %v", err)
	}
	return x
}

// colours turns the page light or dark.
func (x *visit) colours(scheme string) {
	x.Helper()
	features := []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}
	if _, err := chromedp.Call(x.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: features}); err != nil {
		x.Fatal(err)
	}
}

func eval[T any](x *visit, expr string) T {
	x.Helper()
	v, err := chromedp.Run(x.ctx, chromedp.Evaluate[T](expr))
	if err != nil {
		x.Fatalf("%s: %v", expr, err)
	}
	return v
}

// picture writes what the page looks like to the folder in PICTURES, if there is one.
func (x *visit) picture(name string) {
	x.Helper()
	folder := os.Getenv("PICTURES")
	if folder == "" {
		return
	}
	png, err := chromedp.Run(x.ctx, chromedp.FullScreenshot(100))
	if err != nil {
		x.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, name+".png"), png, 0o600); err != nil {
		x.Fatal(err)
	}
}

// TestPageInBrowser looks at a real page, and at one whose author means harm.
func TestPageInBrowser(t *testing.T) {
	browser := browse(t)
	scenarios := []string{"metastable"}
	if os.Getenv("PICTURES") != "" {
		scenarios = nil
		for name := range sim.Presets {
			scenarios = append(scenarios, name)
		}
	}
	for _, name := range scenarios {
		f, _ := Preset(name)
		looksRight(browser, t, name, render(t, f))
	}
	looksRight(browser, t, "hostile", render(t, hostile))
}

func render(t *testing.T, f File) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := HTML(&b, simulated(t, f, 3)); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func looksRight(browser context.Context, t *testing.T, name string, page []byte) {
	t.Helper()
	ctx, closeTab := chromedp.NewContext(browser, chromedp.WithNewBrowserContext())
	defer closeTab()
	if err := chromedp.Do(ctx); err != nil {
		t.Fatal(err)
	}
	x := open(ctx, t, page)
	grounds := map[string]string{}
	for _, scheme := range []string{"light", "dark"} {
		x.colours(scheme)
		for _, width := range []int{1280, 390} {
			if err := chromedp.Do(ctx, chromedp.EmulateViewport(int64(width), 900)); err != nil {
				t.Fatal(err)
			}
			if over := eval[float64](x, `document.documentElement.scrollWidth - window.innerWidth`); over > 0 {
				t.Errorf("%s, %s, %d wide: the page is %v pixels wider than the screen", name, scheme, width, over)
			}
			x.picture(fmt.Sprintf("%s-%s-%d", name, scheme, width))
		}
		grounds[scheme] = eval[string](x, `getComputedStyle(document.body).backgroundColor`)
	}
	if grounds["light"] != "rgb(255, 255, 255)" || grounds["dark"] != "rgb(13, 17, 23)" {
		t.Errorf("%s: the ground is %v", name, grounds)
	}
	if eval[bool](x, `!!document.querySelector("script, img, iframe, object, form, link[rel=stylesheet]") || "planted" in window`) {
		t.Errorf("%s: there is something on the page that is not ours", name)
	}
	if n := eval[float64](x, `[...document.querySelectorAll("svg")].filter(s => s.getBoundingClientRect().height > 40 && s.querySelector("title")).length`); n < 4 {
		t.Errorf("%s: %v drawings can be seen", name, n)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.complaints) > 0 {
		t.Errorf("%s: the browser says %q", name, x.complaints)
	}
	if len(x.requests) != 1 {
		t.Errorf("%s: the page asked for %q", name, x.requests)
	}
}

// TestPagePolicyInBrowser makes sure that the browser would have complained.
func TestPagePolicyInBrowser(t *testing.T) {
	browser := browse(t)
	f, _ := Preset("contention")
	page := bytes.Replace(render(t, f), []byte("</main>"), []byte(`<script>window.planted = 1</script><img src="/x.png" alt=""></main>`), 1)
	x := open(browser, t, page)
	if eval[bool](x, `"planted" in window`) {
		t.Error("a script has run")
	}
	deadline := time.Now().Add(20 * time.Second)
	for {
		x.mu.Lock()
		n := len(x.complaints)
		x.mu.Unlock()
		if n >= 2 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the browser made %d complaints, want 2", n)
		}
		time.Sleep(20 * time.Millisecond)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.requests) != 1 {
		t.Errorf("the page asked for %q", x.requests)
	}
}
