package web

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/browsertest"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/console/pages"
	"github.com/tideover/tideover/internal/testwait"
	"github.com/tideover/tideover/retry"
)

// flowSite is a test site whose engine has a workflow that is code.
type flowSite struct {
	*testSite
	order *engine.Workflow

	mu   sync.Mutex
	held map[string]chan struct{} // operations that last until release
}

// flowOrder is the input of the workflow.
type flowOrder struct {
	Items int    `json:"items"`
	Fail  int    `json:"fail"` // every item with this distance fails
	Hold  string `json:"hold"` // name of the operation that lasts until release
	Chain int    `json:"chain"`
}

func newFlowSite(t *testing.T) *flowSite {
	t.Helper()
	s := &flowSite{testSite: &testSite{T: t}, held: map[string]chan struct{}{}}
	s.order = engine.MustFlow("order", s.run, engine.Function(engine.Version("v7")))
	e, err := engine.Open(t.Context(), engine.Config{Dir: t.TempDir(), Durability: engine.OS, Workflows: []*engine.Workflow{s.order}})
	if err != nil {
		t.Fatal(err)
	}
	s.serve(e)
	return s
}

// run is the function of the workflow.
func (s *flowSite) run(f *engine.Flow, in flowOrder) (string, error) {
	engine.SetStatus(f, "pricing <b>lines</b>")
	if err := engine.SetTag(f, "city", "Oslo & more"); err != nil {
		return "", err
	}
	if _, err := engine.Now(f, "ordered-at"); err != nil {
		return "", err
	}
	_, err := engine.Do(f, "price", func(ctx context.Context) (map[string]string, error) {
		return map[string]string{"total": strings.Repeat("12,", 60)}, s.hold(ctx, in, "price")
	})
	if err != nil {
		return "", err
	}
	items := make([]int, in.Items)
	for i := range items {
		items[i] = i
	}
	engine.SetStatus(f, "reserving")
	_, err = engine.Collect(f, "reserve", items, func(ctx context.Context, i int) (string, error) {
		if in.Fail > 0 && i%in.Fail == 2 {
			return "", retry.Permanent(engine.Coded("sold-out", fmt.Errorf("item %d is sold out", i)))
		}
		if i == len(items)-1 {
			return "held", s.hold(ctx, in, "reserve")
		}
		return fmt.Sprint("held ", i), nil
	}, engine.Parallel(64))
	if err != nil {
		return "", err
	}
	if in.Chain > 0 {
		in.Chain--
		return "", engine.Again(f, in)
	}
	if _, err := engine.Do(f, "notify", func(ctx context.Context) (int, error) {
		if t, _ := engine.TaskOf(ctx); t.Total == 1 {
			return 0, errors.New("the mail server is busy")
		}
		return 1, nil
	}, engine.Policy("fixed(1ms) attempts=3")); err != nil {
		return "", err
	}
	engine.SetStatus(f, "cooling down")
	if err := engine.Sleep(f, "cool-down", 24*time.Hour); err != nil {
		return "", err
	}
	return "shipped", nil
}

// hold waits until release is called with the name, if the order says so.
func (s *flowSite) hold(ctx context.Context, in flowOrder, name string) error {
	if in.Hold != name {
		return nil
	}
	select {
	case <-s.door(name):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *flowSite) door(name string) chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[name] == nil {
		s.held[name] = make(chan struct{})
	}
	return s.held[name]
}

func (s *flowSite) release(name string) { close(s.door(name)) }

func (s *flowSite) startOrder(in flowOrder) string {
	s.Helper()
	run, err := s.e.Start(s.Context(), s.order, in)
	if err != nil {
		s.Fatal(err)
	}
	return run.ID
}

// untilOps waits until this many operations of a run have ended.
func (s *flowSite) untilOps(id string, n int) {
	s.Helper()
	testwait.Until(s, fmt.Sprint(n, " operations have ended"), func() bool {
		i, err := s.e.Get(s.Context(), id)
		return err == nil && i.Operations != nil && i.Operations.Succeeded+i.Operations.Failed >= n
	})
}

// expect fails the test for each text that the page does not have.
func (s *flowSite) expect(page string, texts ...string) {
	s.Helper()
	for _, text := range texts {
		if !strings.Contains(page, text) {
			s.Errorf("the page has no %q", text)
		}
	}
}

func TestRunPageOfAFlow(t *testing.T) {
	t.Parallel()
	s := newFlowSite(t)
	id := s.startOrder(flowOrder{Items: 4, Fail: 4})
	s.until(id, "waiting")
	page := s.page(pages.RunURL(id))
	s.expect(page, "cooling down", "city=Oslo &amp; more", `href="/runs?tag=city%3DOslo`, "v7", "9 operations: 7 succeeded, 1 failed, 1 waiting",
		"4 items: 3 succeeded, 1 failed", "item 2 is sold out", "sold-out", "The sleep cool-down ends", "2 attempts", "the mail server is busy",
		"Function: 1 call", "&#34;held 0&#34;", "ordered-at")
	if strings.Contains(page, "Retry from a step") || strings.Index(page, "reserve#2") > strings.Index(page, "reserve#0") {
		t.Error("the failed item is not the first one, or a flow can be rerun from a step")
	}
	list := s.page("/runs")
	s.expect(list, "cooling down", "city=Oslo &amp; more", "cool-down")
	if page := s.page("/runs?tag=city%3DOslo+%26+more"); !strings.Contains(page, "r-"+id) || !strings.Contains(page, `value="city=Oslo &amp; more"`) {
		t.Error("the list with the tag of the run does not have the run")
	}
	if strings.Contains(s.page("/runs?tag=city%3DBergen"), "r-"+id) {
		t.Error("the list with another tag has the run")
	}
	if a := s.request("GET", "/runs?tag=nonsense", nil); a.to != "/runs" {
		t.Errorf("a tag without a value leads to %q", a.to)
	}
	s.expect(s.page("/bulk/cancel?state=waiting&tag=city%3DOslo+%26+more"), "Cancel 1 run?", "tagged city=Oslo &amp; more")
	s.expect(s.page("/bulk/cancel?state=waiting&tag=city%3DBergen"), "No run matches", "There is nothing to cancel.")
}

func TestRunPageOfALargeFlowIsSmall(t *testing.T) {
	t.Parallel()
	s := newFlowSite(t)
	id := s.startOrder(flowOrder{Items: 1000, Fail: 100, Hold: "reserve"})
	s.untilOps(id, 1002)
	page := s.page(pages.RunURL(id))
	s.expect(page, "1000 items: 989 succeeded, 10 failed, 1 running", "item 902 is sold out", "reserve#999", "980 more items")
	if n := len(page); n > 60_000 {
		t.Errorf("the page of a run with 1000 items has %d bytes", n)
	}
	all := s.page(pages.RunURL(id) + "?all")
	s.expect(all, "reserve#0", "reserve#999", "Not listed")
	if n := len(all); n > 1_500_000 {
		t.Errorf("the page with all items has %d bytes", n)
	}
	s.release("reserve")
	s.until(id, "waiting")
}

func TestRunPageOfAContinuedRun(t *testing.T) {
	t.Parallel()
	s := newFlowSite(t)
	id := s.startOrder(flowOrder{Items: 1, Chain: 1})
	testwait.Until(t, "the run is continued", func() bool {
		i, err := s.e.Get(s.Context(), id)
		return err == nil && i.ContinuedBy != ""
	})
	i, err := s.e.Get(s.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	s.until(i.ContinuedBy, "waiting")
	s.expect(s.page(pages.RunURL(id)), "continued by", pages.RunURL(i.ContinuedBy))
	s.expect(s.page(pages.RunURL(i.ContinuedBy)), "continues "+id)
}

func TestOperationsInABrowser(t *testing.T) {
	t.Parallel()
	s := newFlowSite(t)
	x := &tab{s.testSite, browsertest.Open(t)}
	dir := os.Getenv("TIDEOVER_PICTURES")
	id := s.startOrder(flowOrder{Items: 1000, Fail: 100, Hold: "price"})
	x.live(pages.RunURL(id))
	x.seen("#status", "pricing <b>lines</b>")
	x.seen(".ops", "price")
	x.seen(".ops .state", "running")
	s.release("price")
	x.seen(".ops", "1000 items: 990 succeeded, 10 failed")
	x.seen("#status", "cooling down")
	x.seen("#next", "The sleep cool-down ends")
	x.click(".ops details.tries summary")
	x.seen(".ops details.tries[open]", "the mail server is busy")
	x.click("#function summary")
	x.seen("#function", "suspended")
	x.looksRight(dir, "flow")
	x.live("/runs")
	x.seen("#rows", "city=Oslo & more")
	x.looksRight(dir, "flow-list")
	x.click("#rows a.tag")
	x.Wait("the list is filtered", `location.search.startsWith("?tag=city") && document.querySelector("input[name=tag]").value === "city=Oslo & more"`)
	x.quiet()
}
