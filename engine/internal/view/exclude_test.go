package view

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// mixed fills a view with runs of a user's workflows among many more of others.
func mixed(tb testing.TB, v *View, n int) (wanted []string) {
	tb.Helper()
	rnd := someSource()
	put := make([]Run, n)
	for i := range put {
		r := order(rnd, i, 1)
		r.Workflow = []string{"ship", "notify.phone", "session.night", "ship.on-give-up", "notify.phone"}[i%5]
		r.State = []string{"dead", "succeeded", "waiting"}[i%3]
		r.Next = r.Created.Add(time.Hour)
		r.Error = fmt.Sprintf("exit code %d", i%2)
		if put[i] = r; r.Workflow == "ship" {
			wanted = append(wanted, r.ID)
		}
	}
	for part := range slices.Chunk(put, 1000) {
		write(tb, v, part...)
	}
	return wanted
}

var others = []string{"notify.*", "session.*", "*.on-give-up"}

func TestExcludedWorkflowsAreInNoList(t *testing.T) {
	t.Parallel()
	v := openTest(t)
	wanted := mixed(t, v, 300)
	index(t, v)
	for name, f := range map[string]Filter{
		"all": {}, "oldest": {Order: Oldest}, "next": {Order: Soonest}, "states": {States: []string{"dead", "succeeded", "waiting"}},
		"words": {Search: "morning"}, "a piece": {Search: "er-0"},
	} {
		f.Exclude, f.Limit = others, 7
		var got []string
		for more := true; more; more = f.After != "" {
			p, err := v.List(t.Context(), f)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			for _, r := range p.Runs {
				got = append(got, r.ID)
			}
			f.After = p.Next
		}
		slices.Sort(got)
		if !slices.Equal(got, wanted) {
			t.Errorf("%s: %d runs, want %d", name, len(got), len(wanted))
		}
	}
	for name, f := range map[string]Filter{
		"an excluded one by name": {Workflow: "notify.phone", Exclude: others},
		"by its whole name":       {Workflow: "ship", Exclude: []string{"ship"}},
	} {
		if p, err := v.List(t.Context(), f); err != nil || len(p.Runs) != 0 {
			t.Errorf("%s: %d runs, %v", name, len(p.Runs), err)
		}
	}
	groups, err := v.Groups(t.Context(), Filter{Exclude: others}, 10)
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range groups {
		if g.Workflow != "ship" || g.Count != 30 {
			t.Errorf("group %+v, want 30 of ship", g)
		}
	}
	if len(groups) != 2 {
		t.Errorf("%d groups, want one for each exit code", len(groups))
	}
}

func TestLike(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"notify.phone": true, "notify.": true, "notify": false, "session.x": true, "x.on-give-up": true, "on-give-up": false, "ship": false, "": false,
		"my.notify.x": false,
	} {
		if got := Like(others, name); got != want {
			t.Errorf("Like(%q, %q) = %t", others, name, got)
		}
	}
}

// BenchmarkExclude measures reading a page when the filter excludes nearly all runs.
func BenchmarkExclude(b *testing.B) {
	for _, n := range []int{10_000, 200_000} {
		v := openTest(b)
		mixed(b, v, n)
		for name, f := range map[string]Filter{"newest": {}, "dead": {States: []string{"dead"}}} {
			f.Exclude = others
			b.Run(fmt.Sprintf("%s of %d", name, n), func(b *testing.B) {
				for b.Loop() {
					if _, err := v.List(b.Context(), f); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
