package gateway

import (
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/internal/memnet"
	"github.com/tideover/tideover/retryhttp"
)

var plotTo = flag.String("plot", "", "folder for the pictures of docs/gateway.md")

const (
	plotWidth, plotHeight = 720, 150 // size of one panel
	plotLeft, plotTop     = 60, 34
)

// panel is one chart of events over time.
type panel struct {
	title string
	span  time.Duration
	marks strings.Builder
}

func (p *panel) x(at time.Duration) float64 {
	return plotLeft + float64(at)/float64(p.span)*(plotWidth-plotLeft-20)
}

// svg draws panels below each other.
func svg(panels ...*panel) string {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">
<style>text{fill:#333}.axis{stroke:#999}.down{fill:#f6d5d5}.bar,.normal{fill:#2a6f97}.high{fill:#0a7d4f}.low{fill:#b8860b}@media(prefers-color-scheme:dark){text{fill:#ccc}.axis{stroke:#777}.down{fill:#4a2626}.bar{fill:#6fb7e0}.high{fill:#4cc38a}.low{fill:#e0b34c}}</style>
`, plotWidth, len(panels)*(plotHeight+50)+10)
	for i, p := range panels {
		fmt.Fprintf(&b, "<g transform=\"translate(0 %d)\"><text x=\"%d\" y=\"20\" font-size=\"13\">%s</text>\n", i*(plotHeight+50), plotLeft, p.title)
		b.WriteString(p.marks.String())
		fmt.Fprintf(&b, "<line class=\"axis\" x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\"/>\n", plotLeft, plotTop+plotHeight-40, plotWidth-20, plotTop+plotHeight-40)
		for s := time.Duration(0); s <= p.span; s += max(p.span/8, time.Second/2).Truncate(time.Second / 2) {
			fmt.Fprintf(&b, "<text x=\"%.0f\" y=\"%d\" text-anchor=\"middle\">%gs</text>\n", p.x(s), plotTop+plotHeight-24, s.Seconds())
		}
		b.WriteString("</g>\n")
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// bars draws the number of events in each slice of time.
func (p *panel) bars(events []time.Duration, slice time.Duration, most int) {
	counts := make([]int, int(p.span/slice)+1)
	for _, at := range events {
		if at >= 0 && at < p.span {
			counts[at/slice]++
		}
	}
	base := float64(plotTop + plotHeight - 40)
	for i, n := range counts {
		if n > 0 {
			h := float64(n) / float64(most) * (plotHeight - 50)
			fmt.Fprintf(&p.marks, "<rect class=\"bar\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>\n",
				p.x(time.Duration(i)*slice), base-h, p.x(slice)-plotLeft-1, h)
		}
	}
	fmt.Fprintf(&p.marks, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%d</text>\n", plotLeft-6, plotTop+16, most)
}

// TestPlots measures and draws the charts of docs/gateway.md.
func TestPlots(t *testing.T) {
	if *plotTo == "" {
		t.Log("only with -plot; TestI8Priorities and TestI9FiftyCallersOfASickProvider show the same without pictures")
		return
	}
	synctest.Test(t, func(t *testing.T) {
		write := func(name string, panels ...*panel) {
			if err := os.WriteFile(filepath.Join(*plotTo, name), []byte(svg(panels...)), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		const outage = 12 * time.Second
		alone, slice := plotOutage(t, outage, false), 250*time.Millisecond
		together := plotOutage(t, outage, true)
		most := max(tallest(alone, slice), tallest(together, slice))
		var panels []*panel
		for i, events := range [][]time.Duration{alone, together} {
			during := 0
			for _, at := range events {
				if at < outage {
					during++
				}
			}
			p := &panel{span: 24 * time.Second, title: fmt.Sprintf("%s: %d requests while it is down", []string{"50 callers, each retrying alone", "50 callers behind the gateway"}[i], during)}
			fmt.Fprintf(&p.marks, "<rect class=\"down\" x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\"/>\n", p.x(0), plotTop, p.x(outage)-plotLeft, plotHeight-40)
			p.bars(events, slice, most)
			panels = append(panels, p)
			t.Log(p.title)
		}
		write("gateway-gate.svg", panels...)
		write("gateway-priority.svg", plotPriorities(t))
	})
}

func tallest(events []time.Duration, slice time.Duration) (most int) {
	counts := map[time.Duration]int{}
	for _, at := range events {
		counts[at/slice]++
		most = max(most, counts[at/slice])
	}
	return most
}

// plotOutage returns the times of the requests to a provider that is down for a while. 50
// callers send one request each and retry until they succeed.
func plotOutage(t *testing.T, down time.Duration, gateway bool) (events []time.Duration) {
	t.Helper()
	var mu sync.Mutex
	began := time.Now()
	u := newTestServer(t, func(_ int, w http.ResponseWriter, _ *http.Request) {
		at := time.Since(began)
		mu.Lock()
		events = append(events, at)
		mu.Unlock()
		if at < down {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	const text = "exponential(1s..10s) factor=1.5 jitter=20% attempts=unlimited"
	transport := &http.Transport{DialContext: memnet.Dial}
	defer transport.CloseIdleConnections()
	client, address := &http.Client{Transport: transport}, ""
	if gateway {
		r := newRig(t, []Spec{spec(t, "it", Generic, u.URL, withPolicy(t, text))})
		address = r.URL + "/p/it/x"
	} else {
		tr, err := retryhttp.New(policy(t, text), transport)
		if err != nil {
			t.Fatal(err)
		}
		client.Transport, address = tr, u.URL
	}
	began = time.Now()
	var callers sync.WaitGroup
	for i := range 50 {
		callers.Go(func() {
			time.Sleep(time.Duration(i) * 50 * time.Millisecond) // they do not start at the same time
			resp, err := client.Get(address)
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		})
	}
	callers.Wait()
	mu.Lock()
	defer mu.Unlock()
	return events
}

// plotPriorities draws when requests of each priority finish, with one request at a time.
func plotPriorities(t *testing.T) *panel {
	t.Helper()
	const each = 60 * time.Millisecond
	u := newTestServer(t, func(_ int, w http.ResponseWriter, _ *http.Request) { time.Sleep(each) })
	r := newRig(t, []Spec{spec(t, "it", Generic, u.URL, func(s *Spec) { s.Concurrent = 1 })})
	classes := []string{"low", "normal", "high"}
	p := &panel{span: 4 * time.Second, title: "60 requests at once, room for one: when each has its answer, by priority"}
	began := time.Now()
	var callers sync.WaitGroup
	var mu sync.Mutex
	for i := range 60 {
		class := classes[i%3]
		callers.Go(func() {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.URL+"/p/it/x", nil)
			if err != nil {
				t.Error(err)
				return
			}
			req.Header.Set(headerPriority, class)
			resp, err := r.Client().Do(req)
			if err != nil {
				t.Error(err)
				return
			}
			_ = resp.Body.Close()
			mu.Lock()
			defer mu.Unlock()
			fmt.Fprintf(&p.marks, "<circle class=\"%s\" r=\"4\" cx=\"%.1f\" cy=\"%d\"/>\n", class, p.x(time.Since(began)), plotTop+90-35*(i%3))
		})
	}
	callers.Wait()
	for i, class := range classes {
		fmt.Fprintf(&p.marks, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>\n", plotLeft-8, plotTop+94-35*i, class)
	}
	return p
}
