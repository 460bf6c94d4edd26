package storm

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

var rule = Rule{Amplification: 2, For: 30 * time.Second, MinAttempts: 50}

var start = time.Date(2026, 1, 2, 15, 0, 0, 0, time.UTC)

var flow = Subject{"workflow", "order"}

// watchTest is a watch with its counts, second by second.
type watchTest struct {
	watch *Watch
	now   time.Time
	count Count
	told  []string
}

func newWatchTest() *watchTest {
	w := &watchTest{watch: NewWatch(rule), now: start}
	w.sample()
	return w
}

// addLoad adds this many attempts and first attempts in each of the seconds.
func (w *watchTest) addLoad(seconds int, attempts, first uint64) {
	for range seconds {
		w.now = w.now.Add(time.Second)
		w.count.Attempts += attempts
		w.count.First += first
		w.sample()
	}
}

func (w *watchTest) sample() {
	for _, c := range w.watch.Sample(w.now, map[Subject]Count{flow: w.count}) {
		w.told = append(w.told, fmt.Sprintf("%v ended=%v at %v since %v", c.Name, c.Ended, w.now.Sub(start), c.Since.Sub(start)))
	}
}

func TestWatch(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		blow func(*watchTest)
		want []string
	}{
		"no load is no storm":                           {func(w *watchTest) { w.addLoad(600, 0, 0) }, nil},
		"load without retries is no storm":              {func(w *watchTest) { w.addLoad(600, 1000, 1000) }, nil},
		"two attempts for each is the limit":            {func(w *watchTest) { w.addLoad(600, 20, 10) }, nil},
		"few attempts are no storm":                     {func(w *watchTest) { w.addLoad(600, 3, 1) }, nil},
		"a burst is no storm":                           {func(w *watchTest) { w.addLoad(60, 10, 10); w.addLoad(1, 5000, 0); w.addLoad(60, 10, 10) }, nil},
		"half a minute less a second is none":           {func(w *watchTest) { w.addLoad(60, 10, 10); w.addLoad(14, 40, 10); w.addLoad(60, 10, 10) }, nil},
		"a storm is reported once, after it has lasted": {func(w *watchTest) { w.addLoad(300, 30, 10) }, []string{"order ended=false at 32s since 2s"}},
		"retries without new work are a storm":          {func(w *watchTest) { w.addLoad(100, 10, 0) }, []string{"order ended=false at 35s since 5s"}},
		"a storm ends when it was calm for as long": {
			func(w *watchTest) { w.addLoad(60, 30, 10); w.addLoad(60, 10, 10) },
			[]string{"order ended=false at 32s since 2s", "order ended=true at 1m40s since 2s"},
		},
		"a storm that stops altogether ends": {
			func(w *watchTest) { w.addLoad(60, 30, 10); w.addLoad(60, 0, 0) },
			[]string{"order ended=false at 32s since 2s", "order ended=true at 1m45s since 2s"},
		},
		"a storm that hovers at the limit is one": {
			func(w *watchTest) {
				w.addLoad(60, 30, 10)
				for range 20 {
					w.addLoad(10, 19, 10)
					w.addLoad(10, 22, 10)
				}
			},
			[]string{"order ended=false at 32s since 2s"},
		},
		"a gap in the samples is no storm": {
			func(w *watchTest) {
				w.addLoad(20, 30, 10)
				w.now = w.now.Add(time.Hour)
				w.addLoad(29, 30, 10)
			}, nil,
		},
		"counts that begin anew are no storm": {
			func(w *watchTest) { w.addLoad(600, 100, 100); w.count = Count{}; w.addLoad(10, 30, 10) }, nil,
		},
		"a clock that is set back is waited for": {
			func(w *watchTest) { w.addLoad(10, 30, 10); w.now = w.now.Add(-time.Minute); w.addLoad(20, 30, 10) }, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWatchTest()
			c.blow(w)
			if !slices.Equal(w.told, c.want) {
				t.Errorf("told %q, want %q", w.told, c.want)
			}
		})
	}
}

func TestWhoeverIsGoneHasNoStorm(t *testing.T) {
	t.Parallel()
	w := newWatchTest()
	w.addLoad(60, 30, 10)
	if got := w.watch.Storms(); len(got) != 1 || got[0].Subject != flow || got[0].Amplification != 3 || got[0].Attempts != 450 || got[0].Window != 15 {
		t.Errorf("storms %+v", got)
	}
	got := w.watch.Sample(w.now.Add(time.Second), nil)
	if len(got) != 1 || !got[0].Ended || len(w.watch.Storms()) != 0 || len(w.watch.Levels()) != 0 {
		t.Errorf("changes %+v, storms %+v", got, w.watch.Storms())
	}
}

func TestWhoeverIsNewIsCountedFromTheStart(t *testing.T) {
	t.Parallel()
	w := newWatchTest()
	late := Subject{"provider", "p"}
	w.watch.Sample(start.Add(time.Second), map[Subject]Count{late: {Attempts: 60, First: 20}})
	if got := w.watch.Levels()[late]; got != (Level{60, 3}) {
		t.Errorf("level %+v", got)
	}
}

// FuzzWatch looks for storms that begin or end twice, and for impossible levels.
func FuzzWatch(f *testing.F) {
	f.Add(uint64(1), 2.0, int64(30*time.Second), 50)
	f.Add(uint64(2), 1.1, int64(1), 1)
	f.Fuzz(func(t *testing.T, seed uint64, limit float64, lasts int64, least int) {
		r := Rule{min(max(limit, 1.1), 1e6), time.Duration(max(lasts, 1)) % (24 * time.Hour), max(least, 1)}
		rnd := rand.New(rand.NewPCG(seed, 0))
		w, now, on, c := NewWatch(r), start, false, Count{}
		for range 300 {
			now = now.Add(time.Duration(rnd.Int64N(int64(r.For/4) + 2)))
			first := rnd.Uint64N(20)
			c = Count{c.Attempts + first + rnd.Uint64N(60), c.First + first}
			for _, change := range w.Sample(now, map[Subject]Count{flow: c}) {
				if change.Ended != on {
					t.Fatalf("ended %v while there is a storm: %v", change.Ended, on)
				}
				on = !on
			}
			if l := w.Levels()[flow]; l.Amplification < 1 || l.Attempts > c.Attempts || (len(w.Storms()) == 1) != on {
				t.Fatalf("level %+v, storms %v, %v", l, w.Storms(), on)
			}
		}
	})
}
