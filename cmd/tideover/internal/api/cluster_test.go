package api

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/engine/journal/memlog"
	"github.com/tideover/tideover/internal/console/control"
	"github.com/tideover/tideover/internal/testwait"
)

// shared returns a fixture whose engine is in a cluster of two members, and the other member.
func shared(t *testing.T) (f *fixture, other *memlog.Member) {
	t.Helper()
	store := &memlog.Store{Shards: 4, Silence: time.Hour}
	other = store.Join("other")
	f = serve(t, func(_ *fixture, cfg *engine.Config) {
		second := *cfg
		second.Log, second.Dir = other, t.TempDir()
		e, err := engine.Open(t.Context(), second)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := e.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
		cfg.Log = store.Join("asked")
	})
	testwait.Until(t, "all shards have owners", func() bool {
		c, err := f.client().Cluster(t.Context())
		return err == nil && len(c.Silent) == 0 && !slices.ContainsFunc(c.Shards, func(s engine.ShardInfo) bool { return s.Owner == "" })
	})
	return f, other
}

func TestCluster(t *testing.T) {
	t.Parallel()
	f, _ := shared(t)
	c, err := f.client().Cluster(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Members) != 2 || len(c.Shards) != 4 || c.Owned(&c.Members[0]) != 2 || c.Owned(&c.Members[1]) != 2 || c.Troubles == nil || len(c.Troubles) > 0 {
		t.Errorf("the cluster is %+v", c)
	}
	if !strings.HasPrefix(c.Self, "asked") {
		t.Errorf("the one that was asked is %s", c.Self)
	}
	if got := f.ask(false, "GET", Prefix+"cluster?x=1", ""); got.status != 400 {
		t.Errorf("with a query: %d %s", got.status, got.text)
	}
	alone := serve(t)
	got := alone.ask(false, "GET", Prefix+"cluster", "")
	if p := got.problem(t); got.status != 404 || p.Code != control.CodeNotFound || p.Message != "this server is in no cluster" {
		t.Errorf("without a cluster: %d %s", got.status, got.text)
	}
}

// TestSilentShards checks a cluster of which half of the shards do not answer: responses contain the
// runs of the other shards, and name the silent ones.
func TestSilentShards(t *testing.T) {
	t.Parallel()
	f, other := shared(t)
	for i := range 16 { // their keys distribute the runs over the shards
		s, err := f.client().Start(t.Context(), control.Start{Workflow: "echo", Key: strconv.Itoa(i)})
		if err != nil {
			t.Fatal(err)
		}
		f.over(s.ID)
	}
	f.listed("succeeded", 16)
	if _, err := f.client().PauseWorkflow(t.Context(), "echo"); err != nil {
		t.Fatal(err)
	}
	other.Freeze()
	t.Cleanup(other.Thaw)
	c := f.client()
	page, err := c.List(t.Context(), control.Filter{})
	if err != nil || len(page.Silent) != 2 || len(page.Runs) == 0 || len(page.Runs) == 16 {
		t.Errorf("runs: %d, silent %v, %v", len(page.Runs), page.Silent, err)
	}
	var all sync.WaitGroup // each request waits for the silent shards
	all.Go(func() {
		if s, err := c.Status(t.Context()); err != nil || !slices.Equal(s.Silent, page.Silent) {
			t.Errorf("status: silent %v, %v", s.Silent, err)
		}
	})
	all.Go(func() {
		if d, err := c.Dead(t.Context(), 0, false); err != nil || !slices.Equal(d.Silent, page.Silent) || d.Groups == nil {
			t.Errorf("dead: %+v, %v", d, err)
		}
	})
	all.Go(func() {
		if d, err := c.CancelMany(t.Context(), control.Bulk{Filter: &control.Filter{Workflow: "echo"}}); err != nil || !slices.Equal(d.Silent, page.Silent) {
			t.Errorf("cancel: %+v, %v", d, err)
		}
	})
	all.Go(func() {
		w, err := c.Workflows(t.Context())
		at := slices.IndexFunc(w.Workflows, func(w control.Workflow) bool { return w.Name == "echo" })
		if err != nil || at < 0 || w.Workflows[at].Paused == nil || w.Workflows[at].Paused.Partly ||
			!strings.HasPrefix(w.Missing, "schedules: shards ") || !strings.Contains(w.Missing, "; paused workflows: shards ") {
			t.Errorf("workflows: %+v, %v", w, err)
		}
	})
	all.Go(func() {
		if info, err := c.Cluster(t.Context()); err != nil || !slices.Equal(info.Silent, page.Silent) {
			t.Errorf("cluster: silent %v, %v", info.Silent, err)
		}
	})
	all.Wait()
}
