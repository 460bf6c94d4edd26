package web

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// Not parallel: one browser at a time is enough for a small machine.
func TestAClusterInABrowser(t *testing.T) { //nolint:paralleltest // see above
	browser := browse(t)
	for _, c := range []struct {
		name string
		do   func(visitor)
	}{
		{"a process leaves and another comes", visitor.clusterFollows},
		{"without scripts", visitor.clusterPlain},
		{"a list that is not complete", visitor.clusterSilent},
		{"nothing planted runs", visitor.clusterHostile},
		{"pictures", visitor.clusterPictures},
	} {
		t.Run(c.name, func(t *testing.T) { c.do(visitor{t, browser}) })
	}
}

func (v visitor) clusterFollows() {
	p := newPier(v.T)
	x := open(v.browser, v.T, p.bed)
	x.live("/runs")
	x.click(`nav a[href="/cluster"]`)
	x.wait("the page is live", `location.pathname === "/cluster" && document.getElementById("link").dataset.state === "live"`)
	x.seen("#said", "4 of 4 shards have an owner; processes: 2")
	x.seen("#m-"+p.there.Member(), "there")
	if err := p.other.Close(v.Context()); err != nil {
		v.Fatal(err)
	}
	x.seen("#said", "4 of 4 shards have an owner; processes: 1")
	x.wait("the other is gone", `document.querySelectorAll("#members tbody tr").length === 1`)
	p.there = p.store.Join("third")
	p.other = p.engine(p.there)
	x.seen("#said", "processes: 2")
	x.seen("#m-"+p.there.Member(), "third")
	x.quiet()
}

func (v visitor) clusterPlain() {
	p := newPier(v.T)
	x := open(v.browser, v.T, p.bed)
	x.scripts(false)
	x.visit("/cluster")
	x.seen("#link", "not live")
	x.seen("#said", "processes: 2")
	x.scripts(true)
	x.quiet()
}

func (v visitor) clusterSilent() {
	p := newPier(v.T)
	x := open(v.browser, v.T, p.bed)
	p.there.Freeze()
	x.live("/runs")
	x.seen("#silent", "did not answer; their runs are missing")
	p.there.Thaw()
	p.start("quick", job{Name: "again"})
	x.wait("all is there again", `!document.getElementById("silent")`)
	x.quiet()
}

func (v visitor) clusterHostile() {
	p := newPier(v.T)
	for i, h := range hostile {
		m := p.store.Join(strings.ReplaceAll(h.text, "alert(1)", fmt.Sprintf("window.planted=%d", i+1)))
		defer m.Close()
	}
	x := open(v.browser, v.T, p.bed)
	x.live("/cluster")
	x.seen("#members", "m1<script>window.planted=1</script>")
	if eval[bool](x, "!!window.planted") || eval[int](x, `document.querySelectorAll("img, iframe, script:not([src])").length`) != 0 {
		v.Error("what was planted has come to life")
	}
	x.quiet()
}

// clusterPictures looks at the page in sizes and colours, as pictures does.
func (v visitor) clusterPictures() {
	dir := os.Getenv("TIDEOVER_PICTURES")
	whole, half := newPier(v.T), newPier(v.T)
	half.there.Freeze()
	defer half.there.Thaw()
	for _, c := range []struct {
		name, scheme  string
		width, height int64
	}{{"light", "light", 1280, 900}, {"phone-dark", "dark", 360, 740}, {"dark", "dark", 1280, 900}, {"phone", "light", 360, 740}} {
		for name, p := range map[string]*pier{"cluster": whole, "cluster-silent": half} {
			if dir == "" && (c.name == "dark" || c.name == "phone") {
				continue
			}
			x := open(v.browser, v.T, p.bed)
			x.do(chromedp.EmulateViewport(c.width, c.height))
			x.colours(c.scheme)
			x.live("/cluster")
			if w := eval[int64](x, "document.documentElement.scrollWidth"); w > c.width {
				v.Errorf("%s, %s: %d wide", name, c.name, w)
			}
			x.keep(dir, name+"-"+c.name)
			x.quiet()
		}
	}
}
