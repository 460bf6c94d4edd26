package engine

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tideover/tideover/engine/journal/memlog"
)

// memberTrace is the key of the trace in contexts of TestClusterContinuesTraces.
type memberTrace struct{}

// memberPropagator propagates the value of memberTrace.
type memberPropagator struct{}

func (memberPropagator) Inject(ctx context.Context) map[string]string {
	trace, _ := ctx.Value(memberTrace{}).(string)
	return map[string]string{"trace": trace}
}

func (memberPropagator) Extract(ctx context.Context, trace map[string]string) context.Context {
	return context.WithValue(ctx, memberTrace{}, trace["trace"])
}

func TestClusterContinuesTraces(t *testing.T) {
	t.Parallel()
	together(t, func(t *testing.T, s *memlog.Store) {
		var mu sync.Mutex
		seen := map[string]int{} // traces by the member that executes the attempt
		var all []*member
		for _, name := range []string{"a", "b"} {
			w := one(t, func(ctx context.Context, n int) (int, error) {
				mu.Lock()
				defer mu.Unlock()
				seen[fmt.Sprint(name, " ", ctx.Value(memberTrace{}))]++
				return n, nil
			})
			all = append(all, joined(t, s, name, Config{Workflows: []*Workflow{w}, Propagator: memberPropagator{}}))
		}
		settled(t, all...)
		ctx := context.WithValue(t.Context(), memberTrace{}, "t-1")
		w, _ := all[0].Workflow("one")
		for i := range 40 {
			run := must(all[0].Start(ctx, w, i, Key(fmt.Sprint("key ", i))))
			must(run.Wait(t.Context()))
		}
		if len(seen) != 2 || seen["a t-1"] == 0 || seen["b t-1"] == 0 {
			t.Errorf("attempts by member and trace: %v", seen)
		}
	})
}

func TestClusterShowsLargeFlows(t *testing.T) {
	t.Parallel()
	together(t, func(t *testing.T, s *memlog.Store) {
		result := strings.Repeat("x", 10_000)
		w := MustFlow("large", func(f *Flow, city string) (int, error) {
			if err := SetTag(f, "city", city); err != nil {
				return 0, err
			}
			_, err := Map(f, "all", make([]int, 2500), func(context.Context, int) (string, error) { return result, nil }, Parallel(500))
			if err != nil {
				return 0, err
			}
			return 1, Sleep(f, "rest", time.Hour)
		})
		a := joined(t, s, "a", Config{Workflows: []*Workflow{w}})
		b := joined(t, s, "b", Config{Workflows: []*Workflow{w}})
		settled(t, a, b)
		ids := map[string]string{}
		for i := range 2 {
			city := fmt.Sprint("city ", i)
			ids[city] = must(a.Start(t.Context(), w, city, Key(city))).ID
		}
		time.Sleep(time.Minute)
		for _, m := range []*member{a, b} {
			for city, id := range ids {
				run := must(m.Get(t.Context(), id))
				if run.Operations.Total != 2502 || run.Operations.Succeeded != 2501 || len(run.Steps) != 1001 || run.Steps[1].Items.Omitted != 1502 {
					t.Errorf("%s gets %d steps and %+v", m.log.Member(), len(run.Steps), run.Operations)
				}
				if page := must(m.List(t.Context(), Filter{Tags: []string{"city=" + city}})); len(page.Runs) != 1 || page.Runs[0].ID != id {
					t.Errorf("%s lists %d runs with the tag city=%s", m.log.Member(), len(page.Runs), city)
				}
			}
			if h := must(m.History(t.Context(), ids["city 0"])); len(h) < 2500*len(result) {
				t.Errorf("%s gets a history of %d bytes", m.log.Member(), len(h))
			}
		}
	})
}
