package web

import (
	"fmt"
	"os"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/heapprofiler"
	"github.com/chromedp/cdproto/performance"
	"github.com/chromedp/cdproto/systeminfo"
	"github.com/chromedp/chromedp"
)

// weight is the memory of a page after a garbage collection.
type weight struct {
	heap      int // bytes
	nodes     int // nodes of the document
	loose     int // nodes in memory that are not part of the document
	listeners int
}

func (w weight) String() string {
	return fmt.Sprintf("%d kB, %d+%d nodes, %d listeners", w.heap>>10, w.nodes, w.loose, w.listeners)
}

// excess returns the number of loose nodes that htmx does not keep: it keeps those of the last update,
// which are about as many as the document has.
func (w weight) excess() int { return w.loose - w.nodes }

// grown reports whether heap, loose nodes or listeners have grown beyond a margin. The margin of nodes
// allows for nodes that the page has removed recently.
func (w weight) grown(from weight) bool {
	return w.heap > from.heap+from.heap/10+300<<10 || w.excess() > from.excess()+w.nodes/2+200 || w.listeners > from.listeners+from.listeners/10+10
}

// weigh collects garbage and measures the memory of the page.
func (x *tab) weigh() weight {
	x.Helper()
	if _, err := chromedp.Call(x.Chromedp(), heapprofiler.CollectGarbage, cdp.Empty{}); err != nil {
		x.Fatal(err)
	}
	got, err := chromedp.Call(x.Chromedp(), performance.GetMetrics, cdp.Empty{})
	if err != nil {
		x.Fatal(err)
	}
	values := map[string]int{}
	for _, m := range got.Metrics {
		values[m.Name] = int(m.Value)
	}
	nodes := eval[int](x, `(() => { const w = document.createTreeWalker(document); let n = 1; while (w.nextNode()) n++; return n; })()`)
	return weight{values["JSHeapUsedSize"], nodes, max(values["Nodes"]-nodes, 0), values["JSEventListeners"]}
}

// private returns the private memory of the renderer processes, or 0 if the system does not report it.
func (x *tab) private() (sum int) {
	x.Helper()
	got, err := chromedp.CallBrowser(x.Chromedp(), systeminfo.GetProcessInfo, cdp.Empty{})
	if err != nil {
		x.Fatal(err)
	}
	for _, p := range got.ProcessInfo {
		var all, resident, shared int // in memory pages
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.ID))
		if n, _ := fmt.Sscan(string(text), &all, &resident, &shared); err == nil && n == 3 && p.Type == "renderer" {
			sum += (resident - shared) * os.Getpagesize()
		}
	}
	return sum
}
