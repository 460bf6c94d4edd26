package web

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/browsertest"
)

// TestAClusterInABrowser runs subtests one after the other on a shared cluster.
func TestAClusterInABrowser(t *testing.T) {
	t.Parallel()
	p, tab := newClusterSite(t), browsertest.Open(t)
	for _, c := range []struct {
		name string
		do   func(visitor, *clusterSite)
	}{
		{"a process leaves and another comes", visitor.clusterFollows},
		{"without scripts", visitor.clusterPlain},
		{"a list that is not complete", visitor.clusterSilent},
		{"nothing planted runs", visitor.clusterHostile},
		{"pictures", visitor.clusterPictures},
		{"by screen reader and keyboard", visitor.clusterAccess},
	} {
		if c.name == "pictures" && !picturesWanted() {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			p.testSite = p.with(t)
			c.do(visitor{t, tab.With(t)}, p)
		})
	}
}

func (v visitor) clusterFollows(p *clusterSite) {
	x := v.open(p.testSite)
	x.live("/runs")
	x.click(`nav a[href="/cluster"]`)
	x.Wait("the page is live", `location.pathname === "/cluster" && document.getElementById("link").dataset.state === "live"`)
	x.seen("#said", "4 of 4 shards have an owner; processes: 2")
	x.seen("#m-"+p.there.Member(), "there")
	if err := p.other.Close(v.Context()); err != nil {
		v.Fatal(err)
	}
	x.seen("#said", "4 of 4 shards have an owner; processes: 1")
	x.Wait("the other is gone", `document.querySelectorAll("#members tbody tr").length === 1`)
	p.there = p.store.Join("third")
	p.other = p.engine(p.there)
	x.seen("#said", "processes: 2")
	x.seen("#m-"+p.there.Member(), "third")
	x.quiet()
}

func (v visitor) clusterPlain(p *clusterSite) {
	x := v.open(p.testSite)
	x.EnableScripts(false)
	x.visit("/cluster")
	x.seen("#link", "not live")
	x.seen("#said", "processes: 2")
	x.EnableScripts(true)
	x.quiet()
}

func (v visitor) clusterSilent(p *clusterSite) {
	x := v.open(p.testSite)
	p.there.Freeze()
	x.live("/runs")
	x.seen("#silent", "did not answer; their runs are missing")
	p.there.Thaw()
	p.start("quick", job{Name: "again"})
	x.Wait("all is there again", `!document.getElementById("silent")`)
	x.quiet()
}

func (v visitor) clusterHostile(p *clusterSite) {
	for i, h := range hostile {
		m := p.store.Join(strings.ReplaceAll(h.text, "alert(1)", fmt.Sprintf("window.planted=%d", i+1)))
		defer m.Close()
	}
	x := v.open(p.testSite)
	x.live("/cluster")
	x.seen("#members", "m1<script>window.planted=1</script>")
	if eval[bool](x, "!!window.planted") || eval[int](x, `document.querySelectorAll("img, iframe, script:not([src])").length`) != 0 {
		v.Error("what was planted has come to life")
	}
	x.quiet()
}

// clusterPictures checks the page in several sizes and colour schemes, as pictures does.
func (v visitor) clusterPictures(p *clusterSite) {
	dir := os.Getenv("TIDEOVER_PICTURES")
	x := v.open(p.testSite)
	x.live("/cluster")
	x.looksRight(dir, "cluster")
	p.there.Freeze()
	defer p.there.Thaw()
	x.seen("#live", "did not answer")
	x.looksRight(dir, "cluster-silent")
	x.quiet()
}

func (v visitor) clusterAccess(p *clusterSite) {
	x := v.open(p.testSite)
	x.live("/cluster")
	x.Check(browsertest.Checks{Name: "cluster", Row: "#members tbody tr", Pictures: os.Getenv("TIDEOVER_PICTURES")})
}
