package view

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/engine/info"
)

// model is the simplest possible implementation of a view, to compare a View with.
type model map[string]Run

func (m model) list(f Filter, found func(*Run) bool) []Run {
	var runs []Run
	for _, r := range m {
		ms := r.Created.UnixMilli()
		switch {
		case len(f.States) > 0 && !slices.Contains(f.States, r.State):
		case f.Workflow != "" && f.Workflow != r.Workflow:
		case f.Error != "" && (r.Error == "" || Pattern(f.Error) != Pattern(r.Error)):
		case !f.Since.IsZero() && ms < f.Since.UnixMilli():
		case !f.Until.IsZero() && ms >= f.Until.UnixMilli():
		case r.Attempts < f.MinAttempts:
		case slices.ContainsFunc(f.Tags, func(tag string) bool { name, value, _ := strings.Cut(tag, "="); return r.Tags[name] != value }):
		case f.Order == Soonest && r.Next.IsZero():
		case !found(&r):
		default:
			r.Detail, r.Input, r.Output = nil, preview(r.Input), preview(r.Output)
			runs = append(runs, r)
		}
	}
	slices.SortFunc(runs, func(a, b Run) int {
		switch f.Order {
		case Oldest:
			return a.Created.Compare(b.Created)
		case Soonest:
			return cmp.Or(a.Next.Compare(b.Next), a.Created.Compare(b.Created))
		default:
			return b.Created.Compare(a.Created)
		}
	})
	return runs
}

// findsWords reports whether a search for words must find a run.
func findsWords(search string, stems bool) func(*Run) bool {
	return func(r *Run) bool {
		var have []string
		wordsOf(r, func(w string) bool {
			have = append(have, w)
			return true
		})
		all := true
		words(search, func(w string) bool {
			all = all && slices.ContainsFunc(have, func(h string) bool {
				return h == w || stems && len(w) >= minStem && strings.HasPrefix(h, w)
			})
			return true
		})
		return all
	}
}

var (
	someStates    = []string{"queued", "running", "waiting", "succeeded", "dead", "odd\x00state"}
	someWorkflows = []string{"ship-order", "bill", "", "é\xff"}
	someErrors    = []string{"", "", "status 503 after 20ms", "status 404 after 1.5s", `no such file "a"`, "x\x00\xffy"}
	someTags      = []string{"pack", "Bern", "a=b", "\x00\xff"}
	someInputs    = []string{"", `{"city":"Zürich"}`, `{"city":"Bern","n":1}`, "\x00\xff\xfe", `"🌊 wave"`, strings.Repeat("big ", 900)}
)

// someRun returns the n-th run of a random history. Each has a millisecond of its
// own, so that the order is certain; some have ids that are no ULID of it.
func someRun(rnd *rand.Rand, n int) Run {
	pick := func(s []string) string { return s[rnd.IntN(len(s))] }
	created := benchStart.Add(time.Duration(n)*10*time.Millisecond + time.Duration(n%7)*time.Microsecond)
	u := ulid{milli: created.UnixMilli()}
	fill := rand.New(rand.NewPCG(uint64(n), 9))
	for i := range u.rest {
		u.rest[i] = byte(fill.Uint32())
	}
	r := Run{
		ID: u.String(), Workflow: pick(someWorkflows), State: pick(someStates), Created: created,
		Updated: created.Add(time.Duration(rnd.IntN(1e6)) * time.Microsecond), Attempts: rnd.IntN(6),
		Step: pick([]string{"a", "b", ""}), Error: pick(someErrors), Reason: pick([]string{"", "gave up"}),
		Input: []byte(pick(someInputs)), Output: []byte(pick(someInputs)), Detail: []byte(pick(someInputs)),
	}
	switch n % 5 {
	case 1:
		r.ID = fmt.Sprintf("run-%022d", n) // no ULID
	case 2:
		u.milli -= 3
		r.ID = u.String() // of another time
	case 3:
		r.Key = fmt.Sprintf("key-%d", n%30)
	}
	if rnd.IntN(3) == 0 {
		r.Next = created.Add(time.Duration(rnd.IntN(50)) * time.Second)
	}
	if rnd.IntN(3) == 0 {
		r.Ended = r.Updated
	}
	if rnd.IntN(9) == 0 {
		r.ReplacedBy = r.ID
	}
	if n%3 == 0 { // the others never have tags
		r.Status = pick([]string{"", "packing", "Zürich"})
		r.Tags = map[string]string{"phase": pick(someTags), pick([]string{"city", "phase"}): pick(someTags)}
	}
	return r
}

func someFilter(rnd *rand.Rand) Filter {
	f := Filter{Limit: 1 + rnd.IntN(40), Order: []Order{"", Newest, Oldest, Soonest}[rnd.IntN(4)]}
	for range rnd.IntN(3) {
		f.States = append(f.States, someStates[rnd.IntN(len(someStates))])
	}
	maybe := func(n int, set func()) {
		if rnd.IntN(n) == 0 {
			set()
		}
	}
	maybe(3, func() { f.Workflow = someWorkflows[rnd.IntN(len(someWorkflows))] })
	maybe(4, func() { f.Error = someErrors[rnd.IntN(len(someErrors))] })
	maybe(4, func() { f.MinAttempts = rnd.IntN(6) })
	// A view takes the time of creation from the id. Where the two differ, by 3 ms, no
	// limit is between them.
	limit := func() time.Time { return benchStart.Add(time.Duration(10*rnd.IntN(300)+5) * time.Millisecond) }
	maybe(4, func() { f.Since = limit() })
	maybe(4, func() { f.Until = limit() })
	maybe(4, func() { f.Tags = []string{Tag("phase", someTags[rnd.IntN(len(someTags))])} })
	maybe(6, func() { f.Tags = append(f.Tags, Tag("city", someTags[rnd.IntN(len(someTags))])) })
	maybe(3, func() {
		f.Search = []string{"zür", "BERN city", "status", "ship", "wave", "gibtsnicht"}[rnd.IntN(6)]
	})
	return f
}

// all follows a list from its first page to its last.
func all(t *testing.T, v *View, f Filter) []Run {
	t.Helper()
	var runs []Run
	for {
		p, err := v.List(t.Context(), f)
		if err != nil {
			t.Fatalf("List(%+v) = %v", f, err)
		}
		if len(p.Runs) > f.Limit || p.SearchBehind != 0 {
			t.Fatalf("List(%+v) has %d runs and is %d behind", f, len(p.Runs), p.SearchBehind)
		}
		runs = append(runs, p.Runs...)
		if f.After = p.Next; p.Next == "" {
			return runs
		}
	}
}

// steps of a history; under the race detector SQLite is ten times slower.
const steps = 8

func seeds() uint64 {
	if raceEnabled {
		return 1
	}
	return 6
}

func TestViewIsWhatASimpleModelSays(t *testing.T) {
	for seed := range seeds() {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			rnd := rand.New(rand.NewPCG(seed, 7))
			v, m := openTest(t), model{}
			for step := range steps {
				b := Batch{Cursor: uint64(step)}
				for range rnd.IntN(40) {
					r := someRun(rnd, rnd.IntN(300))
					b.Put = append(b.Put, r)
					m[r.ID] = r
				}
				for _, id := range slices.Sorted(maps.Keys(m)) {
					if rnd.IntN(20) == 0 {
						b.Delete = append(b.Delete, id)
						delete(m, id)
					}
				}
				if err := v.Write(t.Context(), b); err != nil {
					t.Fatal(err)
				}
				if rnd.IntN(4) == 0 {
					m.expire(t, v, rnd)
				}
				if rnd.IntN(2) == 0 {
					if _, err := v.Index(t.Context(), rnd.IntN(50)); err != nil {
						t.Fatal(err)
					}
				}
				if step%4 == 3 {
					m.compare(t, v, rnd)
				}
			}
			if got := v.Cursor(); got != steps-1 {
				t.Errorf("Cursor() = %d, want %d", got, steps-1)
			}
			integrity(t, v)
		})
	}
}

func (m model) expire(t *testing.T, v *View, rnd *rand.Rand) {
	t.Helper()
	state, before, want := someStates[rnd.IntN(len(someStates))], benchStart.Add(time.Duration(rnd.IntN(3000))*time.Millisecond), 0
	for id, r := range m {
		if r.State == state && !r.Ended.IsZero() && r.Ended.Before(before) {
			delete(m, id)
			want++
		}
	}
	if got, err := v.Expire(t.Context(), []string{state}, before, 1000); err != nil || got != want {
		t.Fatalf("Expire(%q, %v) = %d, %v, want %d", state, before, got, err, want)
	}
}

func (m model) compare(t *testing.T, v *View, rnd *rand.Rand) {
	t.Helper()
	for {
		if n, err := v.Index(t.Context(), 100); err != nil {
			t.Fatal(err)
		} else if n < 100 {
			break
		}
	}
	for range 30 {
		n := rnd.IntN(300)
		want, is := m[someRun(rnd, n).ID]
		got, ok, err := v.Get(t.Context(), someRun(rnd, n).ID)
		if err != nil || ok != is || !sameRun(got, want) {
			t.Fatalf("Get(%q) = %+v, %v, %v\nwant %+v, %v", want.ID, got, ok, err, want, is)
		}
	}
	for range 12 {
		f := someFilter(rnd)
		found := func(*Run) bool { return true }
		if f.Search != "" {
			found = findsWords(f.Search, len(m.list(f, findsWords(f.Search, false))) == 0)
		}
		got, want := all(t, v, f), m.list(f, found)
		if !slices.EqualFunc(got, want, sameRun) {
			t.Fatalf("List(%+v) = %d runs %v\nwant %d runs %v", f, len(got), idsOf(got), len(want), idsOf(want))
		}
		if f.Order = Oldest; f.Search == "" {
			m.compareGroups(t, v, f, found)
		}
	}
}

func (m model) compareGroups(t *testing.T, v *View, f Filter, found func(*Run) bool) {
	t.Helper()
	type id struct{ pattern, workflow, step string }
	want := map[id]info.Group{}
	for _, r := range m.list(f, found) {
		if r.Error == "" {
			continue
		}
		k := id{Pattern(r.Error), r.Workflow, r.Step}
		g, ok := want[k]
		if !ok {
			g = info.Group{Pattern: k.pattern, Workflow: k.workflow, Step: k.step, First: r.Created}
		}
		g.Error, g.Last = r.Error, r.Created
		g.Count++
		want[k] = g
	}
	groups, err := v.Groups(t.Context(), f, 1000)
	if err != nil || len(groups) != len(want) {
		t.Fatalf("Groups(%+v) = %d groups, %v, want %d", f, len(groups), err, len(want))
	}
	for i, g := range groups {
		if g != want[id{g.Pattern, g.Workflow, g.Step}] || i > 0 && g.Count > groups[i-1].Count {
			t.Fatalf("Groups(%+v)[%d] = %+v, want %+v", f, i, g, want[id{g.Pattern, g.Workflow, g.Step}])
		}
	}
}

func sameRun(a, b Run) bool {
	for _, p := range [][2][]byte{{a.Input, b.Input}, {a.Output, b.Output}, {a.Detail, b.Detail}} {
		if !bytes.Equal(p[0], p[1]) {
			return false
		}
	}
	a.Input, a.Output, a.Detail, b.Input, b.Output, b.Detail = nil, nil, nil, nil, nil, nil
	return reflect.DeepEqual(a, b)
}

func idsOf(runs []Run) (ids []string) {
	for _, r := range runs {
		ids = append(ids, r.ID)
	}
	return ids
}

// integrity checks that the file is sound, that the search index can be read, and that no table
// has data of runs that are gone.
func integrity(t *testing.T, v *View) {
	t.Helper()
	w := <-v.writing
	defer func() { v.writing <- w }()
	s, err := w.conn.Prepare("PRAGMA integrity_check")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Step(); err != nil || s.ColumnText(0) != "ok" {
		t.Errorf("integrity_check = %q, %v", s.ColumnText(0), err)
	}
	s.Reset()
	stored, err := readSegments(w.conn)
	if err != nil || !slices.Equal(stored, w.index.segments) {
		t.Errorf("the table segments has %v, %v, the writer knows %v", stored, err, w.index.segments)
	}
	for _, g := range stored {
		checkSegment(t, w, g)
	}
	for _, q := range []string{
		"SELECT count(*) FROM words WHERE segment NOT IN (SELECT id FROM segments)",
		fmt.Sprintf("SELECT count(*) FROM words WHERE length(data)>%d", maxBlock+maxWord),
		"SELECT count(*) FROM payloads WHERE place NOT IN (SELECT place FROM runs)",
		"SELECT count(*) FROM aside WHERE place NOT IN (SELECT place FROM runs)",
		"SELECT count(*) FROM stale WHERE place NOT IN (SELECT place FROM runs)",
	} {
		if n, err := queryInt(w.conn, q); err != nil || n != 0 {
			t.Errorf("%s = %d, %v, want none", q, n, err)
		}
	}
}

// checkSegment checks that the words of a segment are in order, and that their places are in order
// and in its range.
func checkSegment(t *testing.T, w *writer, g segment) {
	t.Helper()
	in, err := openInput(w.conn, g)
	if err != nil {
		t.Fatal(err)
	}
	defer in.rows.Finalize()
	runs, word, last := map[int64]bool{}, "", int64(minPlace)
	for {
		if err := in.read(); err != nil {
			t.Fatalf("segment %d: %v", g.id, err)
		}
		if in.ended {
			break
		}
		if string(in.word) != word {
			last = minPlace
		}
		places, err := appendPlaces(nil, g.first, in.list)
		if err != nil || string(in.word) < word || !slices.IsSorted(places) || places[0] <= last ||
			places[0] < g.first || places[len(places)-1] > g.last {
			t.Fatalf("segment %v: %q with %v, %v after %q with %d", g, in.word, places, err, word, last)
		}
		for _, p := range places {
			runs[p] = true
		}
		word, last = string(in.word), places[len(places)-1]
	}
	if int64(len(runs)) > g.runs {
		t.Errorf("segment %v has %d runs", g, len(runs))
	}
}
