package simulate

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/tideover/tideover/cmd/tideover/internal/browsertest"
	"github.com/tideover/tideover/internal/testwait"
	"github.com/tideover/tideover/sim"
)

// TestMain closes the browser that the tests share.
func TestMain(m *testing.M) { os.Exit(browsertest.Main(m)) }

// visit is a page in a browser, with all its requests.
type visit struct {
	*testing.T
	*browsertest.Tab

	mu       sync.Mutex
	requests []string
}

// open opens a page in the browser.
func open(t *testing.T, page []byte) *visit {
	t.Helper()
	x := &visit{T: t, Tab: browsertest.Open(t)}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x.mu.Lock()
		x.requests = append(x.requests, r.URL.Path)
		x.mu.Unlock()
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write(page)
	}))
	t.Cleanup(srv.Close)
	x.Do(chromedp.Navigate(srv.URL + "/"))
	return x
}

func eval[T any](x *visit, expr string) T {
	x.Helper()
	return browsertest.Eval[T](x.Tab, expr)
}

// The browser opens a page with every kind of chart, and one with hostile text.
func TestPageInBrowser(t *testing.T) {
	if os.Getenv("PICTURES") != "" {
		for name := range sim.Presets {
			f, _ := Preset(name)
			looksRight(t, name, render(t, simulated(t, f, 3)))
		}
	}
	looksRight(t, "drawn", render(t, drawn(3)))
	looksRight(t, "hostile", render(t, simulated(t, hostile, 2)))
}

// The page works with a screen reader, with a keyboard and on a phone.
func TestPageAccessInBrowser(t *testing.T) {
	open(t, render(t, drawn(3))).Check(browsertest.Checks{Name: "sim", Pictures: os.Getenv("PICTURES")})
}

func render(t *testing.T, v *View) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := HTML(&b, v); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func looksRight(t *testing.T, name string, page []byte) {
	t.Helper()
	x := open(t, page)
	grounds := map[string]string{}
	for _, scheme := range []string{"light", "dark"} {
		x.SetColorScheme(scheme)
		for _, width := range []int{1280, 390} {
			x.Resize(int64(width), 900)
			for _, text := range x.TooWide() {
				t.Errorf("%s, %s, %d wide: %s", name, scheme, width, text)
			}
			x.Screenshot(os.Getenv("PICTURES"), fmt.Sprintf("%s-%s-%d", name, scheme, width))
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
	if list := x.Complaints(); len(list) > 0 {
		t.Errorf("%s: the browser says %q", name, list)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.requests) != 1 {
		t.Errorf("%s: the page asked for %q", name, x.requests)
	}
}

// The browser reports violations of the content security policy.
func TestPagePolicyInBrowser(t *testing.T) {
	page := bytes.Replace(render(t, drawn(2)), []byte("</main>"), []byte(`<script>window.planted = 1</script><img src="/x.png" alt=""></main>`), 1)
	x := open(t, page)
	if eval[bool](x, `"planted" in window`) {
		t.Error("a script has run")
	}
	testwait.Until(t, "complaints of the browser about the script and the image", func() bool { return len(x.Complaints()) >= 2 })
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.requests) != 1 {
		t.Errorf("the page asked for %q", x.requests)
	}
}
