package timeseries

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/retry"
)

// runAt returns an id of a run that was created at the time.
func runAt(at time.Time, n int) string {
	const alphabet = "0123456789abcdefghjkmnpqrstvwxyz"
	text, ms := make([]byte, 10), at.UnixMilli()
	for i := range text {
		text[len(text)-1-i] = alphabet[ms&31]
		ms >>= 5
	}
	return fmt.Sprintf("%s%016d", text, n)
}

// play sends the events of a run to the store: it waits, and then its only attempt takes a time.
func play(s *Store, workflow string, n int, wait, took time.Duration, end retry.EventKind) {
	run := runAt(time.Now(), n)
	s.Observe(retry.Event{Kind: retry.RunStarted, Name: workflow, Run: run, Time: time.Now()})
	time.Sleep(wait)
	for attempt := range 2 { // only the first attempt counts for the wait
		s.Observe(retry.Event{Kind: retry.AttemptStarted, Name: workflow, Run: run, Step: "call", Attempt: attempt + 1, Time: time.Now()})
	}
	time.Sleep(took)
	s.Observe(retry.Event{Kind: end, Name: workflow, Run: run, Step: "call", Time: time.Now()})
	s.Observe(retry.Event{Kind: end, Name: workflow, Run: run, Time: time.Now()})
}

func open(t *testing.T, path string) (*Store, *bytes.Buffer) {
	t.Helper()
	var logged bytes.Buffer
	return Open(path, slog.New(slog.NewTextHandler(&logged, nil))), &logged
}

func chart(t *testing.T, s *Store, workflow, name string) Chart {
	t.Helper()
	c, ok := s.Chart(workflow, name)
	if !ok {
		t.Fatalf("no range %s", name)
	}
	return c
}

// line describes a point without its time.
func line(p Point) string {
	return fmt.Sprintf("%d %d %d %d", p.Started, p.Succeeded, p.Failed, p.Canceled)
}

// near reports whether a duration is as long as wanted, but for the error of the histogram.
func near(got, want time.Duration) bool { return got > want*79/100 && got < want*126/100 }

func TestRunsAreCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, _ := open(t, filepath.Join(t.TempDir(), "charts"))
		for n := range 100 {
			play(s, "order", n, 10*time.Millisecond, time.Duration(1+n/95*19)*100*time.Millisecond, retry.Succeeded)
		}
		play(s, "report", 1, time.Second, time.Second, retry.GaveUp)
		play(s, "report", 2, time.Second, time.Hour+time.Minute, retry.Canceled)
		s.Observe(retry.Event{Kind: retry.BreakerOpened, Name: "gateway/main", Time: time.Now()}) // not of a run
		for name, want := range map[string]string{"hour": "0 0 0 1", "day": "102 100 1 1", "two-weeks": "102 100 1 1"} {
			c := chart(t, s, "", name)
			if got := line(c.Total); got != want {
				t.Errorf("%s: %s, want %s", name, got, want)
			}
			if len(c.Points) != c.Count || !c.Points[0].Time.Add(time.Duration(c.Count)*c.Interval).After(time.Now()) {
				t.Errorf("%s: %d points from %v", name, len(c.Points), c.Points[0].Time)
			}
		}
		c := chart(t, s, "order", "day")
		if got := line(c.Total); got != "100 100 0 0" || c.Merged {
			t.Errorf("a workflow: %s", got)
		}
		if p := c.Total.Took; p.Count != 100 || !near(p.P50, 110*time.Millisecond) || !near(p.P95, 110*time.Millisecond) || !near(p.P99, 2*time.Second) {
			t.Errorf("durations: %+v", p)
		}
		if p := c.Total.Wait; p.Count != 100 || !near(p.P50, 10*time.Millisecond) || !near(p.P99, 10*time.Millisecond) {
			t.Errorf("waits: %+v", p)
		}
		if c := chart(t, s, "nothing", "day"); line(c.Total) != "0 0 0 0" || c.Merged {
			t.Errorf("an unknown workflow: %+v", c.Total)
		}
		if _, ok := s.Chart("", "year"); ok {
			t.Error("there is a range year")
		}
		time.Sleep(longest)
		if got := line(chart(t, s, "", "two-weeks").Total); got != "0 0 0 0" {
			t.Errorf("after two weeks: %s", got)
		}
	})
}

// The numbers beside a chart are about the same runs as its points.
func TestTotalsAgreeWithPoints(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			s, _ := open(t, filepath.Join(t.TempDir(), "charts"))
			random := rand.New(rand.NewPCG(seed, 0))
			for n := range 200 {
				ends := []retry.EventKind{retry.Succeeded, retry.GaveUp, retry.Canceled}
				play(s, "order", n, time.Duration(random.ExpFloat64()*float64(200*time.Microsecond)), time.Duration(random.ExpFloat64()*float64(5*time.Second)), ends[random.IntN(len(ends))])
				time.Sleep(time.Duration(random.ExpFloat64() * float64(time.Duration(seed)*time.Minute)))
			}
			for _, r := range Ranges {
				checkTotal(t, chart(t, s, "order", r.Name))
			}
		})
	}
}

func checkTotal(t *testing.T, c Chart) {
	t.Helper()
	var sum Point
	for _, p := range c.Points {
		sum.Started, sum.Succeeded, sum.Failed, sum.Canceled = sum.Started+p.Started, sum.Succeeded+p.Succeeded, sum.Failed+p.Failed, sum.Canceled+p.Canceled
		sum.Took.Count, sum.Wait.Count = sum.Took.Count+p.Took.Count, sum.Wait.Count+p.Wait.Count
	}
	if line(sum) != line(c.Total) || sum.Took.Count != c.Total.Took.Count || sum.Wait.Count != c.Total.Wait.Count || sum.Took.Count != sum.Succeeded+sum.Failed {
		t.Errorf("%s: the points have %+v together, the total is %+v", c.Name, sum, c.Total)
	}
	for name, of := range map[string]func(Point) (uint64, time.Duration){
		"p50 of durations": func(p Point) (uint64, time.Duration) { return p.Took.Count, p.Took.P50 },
		"p99 of durations": func(p Point) (uint64, time.Duration) { return p.Took.Count, p.Took.P99 },
		"p50 of waits":     func(p Point) (uint64, time.Duration) { return p.Wait.Count, p.Wait.P50 },
		"p95 of waits":     func(p Point) (uint64, time.Duration) { return p.Wait.Count, p.Wait.P95 },
	} {
		var all []time.Duration
		for _, p := range c.Points {
			if n, d := of(p); n > 0 {
				all = append(all, d)
			}
		}
		if n, d := of(c.Total); n > 0 && (d < slices.Min(all) || d > slices.Max(all)) {
			t.Errorf("%s: the %s is %v, but from %v to %v in the points", c.Name, name, d, slices.Min(all), slices.Max(all))
		}
	}
}

// Runs that have no attempt in this process do not keep the waits of other runs from counting.
func TestManyRunsWithoutAnAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, _ := open(t, filepath.Join(t.TempDir(), "charts"))
		for n := range maxPending + 10 {
			s.Observe(retry.Event{Kind: retry.RunStarted, Name: "moved", Run: runAt(time.Now(), n), Time: time.Now()})
		}
		play(s, "order", 2*maxPending, time.Second, time.Second, retry.Succeeded)
		if p := chart(t, s, "order", "hour").Total.Wait; p.Count != 1 || !near(p.P50, time.Second) {
			t.Errorf("waits: %+v", p)
		}
		if n := len(s.pending); n > maxPending {
			t.Errorf("%d runs are kept", n)
		}
	})
}

// Events with times of a clock that was wrong do not count, and do not keep later ones from counting.
func TestAWrongClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, _ := open(t, filepath.Join(t.TempDir(), "charts"))
		for _, off := range []time.Duration{-100 * 24 * time.Hour, time.Hour, 10 * 365 * 24 * time.Hour, -30 * time.Second} {
			s.Observe(retry.Event{Kind: retry.RunStarted, Name: "w", Run: runAt(time.Now(), 1), Time: time.Now().Add(off)})
		}
		for _, r := range Ranges {
			want := "1 0 0 0"
			if r.Interval > time.Hour {
				want = "2 0 0 0" // an hour from now is in the same interval
			}
			if got := line(chart(t, s, "w", r.Name).Total); got != want {
				t.Errorf("%s: %s, want %s", r.Name, got, want)
			}
		}
		// A ring from the future, which the file has, is replaced.
		s.all.at(0, time.Now().Add(time.Hour).UnixNano()/int64(time.Minute)).counts[started] = 7
		s.Observe(retry.Event{Kind: retry.RunStarted, Name: "w", Run: runAt(time.Now(), 2), Time: time.Now()})
		points := chart(t, s, "", "hour").Points
		if last := points[len(points)-1]; last.Started != 1 {
			t.Errorf("now: %d, want 1", last.Started)
		}
	})
}

// The number of series is limited, and so is the size of the file.
func TestTheNumberOfWorkflowsIsLimited(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "charts")
		s, _ := open(t, path)
		name := func(n int) string { return fmt.Sprintf("workflow-%04d", n) }
		for n := range MaxWorkflows + 50 {
			play(s, name(n), n, 0, time.Millisecond, retry.Succeeded)
		}
		if got := line(chart(t, s, Other, "day").Total); got != "50 50 0 0" {
			t.Errorf("the others: %s", got)
		}
		if c := chart(t, s, name(MaxWorkflows), "day"); !c.Merged || c.Total.Started != 0 {
			t.Errorf("a workflow without a series: %v, %+v", c.Merged, c.Total)
		}
		if c := chart(t, s, "", "day"); c.Total.Started != MaxWorkflows+50 {
			t.Errorf("all: %+v", c.Total)
		}
		s.Close()
		again, logged := open(t, path)
		if got := line(chart(t, again, Other, "day").Total); got != "50 50 0 0" || logged.Len() > 0 {
			t.Errorf("after a restart, the others: %s; %s", got, logged)
		}
		// Workflows without runs make room after two weeks.
		time.Sleep(longest + 5*time.Hour)
		play(again, "new", 1, 0, time.Millisecond, retry.Succeeded)
		if c := chart(t, again, "new", "hour"); c.Merged || c.Total.Started != 1 {
			t.Errorf("a new workflow: %v, %+v", c.Merged, c.Total)
		}
		if n := len(again.byName); n != 2 { // and Other
			t.Errorf("%d series", n)
		}
	})
}

// A workflow that has had runs of several lengths in every interval needs few kilobytes in the file,
// so a full store needs less than 2 MB.
func TestTheFileIsSmall(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 18, 12, 0, 0, 0, time.UTC)
	s := &Store{all: new(series), byName: map[string]*series{}}
	fill := func(one *series) {
		for k, r := range Ranges {
			for n := range r.Count {
				i := one.at(k, now.UnixNano()/int64(r.Interval)-int64(n))
				i.counts = [4]uint32{rand.Uint32N(1000), rand.Uint32N(1000), rand.Uint32N(10), rand.Uint32N(10)}
				for range 5 {
					i.took[10+rand.IntN(5)], i.wait[rand.IntN(5)] = rand.Uint32N(100), rand.Uint32N(100)
				}
			}
		}
	}
	const workflows = 20
	fill(s.all)
	for n := range workflows {
		s.byName[fmt.Sprint("workflow-", n)] = new(series)
		fill(s.byName[fmt.Sprint("workflow-", n)])
	}
	data, err := s.stored(now).encode()
	if each := len(data) / (workflows + 1); err != nil || each*MaxWorkflows > 2<<20 {
		t.Errorf("%d bytes for each workflow, %v", each, err)
	}
	again := &Store{all: new(series), byName: map[string]*series{}}
	if err := again.decode(data); err != nil {
		t.Fatal(err)
	}
	for k := range Ranges {
		one, sum := s.byName["workflow-7"].points(k, now)
		same, total := again.byName["workflow-7"].points(k, now)
		if fmt.Sprint(one, sum) != fmt.Sprint(same, total) {
			t.Errorf("%s: got\n%v, want\n%v", Ranges[k].Name, same, one)
		}
	}
}

// A process that is killed loses the events of at most a minute, and a shutdown none.
func TestTheFileIsWrittenEveryMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "charts")
		s, _ := open(t, path)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); s.Run(ctx) }()
		stored := func() uint64 {
			again, logged := open(t, path)
			if logged.Len() > 0 {
				t.Error(logged)
			}
			return chart(t, again, "w", "hour").Total.Succeeded
		}
		play(s, "w", 1, 0, time.Second, retry.Succeeded)
		time.Sleep(saveInterval)
		play(s, "w", 2, 0, time.Second, retry.Succeeded)
		if n := stored(); n != 1 {
			t.Errorf("after a kill: %d, want 1", n)
		}
		cancel()
		<-done
		s.Close()
		if n := stored(); n != 2 {
			t.Errorf("after a shutdown: %d, want 2", n)
		}
		before, _ := os.Stat(path)
		s.Close()
		if after, _ := os.Stat(path); !os.SameFile(before, after) {
			t.Error("the file was written without a change")
		}
	})
}

// A file that is damaged, or of another version, is replaced, and the log says so.
func TestADamagedFile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "charts")
		s, _ := open(t, path)
		play(s, "w", 1, 0, time.Second, retry.Succeeded)
		s.Close()
		good, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		flipped := bytes.Clone(good)
		flipped[len(good)/2] ^= 1
		next, _ := (&storedFile{Version: version + 1}).encode()
		many := &storedFile{Version: version, Series: map[string]storedSeries{}}
		for n := range MaxWorkflows + 2 {
			many.Series[fmt.Sprint(n)] = storedSeries{}
		}
		tooMany, _ := many.encode()
		bucket, _ := (&storedFile{Version: version, All: storedSeries{"hour": {{Took: []uint32{buckets, 1}}}}}).encode()
		for name, data := range map[string][]byte{
			"empty": {}, "no gzip": []byte("{}"), "cut": good[:len(good)-9], "flipped bit": flipped, "version": next, "workflows": tooMany, "bucket": bucket,
		} {
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
			s, logged := open(t, path)
			if !strings.Contains(logged.String(), "the charts begin anew") {
				t.Errorf("%s: logged %q", name, logged)
			}
			if got := line(chart(t, s, "", "hour").Total); got != "0 0 0 0" || !s.since.Equal(time.Now()) {
				t.Errorf("%s: %s since %v", name, got, s.since)
			}
			play(s, "w", 1, 0, time.Second, retry.Succeeded)
			s.Close()
			if again, logged := open(t, path); chart(t, again, "w", "hour").Total.Succeeded != 1 || logged.Len() > 0 {
				t.Errorf("%s: not replaced: %s", name, logged)
			}
		}
	})
}

// A folder that can't be written does not stop the counts, and is logged once.
func TestTheFileCannotBeWritten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "missing")
		s, logged := open(t, filepath.Join(dir, "charts"))
		for n := range 3 {
			play(s, "w", n, 0, time.Second, retry.Succeeded)
			s.save()
		}
		if n := strings.Count(logged.String(), "the charts can't be stored"); n != 1 {
			t.Errorf("%d warnings: %s", n, logged)
		}
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		s.Close() // without another event
		if again, _ := open(t, filepath.Join(dir, "charts")); chart(t, again, "w", "hour").Total.Succeeded != 3 {
			t.Error("the counts are lost")
		}
	})
}

// The time that the id of a run begins with is that of its creation.
func TestTimesInIDsOfRuns(t *testing.T) {
	t.Parallel()
	w, err := engine.NewWorkflow("w", engine.Step("call", func(context.Context, json.RawMessage) (int, error) { return 1, nil }))
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.Open(t.Context(), engine.Config{Dir: t.TempDir(), Durability: engine.OS, Workflows: []*engine.Workflow{w}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = e.Close(context.Background()) }()
	run, err := e.Start(t.Context(), w, 1)
	if err != nil {
		t.Fatal(err)
	}
	info, err := e.Get(t.Context(), run.ID)
	if err != nil {
		t.Fatal(err)
	}
	if at, ok := created(run.ID); !ok || !at.Equal(info.Created.Truncate(time.Millisecond)) {
		t.Errorf("created(%q) = %v, %v, want %v", run.ID, at, ok, info.Created)
	}
	for _, id := range []string{"", "short", "!!!!!!!!!!!!!!!!"} {
		if at, ok := created(id); ok {
			t.Errorf("created(%q) = %v", id, at)
		}
	}
}

// A server without charts has a nil store.
func TestNoStore(t *testing.T) {
	t.Parallel()
	var s *Store
	s.Observe(retry.Event{Kind: retry.RunStarted, Run: "x"})
	s.Run(t.Context())
	s.Close()
	if _, ok := s.Chart("", "hour"); ok {
		t.Error("it has a chart")
	}
}

func FuzzDecode(f *testing.F) {
	for _, text := range []string{`{"version":1}`, `{"version":1,"all":{"hour":[{"i":-1,"n":[1,2,3,4],"d":[47,9]}]},"series":{"w":{"day":[{"i":9223372036854775807,"n":[1]}]}}}`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var file storedFile
		if json.Unmarshal([]byte(text), &file) != nil {
			return
		}
		data, err := file.encode()
		if err != nil {
			return
		}
		s := &Store{all: new(series), byName: map[string]*series{}}
		if s.decode(data) != nil {
			return
		}
		s.since = file.Since
		again, err := s.stored(time.Now()).encode()
		if err != nil {
			t.Fatal(err)
		}
		if err := (&Store{all: new(series), byName: map[string]*series{}}).decode(again); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	})
}
