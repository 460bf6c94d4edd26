package view

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// named returns a run with an id of its own millisecond.
func named(n int, set func(*Run)) Run {
	created := benchStart.Add(time.Duration(n) * time.Minute)
	r := Run{
		ID: ulid{created.UnixMilli(), [10]byte{byte(n), 1, 2, 3, 4, 5, 6, 7, 8, 9}}.String(), Workflow: "w", State: "queued",
		Created: created, Updated: created,
	}
	set(&r)
	return r
}

func write(t testing.TB, v *View, runs ...Run) {
	t.Helper()
	if err := v.Write(t.Context(), Batch{Cursor: v.Cursor() + 1, Put: runs}); err != nil {
		t.Fatal(err)
	}
}

func index(t testing.TB, v *View) {
	t.Helper()
	if _, err := v.Index(t.Context(), 1<<20); err != nil {
		t.Fatal(err)
	}
}

func TestSearch(t *testing.T) {
	t.Parallel()
	v := openTest(t)
	a := named(1, func(r *Run) { r.Input, r.Key = []byte(`{"city":"Z\u00fcrich","Mail":"ann@example.com"}`), "order-77-x" })
	b := named(2, func(r *Run) { r.Error, r.Workflow = `dial tcp: connection refused`, "bill-customer" })
	c := named(3, func(r *Run) { r.Input = []byte("NUL\x00after \xff\xfe 日本語 🌊") })
	d := named(4, func(r *Run) { r.Input = []byte(strings.Repeat("x", 300) + " tail") })
	write(t, v, a, b, c, d)
	index(t, v)
	names := map[string]string{a.ID: "a", b.ID: "b", c.ID: "c", d.ID: "d"}
	for search, want := range map[string]string{
		"zürich":                       "a",
		"ZÜR":                          "a", // a beginning
		"ürich":                        "",  // no beginning
		"zür exam":                     "a",
		"ann@example.com":              "a",
		"city mail":                    "a", // names of fields, too
		"connection refused":           "b",
		"refused connection bill":      "b", // in any order, in any field
		"zürich refused":               "",
		"after":                        "c", // behind NUL
		"日本":                           "",  // shorter than a beginning must be
		"日本語":                          "c",
		"tail":                         "d",
		strings.Repeat("x", 35):        "d",
		a.ID:                           "a",
		strings.ToLower(a.ID[:9]):      "a",
		a.ID[14:22]:                    "dcba", // a piece that all ids have
		"der-77":                       "a",    // a piece of a key
		"order-77-x":                   "a",
		"!!!":                          "",
		"\x00":                         "",
		`" OR "`:                       "",
		`text : x NEAR(a b) -c ^d * (`: "",
	} {
		p, err := v.List(t.Context(), Filter{Search: search})
		if err != nil {
			t.Errorf("List(%q) = %v", search, err)
		}
		var got string
		for _, r := range p.Runs {
			got += names[r.ID]
		}
		if got != want {
			t.Errorf("List(%q) = %q, want %q", search, got, want)
		}
	}
}

func TestSearchSaysHowFarItIs(t *testing.T) {
	t.Parallel()
	v := openTest(t)
	a := named(1, func(r *Run) { r.Error = "first mistake" })
	look := func(search string, found, behind int) {
		t.Helper()
		p, err := v.List(t.Context(), Filter{Search: search})
		if err != nil || len(p.Runs) != found || p.SearchBehind != behind {
			t.Errorf("List(%q) = %d runs, %d behind, %v, want %d, %d", search, len(p.Runs), p.SearchBehind, err, found, behind)
		}
	}
	write(t, v, a)
	look("mistake", 0, 1)
	index(t, v)
	look("mistake", 1, 0)
	a.State = "running"
	write(t, v, a)
	look("mistake", 1, 0) // the words are the same
	a.Error = "second trouble"
	write(t, v, a)
	look("mistake", 0, 1) // the index has it, but the run does not
	look("trouble", 0, 1)
	index(t, v)
	look("mistake", 0, 0)
	look("trouble", 1, 0)
	write(t, v, named(0, func(r *Run) { r.Error = "trouble before" }))
	look("trouble", 1, 1)
	index(t, v)
	look("trouble", 2, 0)
}

func TestFind(t *testing.T) {
	t.Parallel()
	for _, indexed := range []bool{false, true} {
		t.Run(fmt.Sprint("indexed: ", indexed), func(t *testing.T) {
			t.Parallel()
			v := openTest(t)
			a := named(1, func(r *Run) { r.Key = "order-1/2" })
			b := named(2, func(r *Run) { r.Key = "order-1" })
			c := named(3, func(r *Run) { r.ID = "job.0000000000000000000001" })
			d := named(4, func(r *Run) { r.Key = "--" })
			write(t, v, a, b, c, d)
			if indexed {
				index(t, v)
			}
			for text, want := range map[string][]string{
				a.ID:                     {a.ID},
				a.ID[:9]:                 {a.ID},
				strings.ToLower(b.ID):    {b.ID},
				a.ID[:4]:                 {d.ID, b.ID, a.ID},
				"job.":                   {c.ID},
				c.ID:                     {c.ID},
				"order-1":                {b.ID},
				"order":                  nil,
				"":                       nil,
				strings.Repeat("Z", 26):  nil,
				strings.Repeat("7", 999): nil,
			} {
				if got, err := v.Find(t.Context(), text, 10); err != nil || !slices.Equal(got, want) {
					t.Errorf("Find(%q) = %q, %v, want %q", text, got, err, want)
				}
			}
			if got, err := v.Find(t.Context(), a.ID[:4], 2); err != nil || len(got) != 2 {
				t.Errorf("Find(max 2) = %q, %v", got, err)
			}
		})
	}
}

// FuzzSearch checks that every text can be searched for, and is found in a run that has it.
func FuzzSearch(f *testing.F) {
	for _, s := range []string{"", "a", "order-1", `"`, `*`, "a* OR b", "NEAR(", "\x00", "\xff", "日本語", "01K", "{x:", strings.Repeat("wort ", 50)} {
		f.Add(s)
	}
	v := openTest(f)
	f.Fuzz(func(t *testing.T, text string) {
		r := named(0, func(r *Run) { r.Input, r.Key = []byte(text), text })
		write(t, v, r)
		index(t, v)
		for _, order := range []Order{Newest, Oldest, Soonest} {
			p, err := v.List(t.Context(), Filter{Search: text, Order: order})
			if err != nil {
				t.Fatalf("List(%q) = %v", text, err)
			}
			if want := len(query(text, false)) > 0 && order != Soonest && !strings.Contains(text, `\`) && len(text) < maxText; want && len(p.Runs) != 1 {
				t.Errorf("List(%q) by %s finds %d runs, want the one that has it", text, order, len(p.Runs))
			}
		}
		if ids, err := v.Find(t.Context(), text, 10); err != nil || len(query(text, false)) > 0 && len(text) < maxWord && !slices.Contains(ids, r.ID) {
			t.Fatalf("Find(%q) = %q, %v", text, ids, err)
		}
	})
}

// FuzzAfter checks that every invalid cursor is rejected.
func FuzzAfter(f *testing.F) {
	v := openTest(f)
	fill(f, v, 20, 1)
	p, err := v.List(f.Context(), Filter{Limit: 3})
	if err != nil {
		f.Fatal(err)
	}
	for _, s := range []string{"x", "AAAA", p.Next, p.Next + "A", strings.ToLower(p.Next), strings.Repeat("A", 28), "\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, after string) {
		for _, filter := range []Filter{{}, {Order: Soonest}, {Search: "order", Workflow: "bill-order"}} {
			filter.After = after
			_, err := v.List(t.Context(), filter)
			if err != nil && !errors.Is(err, ErrCursor) {
				t.Fatalf("List(After: %q) = %v", after, err)
			}
			if err == nil && after != "" && len(after) != len(p.Next) {
				t.Fatalf("List(After: %q) was taken", after)
			}
		}
	})
}

func TestCursorOfAnotherListIsRefused(t *testing.T) {
	t.Parallel()
	v := openTest(t)
	fill(t, v, 20, 1)
	p, err := v.List(t.Context(), Filter{Limit: 3})
	if err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]Filter{
		"another order":    {Order: Oldest},
		"another workflow": {Workflow: "bill-order"},
		"a search":         {Search: "order"},
	} {
		f.After = p.Next
		if _, err := v.List(t.Context(), f); !errors.Is(err, ErrCursor) {
			t.Errorf("%s: List() = %v, want ErrCursor", name, err)
		}
	}
	if p, err = v.List(t.Context(), Filter{Limit: 100, After: p.Next}); err != nil || len(p.Runs) != 17 {
		t.Errorf("with another limit: List() = %d runs, %v, want 17", len(p.Runs), err)
	}
	if _, err := v.List(t.Context(), Filter{Order: "upside-down"}); err == nil || !strings.Contains(err.Error(), "upside-down") {
		t.Errorf("List(unknown order) = %v", err)
	}
}
