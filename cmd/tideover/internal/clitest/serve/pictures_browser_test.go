//go:build unix

package serve_test

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"iter"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/tideover/tideover/cmd/tideover/internal/browsertest"
	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
	"github.com/tideover/tideover/internal/testfile"
)

var writePictures = flag.Bool("pictures", false, "write the pictures and the recording in docs, which need a browser")

// adasToken is the token of the user who starts the runs in the pictures.
const adasToken = "the-token-of-ada-in-the-pictures"

// shopFile is the configuration of the server in the pictures. SHOP is the URL of newShop.
const shopFile = `version: 1
server: {users: {ada: {token: "${env:ADA}"}}}
policies:
  api: exponential(1s..30s) jitter=20% attempts=6 server-wait=2m
workflows:
  order:
    description: Charges, packs and ships an order.
    input: {order: 4711, customer: Ada}
    steps:
      - {id: charge, http: {post: "SHOP/charge?order={{ .input.order }}"}, policy: api}
      - {id: pack, run: [sh, -c, 'sleep 1.5; echo "3 items packed"'], needs: [charge]}
      - {id: label, http: {post: "SHOP/label?order={{ .input.order }}"}, needs: [charge], policy: api}
      - {id: ship, run: [echo, "shipped to {{ .input.customer }}"], needs: [pack, label]}
  refund:
    input: {order: 4702}
    steps: [{id: call, http: {post: "SHOP/refund?order={{ .input.order }}"}, policy: api}]
  nightly-report:
    schedule: {cron: "0 3 * * *", time-zone: UTC}
    steps: [{id: render, run: [echo, "12 pages"]}]
  stock:
    steps: [{id: fetch, http: {get: SHOP/stock}, policy: fixed(20m) attempts=5}]
providers:
  model: {base-url: SHOP/model, auth: none, format: search}
notify:
  phone: {webhook: SHOP/phone, on: [gave-up]}
sessions:
  refactoring: {start: [sh, -c, 'echo "retry after 5400s"; exit 1'], restart: true, detect: generic}
`

// newShop returns the URL of an HTTP service. It fails the first requests of each order, in the same
// way each time, and one failure has a Retry-After.
func newShop(t *testing.T) string {
	t.Helper()
	var mu sync.Mutex
	asked := map[string]int{}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:8080")
	if err != nil {
		t.Fatalf("the pictures show this address: %v", err)
	}
	s := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		asked[r.URL.String()]++
		n := asked[r.URL.String()]
		mu.Unlock()
		time.Sleep(400 * time.Millisecond) // real clock: the bar of a shorter attempt is too narrow in a picture
		switch path := r.URL.Path; {
		case path == "/charge" && n <= 2, path == "/stock":
			http.Error(w, "upstream is busy", http.StatusServiceUnavailable)
		case path == "/label" && n == 1:
			w.Header().Set("Retry-After", "4")
			http.Error(w, "slow down", http.StatusTooManyRequests)
		case path == "/refund":
			http.Error(w, "this order was refunded already", http.StatusUnprocessableEntity)
		default:
			fmt.Fprintln(w, "done")
		}
	})}}
	s.Start()
	t.Cleanup(s.Close)
	return s.URL
}

// shop is the server in the pictures.
type shop struct {
	*pagesServer
	orders int // how many runs of order were started
}

// serveShop starts the server. Commands in this process, and those that it starts, are sent to it by ada.
func serveShop(t *testing.T) *shop {
	t.Helper()
	s := &pagesServer{Server: clitest.Serve(t, strings.ReplaceAll(shopFile, "SHOP", newShop(t)), "", "ADA="+adasToken, "TIDEOVER_TOKEN=", "TZ=UTC")}
	s.base, _, _ = strings.Cut(s.PageURL(), "/?token=")
	t.Setenv("TIDEOVER_SERVER", s.base)
	t.Setenv("TIDEOVER_TOKEN", adasToken)
	return &shop{pagesServer: s}
}

// start starts a run of each workflow, and returns the id of the last. Each run of order has another order.
func (s *shop) start(workflows ...string) (id string) {
	s.T.Helper()
	for _, name := range workflows {
		args := []string{"run", name}
		if name == "order" {
			s.orders++
			args = append(args, "--input", fmt.Sprintf(`{"order": %d, "customer": "Grace"}`, 4702+s.orders))
		}
		o := clitest.InProcess(s.T, args...)
		clitest.WantCode(s.T, o, 0)
		id = strings.TrimSpace(o.Out)
	}
	return id
}

// signIn opens the first page of the server in the tab.
func (s *shop) signIn(x *browsertest.Tab) {
	s.T.Helper()
	x.Do(chromedp.Navigate(s.base + "/?token=" + s.token()))
	x.Wait("the page is open", `document.querySelector("main")`)
}

// openLive opens a page and waits until its stream is connected.
func (s *shop) openLive(x *browsertest.Tab, path string) {
	s.T.Helper()
	x.Do(chromedp.Navigate(s.base + path))
	x.Wait("the page is live", `document.getElementById("link").dataset.state === "live"`)
}

// shot returns a picture of the visible part of the page.
func shot(t *testing.T, x *browsertest.Tab) image.Image {
	t.Helper()
	data, err := chromedp.Run(x.Chromedp(), chromedp.CaptureScreenshot())
	if err != nil {
		t.Fatal(err)
	}
	img, err := png.Decode(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// paletted returns the pictures with one palette: their most frequent colors, at most n.
func paletted(n int, pictures ...image.Image) (list []*image.Paletted) {
	pixels, count := make([]*image.RGBA, len(pictures)), map[color.RGBA]int{}
	for i, p := range pictures {
		pixels[i] = image.NewRGBA(p.Bounds())
		draw.Draw(pixels[i], p.Bounds(), p, p.Bounds().Min, draw.Src)
		for c := range colors(pixels[i]) {
			count[c]++
		}
	}
	frequent := slices.SortedFunc(maps.Keys(count), func(a, b color.RGBA) int {
		return cmp.Or(count[b]-count[a], int(a.R)-int(b.R), int(a.G)-int(b.G), int(a.B)-int(b.B))
	})
	all := make(color.Palette, 0, n)
	for _, c := range frequent[:min(n, len(frequent))] {
		all = append(all, c)
	}
	nearest := map[color.RGBA]uint8{}
	for c := range count {
		nearest[c] = uint8(all.Index(c))
	}
	for _, p := range pixels {
		drawn, at := image.NewPaletted(p.Bounds(), all), 0
		for c := range colors(p) {
			drawn.Pix[at] = nearest[c]
			at++
		}
		list = append(list, drawn)
	}
	return list
}

// colors yields the colors of the pixels, line by line.
func colors(p *image.RGBA) iter.Seq[color.RGBA] {
	return func(yield func(color.RGBA) bool) {
		for i := 0; i < len(p.Pix); i += 4 {
			if !yield(color.RGBA{p.Pix[i], p.Pix[i+1], p.Pix[i+2], p.Pix[i+3]}) {
				return
			}
		}
	}
}

// drawnFrom are the files that decide what the page of a run looks like, besides Go code.
var drawnFrom = []string{
	"internal/console/theme/theme.css", "internal/console/pages/static/app.js", "internal/console/pages/static/page.css",
	"internal/console/pages/templates/layout.html", "internal/console/pages/templates/run.html",
	"internal/console/pages/templates/workflows.html", // the graph
}

// writePicture writes a picture, and a file beside it with the checksums of the files that it is made
// from, as sha256sum writes them. Paths are those in the repository.
func writePicture(t *testing.T, path string, data []byte, from ...string) {
	t.Helper()
	var sums strings.Builder
	for _, name := range from {
		text, err := os.ReadFile(testfile.Repository(t, name))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(text), name)
	}
	for name, data := range map[string][]byte{path: data, path + ".sha256": []byte(sums.String())} {
		if err := os.WriteFile(testfile.Repository(t, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestPicturesInABrowser writes the picture of the page of a run: make pictures. A test of the repository
// fails when the files that it is drawn from have changed.
func TestPicturesInABrowser(t *testing.T) {
	if !*writePictures {
		return // TestPagesInABrowser checks the same page
	}
	x, s := browsertest.Open(t), serveShop(t)
	s.signIn(x)
	s.start("refund")
	x.Do(chromedp.EmulateViewport(1280, 720, chromedp.EmulateScale(1.5)))
	s.openLive(x, "/runs/"+s.start("order"))
	x.Wait("the server has set a wait", `document.getElementById("next")?.innerText.includes("set by server")`)
	x.Do(chromedp.EmulateViewport(1280, browsertest.Eval[int64](x, `Math.ceil(document.getElementById("step-0").getBoundingClientRect().bottom) + 16`), chromedp.EmulateScale(1.5)))
	var file bytes.Buffer
	if err := png.Encode(&file, paletted(64, shot(t, x))[0]); err != nil {
		t.Fatal(err)
	}
	writePicture(t, "docs/run.png", file.Bytes(), drawnFrom...)
}
