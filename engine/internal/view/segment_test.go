package view

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/tideover/tideover/internal/textfmt"
)

// withWriter calls f with the writer of a view, in a transaction.
func withWriter(t testing.TB, v *View, f func(*writer) error) {
	t.Helper()
	if err := v.write(t.Context(), "test", f); err != nil {
		t.Fatal(err)
	}
}

// segments returns the segments that the writer knows.
func segments(t testing.TB, v *View) (list []segment) {
	t.Helper()
	withWriter(t, v, func(w *writer) error {
		list = w.index.segments
		return nil
	})
	return list
}

// found returns how many runs a search finds.
func found(t testing.TB, v *View, search string) int {
	t.Helper()
	n, f := 0, Filter{Search: search, Limit: MaxLimit}
	for {
		p, err := v.List(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		n += len(p.Runs)
		if f.After = p.Next; p.Next == "" {
			return n
		}
	}
}

// FuzzSegment checks that every word of a segment is found again with its places, also after the
// segment was merged with another one.
func FuzzSegment(f *testing.F) {
	f.Add("a b ab abc b", uint64(1), 10)
	f.Add(strings.Repeat("often rare"+strings.Repeat("x", 50)+" ", 40), uint64(2), 3000)
	f.Add("\x00 \xff é e\u0301", uint64(3), 1)
	f.Fuzz(func(t *testing.T, text string, seed uint64, runs int) {
		v := openTest(t)
		rnd := rand.New(rand.NewPCG(seed, 1))
		want := map[string][]int64{}
		texts := strings.Split(text, " ")
		fill := func(id int64) segment {
			c := newCollector(collectorSize{})
			place := int64(rnd.IntN(1e9)) - 5e8
			for range min(max(runs, 1), 5000) {
				place += 1 + int64(rnd.Uint64()>>(20+rnd.IntN(44)))
				r := Run{Key: texts[rnd.IntN(len(texts))], Workflow: "all"}
				c.add(place, &r)
				wordsOf(&r, func(w string) bool {
					want[w] = append(want[w], place)
					return true
				})
			}
			var g segment
			withWriter(t, v, func(w *writer) (err error) {
				g, err = c.write(w.conn, id)
				w.index.segments = append(w.index.segments, g)
				return err
			})
			return g
		}
		check := func(g segment) {
			t.Helper()
			withWriter(t, v, func(w *writer) error {
				for word, places := range want {
					slices.Sort(places)
					places = slices.Compact(places)
					got, all, err := g.places(w.conn, searchWord{word, false}, len(places))
					if err != nil || !all || !slices.Equal(got, places) {
						t.Fatalf("%q has the places %v, %v, %v, want %v", word, got, all, err, places)
					}
				}
				if got, all, err := g.places(w.conn, searchWord{"no such word", false}, 0); err != nil || !all || got != nil {
					t.Errorf("a word that is not there has the places %v, %v, %v", got, all, err)
				}
				return nil
			})
		}
		check(fill(1))
		fill(2)
		withWriter(t, v, func(w *writer) error { return w.index.merge(slices.Clone(w.index.segments)) })
		list := segments(t, v)
		if len(list) != 1 {
			t.Fatalf("after the merge there are the segments %v", list)
		}
		check(list[0])
		integrity(t, v)
	})
}

// FuzzBlock checks that a block of any bytes is read or is an error.
func FuzzBlock(f *testing.F) {
	f.Add("word", []byte("\x02\x01\x02\x02\x01x\x01\x00"))
	f.Add("", []byte{0xff})
	f.Fuzz(func(t *testing.T, word string, data []byte) {
		var b blockReader
		b.reset([]byte(word), data)
		for {
			ok, err := b.read()
			if err != nil && !errors.Is(err, ErrDamaged) {
				t.Fatal(err)
			}
			if !ok {
				break
			}
			if _, err := appendPlaces(nil, 0, b.list); err != nil && !errors.Is(err, ErrDamaged) {
				t.Fatal(err)
			}
		}
	})
}

// FuzzWords compares words with a simple implementation.
func FuzzWords(f *testing.F) {
	for _, s := range []string{"", "a B-c", "ÄÖ ü—x", "\xffA\x00b", "日本語 e\u0301 ½", strings.Repeat("Ab1", 30)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var got, want []string
		words(text, func(w string) bool {
			got = append(got, w)
			return true
		})
		for _, w := range strings.FieldsFunc(text[:min(len(text), maxText)], func(r rune) bool {
			return !unicode.IsLetter(r) && !unicode.IsNumber(r) && !unicode.IsMark(r)
		}) {
			want = append(want, textfmt.Truncate(strings.ToLower(w), maxWord))
		}
		if !slices.Equal(got, want) {
			t.Errorf("words(%q) = %q, want %q", text, got, want)
		}
	})
}

func TestWordsEndWhenTheyAreTold(t *testing.T) {
	t.Parallel()
	r := Run{Key: "a b", Workflow: "c", Tags: map[string]string{"x": "d"}, Input: []byte("e f")}
	for most := range 6 {
		n := 0
		wordsOf(&r, func(string) bool {
			n++
			return n <= most
		})
		if n != most+1 {
			t.Errorf("%d words came, want %d", n, most+1)
		}
	}
}

// A word that all runs have fills many blocks. Searches find each run once, in every order,
// although the runs are in several segments whose places overlap.
func TestSearchOverSegments(t *testing.T) {
	t.Parallel()
	v := openTest(t)
	n := 4000
	if raceEnabled {
		n = 200
	}
	all := fill(t, v, n, 1)
	index(t, v)
	for i := range all {
		if i%7 == 0 {
			all[i].Status, all[i].Next = "evening", all[i].Created.Add(1)
		}
	}
	for part := range slices.Chunk(all, 1000) {
		write(t, v, part...)
	}
	index(t, v)
	if got := len(segments(t, v)); got != 2 {
		t.Fatalf("there are %d segments, want 2", got)
	}
	for _, order := range []Order{Newest, Oldest, Soonest} {
		for _, search := range []string{"morning", "mornin", "door evening", "orde even", "morning order 00000777", "morni 00000777 evenin"} {
			f := Filter{Search: search, Order: order, Limit: 300}
			var want []string
			for i, r := range all {
				evening := i%7 == 0 || order != Soonest && !strings.Contains(search, "even")
				if one := strings.Contains(search, "777"); evening && (!one || strings.Contains(string(r.Input), "00000777")) {
					want = append(want, r.ID)
				}
			}
			if order == Newest {
				slices.Reverse(want)
			}
			var got []string
			for {
				p, err := v.List(t.Context(), f)
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, idsOf(p.Runs)...)
				if f.After = p.Next; p.Next == "" {
					break
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("%q by %s finds %d runs, want %d in order", search, order, len(got), len(want))
			}
		}
	}
	integrity(t, v)
}

// A search that finds many runs which the filter excludes goes on with the next run that the filter
// includes.
func TestSearchSkipsRunsThatTheFilterExcludes(t *testing.T) {
	t.Parallel()
	v := openTest(t)
	n := 2500
	if raceEnabled {
		n = 600
	}
	rnd, all := someSource(), make([]Run, n)
	var want []string
	for i := range all {
		all[i] = order(rnd, i, 1)
		if i%(3*maxMisses) == maxMisses+7 || i > n-5 {
			all[i].State, all[i].Tags = "dead", map[string]string{"a": "b"}
			want = append(want, all[i].ID)
		}
	}
	for part := range slices.Chunk(all, 500) {
		write(t, v, part...)
		index(t, v)
	}
	for _, order := range []Order{Oldest, Newest} {
		for name, f := range map[string]Filter{
			"a state": {States: []string{"dead"}},
			"a tag":   {Tags: []string{"a=b"}},
			"a page":  {States: []string{"dead"}, Limit: 2},
		} {
			f.Search, f.Order = "morning door", order
			var got []string
			for {
				p, err := v.List(t.Context(), f)
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, idsOf(p.Runs)...)
				if f.After = p.Next; p.Next == "" {
					break
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s by %s: %d runs, want %d", name, order, len(got), len(want))
			}
		}
		slices.Reverse(want)
	}
	if p, err := v.List(t.Context(), Filter{Search: "morning", States: []string{"gone"}}); err != nil || len(p.Runs) > 0 {
		t.Errorf("a state that no run has: %d runs, %v", len(p.Runs), err)
	}
}

func TestSegmentsAreMerged(t *testing.T) {
	t.Parallel()
	v := openTest(t)
	n := 600
	if raceEnabled {
		n = 100
	}
	for i := range n {
		write(t, v, named(i, func(r *Run) { r.Key = fmt.Sprint("key", i) }))
		if _, err := v.Index(t.Context(), 10); err != nil {
			t.Fatal(err)
		}
	}
	list := segments(t, v)
	runs, levels := int64(0), map[int]int{}
	for _, g := range list {
		runs += g.runs
		levels[g.level()]++
	}
	if most := slices.Max(slices.Collect(maps.Values(levels))); runs != int64(n) || most > mergeCount {
		t.Errorf("the segments %v have %d runs, and there are %d of one level", list, runs, most)
	}
	integrity(t, v)
	if got := found(t, v, "key"); got != n {
		t.Errorf("a search finds %d runs, want %d", got, n)
	}
	if got := found(t, v, "key77"); got != 1 {
		t.Errorf("a search finds %d runs, want 1", got)
	}
}

// The sum of the runs that are merged at once is limited, and some segments are not merged.
func TestLargeSegmentsAreMergedInPairs(t *testing.T) {
	t.Parallel()
	w := writer{}
	for i := range int64(mergeCount) {
		w.index.segments = append(w.index.segments, segment{id: i + 1, runs: 65_000 + i})
	}
	if got := w.index.mergeable(); len(got) != 2 || got[0].runs != 65_000 {
		t.Errorf("mergeable() = %v, want the two smallest", got)
	}
	w.index.old = 1
	if got := w.index.mergeable(); got != nil {
		t.Errorf("mergeable() = %v, although one is being renewed", got)
	}
	w.index.old, w.index.segments = 0, w.index.segments[:mergeCount-1]
	if got := w.index.mergeable(); got != nil {
		t.Errorf("mergeable() = %v, want none of %d", got, len(w.index.segments))
	}
	for i := range int64(mergeCount) {
		w.index.segments = append(w.index.segments, segment{id: i + 100, runs: 70_000})
	}
	if got := w.index.mergeable(); got != nil {
		t.Errorf("mergeable() = %v, although all are large", got)
	}
}

// The words of runs that were deleted or have changed are dropped when they are half of all, in
// several steps, between which searches and writes go on.
func TestSegmentsAreRenewed(t *testing.T) {
	t.Parallel()
	v := openTest(t)
	n := 2400
	all := fill(t, v, n, 1)
	index(t, v)
	gone := Batch{Cursor: v.Cursor() + 1}
	var left []Run
	for i, r := range all {
		if i%4 == 0 {
			left = append(left, r)
		} else {
			gone.Delete = append(gone.Delete, r.ID)
		}
	}
	if err := v.Write(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	for step := range len(left)/100 + 2 {
		left[step].Error = "changed meanwhile"
		write(t, v, left[step])
		if _, err := v.Index(t.Context(), 100); err != nil {
			t.Fatal(err)
		}
		if got := found(t, v, "morning"); got != len(left) {
			t.Fatalf("after step %d a search finds %d runs, want %d", step, got, len(left))
		}
		if step == 1 {
			if err := v.Close(); err != nil {
				t.Fatal(err)
			}
			var err error
			if v, err = Open(t.Context(), v.path); err != nil {
				t.Fatal(err)
			}
			defer v.Close()
		}
	}
	index(t, v)
	runs := int64(0)
	for _, g := range segments(t, v) {
		runs += g.runs
	}
	if runs < int64(len(left)) || runs > int64(len(left))*6/5 {
		t.Errorf("the segments have %d runs, and there are %d", runs, len(left))
	}
	withWriter(t, v, func(w *writer) error {
		if w.index.old != 0 || w.index.outdated >= minOutdated {
			t.Errorf("the state is %+v", w.index.indexState)
		}
		return nil
	})
	integrity(t, v)
	for round := range 6 {
		for i := range left {
			left[i].Status = fmt.Sprint("round ", round)
		}
		write(t, v, left...)
		index(t, v)
	}
	runs = 0
	for _, g := range segments(t, v) {
		runs += g.runs
	}
	if runs > int64(len(left))*4 {
		t.Errorf("the segments have %d runs, after each of %d has changed", runs, len(left))
	}
	if got := found(t, v, "round 5"); got != len(left) {
		t.Errorf("a search finds %d runs, want %d", got, len(left))
	}
}

// A full disk while runs are indexed or segments are merged changes nothing.
func TestFullDiskKeepsTheSearchIndex(t *testing.T) {
	t.Parallel()
	v := openTest(t)
	fill(t, v, 300, 1)
	limit := func(pages int64) {
		t.Helper()
		w := <-v.writing
		defer func() { v.writing <- w }()
		if _, err := queryInt(w.conn, fmt.Sprintf("PRAGMA max_page_count=%d", pages)); err != nil {
			t.Fatal(err)
		}
	}
	limit(1) // which SQLite takes for the number there are
	if _, err := v.Index(t.Context(), 1000); !errors.Is(err, ErrFull) {
		t.Fatalf("Index() = %v, want ErrFull", err)
	}
	if got := segments(t, v); len(got) != 0 {
		t.Errorf("after a failed Index there are the segments %v", got)
	}
	limit(1 << 30)
	for range 3 {
		if _, err := v.Index(t.Context(), 100); err != nil {
			t.Fatal(err)
		}
	}
	limit(1)
	before := segments(t, v)
	err := v.write(t.Context(), "test", func(w *writer) error { return w.index.merge(slices.Clone(w.index.segments)) })
	if got := segments(t, v); !errors.Is(err, ErrFull) || !slices.Equal(got, before) {
		t.Errorf("merge = %v, the segments are %v, want ErrFull and %v", err, got, before)
	}
	limit(1 << 30)
	integrity(t, v)
	if got := found(t, v, "morning"); got != 300 {
		t.Errorf("a search finds %d runs, want 300", got)
	}
}

// A place that another run gets later is not found by the words of the run that had it before.
func TestSearchChecksTheRunsItFinds(t *testing.T) {
	t.Parallel()
	v := openTest(t)
	before := named(1, func(r *Run) { r.Key, r.Next = "before", benchStart })
	write(t, v, before)
	index(t, v)
	after := named(1, func(r *Run) { r.Key, r.Next = "after", benchStart })
	u, _ := parseULID(after.ID)
	for u.rest[0]++; ; u.rest[9]++ {
		if after.ID = u.String(); u.home() == homeOf(before.ID) {
			break
		}
		if u.rest[9] == 255 {
			u.rest[8]++
		}
	}
	if err := v.Write(t.Context(), Batch{Cursor: 2, Delete: []string{before.ID}}); err != nil {
		t.Fatal(err)
	}
	write(t, v, after)
	for range 2 {
		for _, order := range []Order{Newest, Oldest, Soonest} {
			p, err := v.List(t.Context(), Filter{Search: "before", Order: order})
			if err != nil || len(p.Runs) != 0 {
				t.Errorf("a search by %s for the run that was deleted finds %d runs, %v", order, len(p.Runs), err)
			}
		}
		index(t, v)
	}
	if got := found(t, v, "after"); got != 1 {
		t.Errorf("a search for the run finds %d runs", got)
	}
}

func homeOf(id string) int64 {
	u, _ := parseULID(id)
	return u.home()
}

// version2 makes a view one of version 2, which had a table of FTS5.
const version2 = `DROP TABLE words; DROP TABLE segments; DELETE FROM meta WHERE key>2;
	CREATE VIRTUAL TABLE words USING fts5(text, content='', contentless_delete=1, detail=none, tokenize=ascii);
	INSERT INTO words(rowid, text) SELECT place, 'order morning' FROM runs;
	INSERT INTO stale SELECT min(place) FROM runs;
	PRAGMA user_version=2;`

func TestAViewOfVersion2IsIndexedAgain(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ harm, rebuilt string }{
		"sound":           {"", ""},
		"without a table": {"DROP TABLE stale;", "damaged"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := openTest(t)
			fill(t, v, 100, 1)
			index(t, v)
			if err := v.Close(); err != nil {
				t.Fatal(err)
			}
			c, err := sqlite.OpenConn(v.path, sqlite.OpenReadWrite)
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(sqlitex.ExecuteScript(c, version2+tt.harm, nil), c.Close()); err != nil {
				t.Fatal(err)
			}
			if v, err = Open(t.Context(), v.path); err != nil {
				t.Fatal(err)
			}
			defer v.Close()
			if got := v.Rebuilt(); !strings.HasPrefix(got, tt.rebuilt) || (got == "") != (tt.rebuilt == "") {
				t.Errorf("Rebuilt() = %q, want %q", got, tt.rebuilt)
			}
			if tt.rebuilt != "" {
				return
			}
			if p, err := v.List(t.Context(), Filter{Search: "morning"}); err != nil || len(p.Runs) != 0 || p.SearchBehind != 100 {
				t.Errorf("List() = %d runs, %d behind, %v, want all behind", len(p.Runs), p.SearchBehind, err)
			}
			index(t, v)
			if got := found(t, v, "morning"); got != 100 {
				t.Errorf("a search finds %d runs, want 100", got)
			}
			integrity(t, v)
		})
	}
}

func TestDamagedWordsAreTold(t *testing.T) {
	t.Parallel()
	v := openTest(t)
	fill(t, v, 50, 1)
	index(t, v)
	withWriter(t, v, func(w *writer) error {
		return exec(w.conn, "UPDATE words SET data=?", bytes.Repeat([]byte{0xff}, 20))
	})
	if _, err := v.List(t.Context(), Filter{Search: "morning"}); !errors.Is(err, ErrDamaged) {
		t.Errorf("List() = %v, want ErrDamaged", err)
	}
}
