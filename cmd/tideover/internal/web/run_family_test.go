package web

import (
	"context"
	"errors"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/console/pages"
)

// familySite is a test site whose engine has a workflow with children and an undo.
type familySite struct {
	*flowSite
	parent *engine.Workflow
	down   atomic.Bool // the undo fails
}

func newFamilySite(t *testing.T) *familySite {
	t.Helper()
	s := &familySite{flowSite: &flowSite{testSite: &testSite{T: t}}}
	child := engine.MustFlow("leg", func(f *engine.Flow, n int) (int, error) { return n, engine.Sleep(f, "fly", 24*time.Hour) })
	s.parent = engine.MustFlow("trip", func(f *engine.Flow, _ int) ([]int, error) {
		if _, err := engine.DoUndo(f, "hotel", func(context.Context) (string, error) { return "room 7", nil },
			func(context.Context, *string) error {
				if s.down.Load() {
					return errors.New("the hotel does not answer")
				}
				return nil
			}, engine.UndoPolicy("fixed(24h) attempts=2")); err != nil {
			return nil, err
		}
		return engine.Children[int, int](f, "leg", child, []int{1, 2})
	})
	e, err := engine.Open(t.Context(), engine.Config{Dir: t.TempDir(), Durability: engine.OS, Workflows: []*engine.Workflow{s.parent, child}})
	if err != nil {
		t.Fatal(err)
	}
	s.serve(e)
	return s
}

// startTrip starts a run, and waits until its children wait.
func (s *familySite) startTrip() (run string, children []string) {
	s.Helper()
	started, err := s.e.Start(s.Context(), s.parent, 1)
	if err != nil {
		s.Fatal(err)
	}
	s.until(started.ID, "waiting")
	i, err := s.e.Get(s.Context(), started.ID)
	if err != nil {
		s.Fatal(err)
	}
	for _, o := range i.Steps {
		if o.Child != "" {
			children = append(children, o.Child)
			s.until(o.Child, "waiting")
		}
	}
	return started.ID, children
}

func TestRunPageOfAFamily(t *testing.T) {
	t.Parallel()
	s := newFamilySite(t)
	none := url.Values{}
	id, children := s.startTrip()
	if len(children) != 2 {
		t.Fatalf("children %v", children)
	}
	s.expect(s.page(pages.RunURL(id)), "2 items: 2 waiting", "leg#0", `href="`+pages.RunURL(children[0])+`"`, `href="`+pages.RunURL(children[1])+`"`)
	s.expect(s.page(pages.RunURL(children[0])), "child of", `href="`+pages.RunURL(id)+`"`)

	s.down.Store(true)
	s.expect(s.page(pages.RunURL(id)+"/cancel"), "Then the operations that can be undone are undone")
	s.request("POST", pages.RunURL(id)+"/cancel", none)
	s.until(id, "undoing")
	for _, child := range children {
		s.until(child, "canceled")
	}
	s.expect(s.page(pages.RunURL(id)), "Abandon", "undoing")
	s.request("POST", pages.RunURL(id)+"/abandon", none)
	s.until(id, "canceled")

	s.down.Store(false)
	id, _ = s.startTrip()
	s.request("POST", pages.RunURL(id)+"/cancel", none)
	s.until(id, "canceled")
	s.expect(s.page(pages.RunURL(id)), "undo", "hotel")
}
