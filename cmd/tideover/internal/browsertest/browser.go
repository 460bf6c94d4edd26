// Package browsertest opens pages in Chromium. All tests of a test binary share one
// browser process, which starts with the first tab and ends in [Main].
package browsertest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// flags disable parts of the browser that no test needs.
var flags = []string{
	"disable-background-networking", "disable-breakpad", "disable-component-extensions-with-background-pages",
	"disable-component-update", "disable-default-apps", "disable-dev-shm-usage", "disable-extensions",
	"disable-field-trial-config", "disable-quic", "disable-sync", "force-prefers-reduced-motion", "in-process-gpu",
	"metrics-recording-only", "no-default-browser-check", "no-pings",
	// Do not slow down a tab because the tab of another test is in front of it.
	"disable-background-timer-throttling", "disable-backgrounding-occluded-windows", "disable-renderer-backgrounding",
}

// features are disabled, too. The back-forward cache keeps pages in memory, which the soak test
// measures.
const features = "BackForwardCache,MediaRouter,OptimizationHints,SpareRendererForSitePerProcess,Translate"

// browser is the process that all tabs share.
type browser struct {
	ctx   context.Context
	close func() error
}

var (
	mu     sync.Mutex
	shared *browser // nil before the first tab
)

// Main runs the tests and closes the browser, if a test has started it. TestMain calls
// it and exits with the code that it returns.
func Main(m *testing.M) (code int) {
	code = m.Run()
	mu.Lock()
	defer mu.Unlock()
	if shared == nil {
		return code
	}
	if err := shared.close(); err != nil {
		fmt.Fprintln(os.Stderr, "browsertest: close the browser:", err)
		return max(code, 1)
	}
	return code
}

// sharedBrowser returns the context of the browser. It skips the test if no browser is
// installed, and with -short.
func sharedBrowser(t testing.TB) context.Context {
	t.Helper()
	mu.Lock()
	defer mu.Unlock()
	if shared != nil {
		return shared.ctx
	}
	if testing.Short() {
		t.Skip("with -short, no browser is started")
	}
	path := executable()
	if path == "" {
		t.Skip("there is no chromium; scripts/test-tools.sh installs it")
	}
	b, err := start(path)
	if err != nil {
		t.Fatalf("start the browser: %v", err)
	}
	shared = b
	return b.ctx
}

// executable returns the path of the browser, or "" if none is installed.
func executable() string {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

// start starts a browser that keeps all its files in a temporary folder.
func start(path string) (*browser, error) {
	dir, err := os.MkdirTemp("", "browsertest")
	if err != nil {
		return nil, err
	}
	opts := []chromedp.ExecAllocatorOption{
		chromedp.ExecPath(path), chromedp.Headless, chromedp.NoSandbox, chromedp.DisableGPU, chromedp.NoFirstRun, chromedp.Env("TMPDIR=" + dir),
		chromedp.WSURLReadTimeout(time.Hour), // the default of 20 s is too short for a slow machine
		chromedp.Flag("disable-features", features),
	}
	for _, name := range flags {
		opts = append(opts, chromedp.Flag(name, true))
	}
	alloc, stop := chromedp.NewExecAllocator(context.Background(), opts...)
	ctx, cancel := chromedp.NewContext(alloc)
	b := &browser{ctx: ctx}
	b.close = func() error {
		err := chromedp.Cancel(ctx) // closes the browser and waits for it, instead of killing it
		cancel()
		stop()
		return errors.Join(err, os.RemoveAll(dir))
	}
	if err := chromedp.Do(ctx); err != nil {
		cancel()
		stop()
		_ = os.RemoveAll(dir)
		return nil, err
	}
	return b, nil
}
