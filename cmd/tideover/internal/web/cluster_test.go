package web

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/engine/journal/memlog"
	"github.com/tideover/tideover/internal/console/control"
	"github.com/tideover/tideover/internal/testwait"
)

// clusterSite is the site of one of the two members of a cluster.
type clusterSite struct {
	*testSite
	store *memlog.Store
	here  *memlog.Member
	there *memlog.Member
	other *engine.Engine
	root  *testing.T // the test that owns the cluster, which its subtests share
}

func newClusterSite(t *testing.T, change ...func(*setup)) *clusterSite {
	t.Helper()
	p := &clusterSite{testSite: &testSite{T: t, w: map[string]*engine.Workflow{}}, root: t, store: &memlog.Store{Shards: 4, Silence: time.Hour}}
	w, err := engine.NewWorkflow("quick", engine.Step("call", do, engine.Policy("fixed(1ms) attempts=3")))
	if err != nil {
		t.Fatal(err)
	}
	p.w["quick"] = w
	p.here, p.there = p.store.Join("here"), p.store.Join("there")
	p.other = p.engine(p.there)
	t.Cleanup(func() {
		if err := p.other.Close(context.Background()); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	p.serve(p.engine(p.here), append([]func(*setup){func(o *setup) { o.Clustered, o.Logger = true, slog.New(slog.DiscardHandler) }}, change...)...)
	testwait.Until(t, "all shards have owners", func() bool {
		c, err := p.h.server.control.System.Cluster(t.Context())
		return err == nil && owned(&c) == 4 && len(c.Silent) == 0
	})
	p.h.RequestTimeout, p.h.cluster.at = time.Hour, time.Time{}
	return p
}

func (p *clusterSite) engine(m *memlog.Member) *engine.Engine {
	p.Helper()
	e, err := engine.Open(p.root.Context(), engine.Config{
		Log: m, Dir: p.root.TempDir(), Workflows: []*engine.Workflow{p.w["quick"]}, Logger: slog.New(slog.DiscardHandler), Grace: time.Second,
	})
	if err != nil {
		p.Fatal(err)
	}
	return e
}

func TestThePageOfACluster(t *testing.T) {
	t.Parallel()
	p := newClusterSite(t)
	// A shard that does not answer in time is reported as silent.
	var body string
	testwait.Until(t, "a page of the cluster without trouble", func() bool {
		body = p.page("/cluster")
		return !strings.Contains(body, `id="troubles"`) && !strings.Contains(body, `<span class="error">none</span>`) && !strings.Contains(body, "did not answer")
	})
	has(t, "the page", body, `<a href="/cluster" aria-current="page">Cluster</a>`, "4 of 4 shards have an owner; processes: 2", ">here</strong> <span class=\"quiet\">this process</span>",
		`<strong class="text">there</strong>`, `id="h-0"`, `id="h-3"`)
	testwait.Until(t, "the list is complete", func() bool { return !strings.Contains(p.page("/runs"), `id="silent"`) })
	if strings.Contains(newTestSite(t).page("/runs"), "/cluster") {
		t.Error("there is a cluster in the navigation of one without")
	}
}

// Pages name the shards that do not answer; here it is half of them.
func TestPagesNameSilentShards(t *testing.T) {
	t.Parallel()
	p := newClusterSite(t, func(o *setup) { o.Redact = func(s string) string { return strings.ReplaceAll(s, "there", "***") } })
	p.there.Freeze()
	t.Cleanup(p.there.Thaw)
	for path, want := range map[string]string{
		"/runs": "<strong>Incomplete</strong>: shards ", "/dead": "<strong>Incomplete</strong>: shards ",
		"/cluster": "did not answer; its runs are missing in lists",
	} {
		t.Run(path[1:], func(t *testing.T) {
			t.Parallel() // each answer takes seconds
			b, body := p.with(t), ""
			testwait.Until(t, path+" has "+want, func() bool { // retry: on a slow machine, no shard may answer in time
				a := b.request("GET", path, nil)
				body = a.body
				return a.status == http.StatusOK && strings.Contains(body, want)
			})
			if strings.Contains(body, ">there<") {
				t.Errorf("%s has a name that is a secret:\n%s", path, body)
			}
		})
	}
	t.Run("bulk", func(t *testing.T) {
		t.Parallel()
		job := p.h.server.control.Runs.StartBulk(t.Context(), control.BulkCancel, nil, control.Filter{Workflow: "quick", States: []string{"waiting"}}, "alice")
		<-job.Done()
		if err := job.Err(); !errors.Is(err, engine.ErrAway) {
			t.Errorf("a bulk action without the runs of some shards: %v", err)
		}
	})
}

// Pages that are not about runs work even if no shard answers.
func TestPagesWithoutAnsweringShards(t *testing.T) {
	t.Parallel()
	p := newClusterSite(t)
	p.there.Freeze()
	t.Cleanup(p.there.Thaw)
	p.here.Kill()
	testwait.Until(t, "this process owns no shards", func() bool {
		return p.request("GET", "/runs", nil).status == http.StatusServiceUnavailable
	})
	if a := p.request("GET", "/providers", nil); a.status != http.StatusOK {
		t.Errorf("/providers: %d", a.status)
	}
	if body := p.page("/cluster"); !strings.Contains(body, "The state of the cluster is unknown") {
		t.Errorf("/cluster says nothing:\n%s", body)
	}
}
