package view

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// taggedRuns writes n runs: the i-th has the tags of tags(i), and is due i minutes after the first.
func taggedRuns(t testing.TB, v *View, n int, tags func(i int) map[string]string) []Run {
	t.Helper()
	runs := make([]Run, n)
	for i := range runs {
		runs[i] = numbered(i)
		runs[i].Tags, runs[i].State = tags(i), []string{"waiting", "dead"}[i%2]
		runs[i].Next = runs[i].Created.Add(time.Duration(i) * time.Minute)
	}
	write(t, v, runs...)
	return runs
}

// numbered returns a run whose id and creation follow from a number.
func numbered(i int) Run {
	at := time.UnixMilli(1_700_000_000_000 + int64(i)*1000).UTC()
	return Run{ID: fmt.Sprintf("run-%06d", i), Workflow: "order", State: "waiting", Created: at, Updated: at, Input: []byte(`{}`)}
}

// listedIDs lists all pages of a filter, and returns the ids of the runs.
func listedIDs(t testing.TB, v *View, f Filter) (ids []string) {
	t.Helper()
	for {
		p, err := v.List(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range p.Runs {
			ids = append(ids, strings.TrimLeft(strings.TrimPrefix(r.ID, "run-"), "0"))
		}
		if f.After = p.Next; f.After == "" {
			return ids
		}
	}
}

func TestTagsSelectRuns(t *testing.T) {
	v := openTest(t)
	taggedRuns(t, v, 40, func(i int) map[string]string {
		switch {
		case i%4 == 0:
			return nil
		case i%10 == 3:
			return map[string]string{"city": "Oslo", "size": "large"}
		}
		return map[string]string{"city": "Oslo"}
	})
	write(t, v, func() Run {
		r := numbered(50)
		r.Workflow, r.Tags = "bill", map[string]string{"size": "large"}
		return r
	}())
	index(t, v)
	for name, c := range map[string]struct {
		filter Filter
		want   string
	}{
		"one tag":                {Filter{Tags: []string{"size=large"}}, "50 33 23 13 3"},
		"two tags":               {Filter{Tags: []string{"city=Oslo", "size=large"}}, "33 23 13 3"},
		"the rare tag first":     {Filter{Tags: []string{"size=large", "city=Oslo"}}, "33 23 13 3"},
		"pages":                  {Filter{Tags: []string{"size=large"}, Limit: 2}, "50 33 23 13 3"},
		"oldest first":           {Filter{Tags: []string{"size=large"}, Order: Oldest, Limit: 2}, "3 13 23 33 50"},
		"by the end of the wait": {Filter{Tags: []string{"size=large"}, Order: Soonest, Limit: 1}, "3 13 23 33"},
		"and a workflow":         {Filter{Tags: []string{"size=large"}, Workflow: "bill"}, "50"},
		"and a state":            {Filter{Tags: []string{"size=large"}, States: []string{"waiting"}}, "50"},
		"and a time":             {Filter{Tags: []string{"size=large"}, Since: numbered(14).Created, Until: numbered(33).Created}, "23"},
		"and words":              {Filter{Tags: []string{"size=large"}, Search: "oslo"}, "33 23 13 3"},
		"another value":          {Filter{Tags: []string{"size=small"}}, ""},
		"a part of a value":      {Filter{Tags: []string{"size=larg"}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := strings.Join(listedIDs(t, v, c.filter), " "); got != c.want {
				t.Errorf("List(%+v) = %s, want %s", c.filter, got, c.want)
			}
		})
	}
}

func TestTagsChangeAndGo(t *testing.T) {
	v := openTest(t)
	r := numbered(1)
	large, small := Filter{Tags: []string{"size=large"}}, Filter{Tags: []string{"size=small"}}
	expect := func(when, wantLarge, wantSmall string) {
		t.Helper()
		gotLarge, gotSmall := strings.Join(listedIDs(t, v, large), " "), strings.Join(listedIDs(t, v, small), " ")
		if gotLarge != wantLarge || gotSmall != wantSmall {
			t.Errorf("%s: large %q and small %q, want %q and %q", when, gotLarge, gotSmall, wantLarge, wantSmall)
		}
	}
	write(t, v, r)
	r.Tags = map[string]string{"size": "large", "city": "Oslo"}
	write(t, v, r)
	expect("after the first tag", "1", "")
	r.Tags = map[string]string{"size": "small"}
	write(t, v, r)
	expect("after a change", "", "1")
	r.Tags = map[string]string{}
	write(t, v, r)
	expect("after the tags were removed", "", "")
	r.Tags = map[string]string{"size": "large"}
	write(t, v, r)
	if err := v.Write(t.Context(), Batch{Cursor: v.Cursor() + 1, Delete: []string{r.ID}}); err != nil {
		t.Fatal(err)
	}
	again := numbered(1)
	write(t, v, again) // it gets the place of the deleted run
	expect("after the run was deleted", "", "")
}

func TestStatusAndTagsAreStored(t *testing.T) {
	path := filepath.Join(t.TempDir(), "view.db")
	v, err := Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	small, large := numbered(1), numbered(2)
	for _, r := range []*Run{&small, &large} {
		r.Status, r.Tags = "packing 3 of 7", map[string]string{"city": "Oslo", "size": "ümlaut = 1"}
	}
	large.Detail = make([]byte, 5000)
	write(t, v, small, large, numbered(3))
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
	if v, err = Open(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	for _, want := range []Run{small, large} {
		got, ok, err := v.Get(t.Context(), want.ID)
		if err != nil || !ok || got.Status != want.Status || fmt.Sprint(got.Tags) != fmt.Sprint(want.Tags) || len(got.Detail) != len(want.Detail) {
			t.Errorf("Get(%s) = %+v, %v, %v", want.ID, got, ok, err)
		}
	}
	if got, _, err := v.Get(t.Context(), numbered(3).ID); err != nil || got.Status != "" || got.Tags != nil {
		t.Errorf("a run without status and tags has %q and %v: %v", got.Status, got.Tags, err)
	}
	index(t, v)
	if got := listedIDs(t, v, Filter{Search: "packing"}); !slices.Equal(got, []string{"2", "1"}) {
		t.Errorf("a search for a word of the status finds %v", got)
	}
	large.Status = "shipping"
	write(t, v, large)
	index(t, v)
	if got := listedIDs(t, v, Filter{Search: "packing"}); !slices.Equal(got, []string{"1"}) {
		t.Errorf("after a change of the status, a search finds %v", got)
	}
	if got := listedIDs(t, v, Filter{Tags: []string{"size=ümlaut = 1"}}); !slices.Equal(got, []string{"2", "1"}) {
		t.Errorf("after the file was opened again, a tag selects %v", got)
	}
}

func TestOlderFilesGetTags(t *testing.T) {
	path := filepath.Join(t.TempDir(), "view.db")
	v, err := Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	write(t, v, numbered(1))
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
	c, err := sqlite.OpenConn(path, sqlite.OpenReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	if err := sqlitex.ExecuteScript(c, "DROP TABLE tags;", nil); err != nil { // as the version before left it
		t.Fatal(err)
	}
	if err := errors.Join(c.Close(), os.Remove(path+sumSuffix)); err != nil { // older versions have no checksums
		t.Fatal(err)
	}
	if v, err = Open(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	r := numbered(2)
	r.Tags = map[string]string{"size": "large"}
	write(t, v, r)
	if got := listedIDs(t, v, Filter{}); v.Rebuilt() != "" || len(got) != 2 {
		t.Errorf("the file was replaced (%s), or lost runs: %v", v.Rebuilt(), got)
	}
	if got := listedIDs(t, v, Filter{Tags: []string{"size=large"}}); len(got) != 1 {
		t.Errorf("a tag selects %v", got)
	}
}

func TestTagListsReadOneIndex(t *testing.T) {
	v := openTest(t)
	taggedRuns(t, v, 10, func(int) map[string]string { return map[string]string{"size": "large"} })
	s, _, err := v.names.resolve(Filter{Tags: []string{"size=large", "city=Oslo"}, States: []string{"waiting"}})
	if err != nil {
		t.Fatal(err)
	}
	err = v.read(t.Context(), "plan", func(c *sqlite.Conn) error {
		return sqlitex.ExecuteTransient(c, "EXPLAIN QUERY PLAN "+s.tagQuery(), &sqlitex.ExecOptions{ResultFunc: func(st *sqlite.Stmt) error {
			plan := st.ColumnText(3)
			t.Log(plan)
			if strings.Contains(plan, "SCAN") || strings.Contains(plan, "TEMP B-TREE") {
				t.Errorf("the list reads or sorts more than a page: %s", plan)
			}
			return nil
		}})
	})
	if err != nil {
		t.Fatal(err)
	}
}
