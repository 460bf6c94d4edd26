package web

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/performance"
	"github.com/chromedp/chromedp"

	"github.com/tideover/tideover/cmd/tideover/internal/admin"
	"github.com/tideover/tideover/cmd/tideover/internal/api"
	"github.com/tideover/tideover/cmd/tideover/internal/httpserver"
	"github.com/tideover/tideover/cmd/tideover/internal/session"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/gateway"
	"github.com/tideover/tideover/internal/secret"
	"github.com/tideover/tideover/internal/testwait"
	"github.com/tideover/tideover/retry"
)

var (
	soakFor  = flag.Duration("soak", 0, "how long pages are kept open by the soak test; 0 means until two of them were updated")
	soakRuns = flag.Int("soak.runs", 200, "how many runs are stored then; one in a hundred is retried all the time")
)

// looks is how often the long test measures a page while it is open.
const looks = 12

// TestPageSoak keeps each page open for a while, on a server with many runs, of which one in a
// hundred fails and is retried all the time. The memory of the browser must not grow, and the browser
// must not get a message for every single event. Without a duration, the test only checks that two pages are updated.
// `make soak-page` runs for minutes with a million runs, and checks the memory and the time of lists.
//
// It is not parallel, since it would also measure the pages of other tests.
func TestPageSoak(t *testing.T) { //nolint:paralleltest // see above
	s := newSoak(t)
	x := open(s.testSite)
	if _, err := chromedp.Call(x.Chromedp(), performance.Enable, performance.EnableParams{}); err != nil {
		t.Fatal(err)
	}
	places := []string{"/overview", "/runs", "/runs/" + s.busy, "/dead", "/providers", "/sessions", "/policies", "/overview"}
	if *soakFor == 0 {
		places = places[:2]
	}
	stays := make([]*stay, len(places))
	for i, path := range places {
		stays[i] = s.stay(x, path, *soakFor/time.Duration(len(places)))
		stays[i].judge(t)
		x.quiet()
	}
	// Visiting other pages must not leak memory.
	begin, end := stays[0], stays[len(stays)-1]
	if long() && (end.part(2).grown(begin.part(0)) || end.private > begin.private+begin.private/2) {
		t.Errorf("/overview after all other pages: %v, %d MB in all; and before %v, %d MB", end.part(2), end.private>>20, begin.part(0), begin.private>>20)
	}
	s.times(t)
}

// long reports whether the test runs long enough to distinguish leaks from garbage.
func long() bool { return *soakFor >= time.Minute }

// soak is the site of an engine that is always busy, with measurements.
type soak struct {
	*testSite
	fleet *fleet
	busy  string       // the run that is retried more often than others
	api   http.Handler // the API of the same engine

	took map[string][]time.Duration // times of the server for each list, by name
}

// limitedAgain is the handler of a session that always hits a limit.
func limitedAgain(context.Context, *engine.Task) ([]byte, error) {
	return nil, errors.New("retry after 2s")
}

func newSoak(t *testing.T) *soak {
	t.Helper()
	s := &soak{testSite: &testSite{T: t}, fleet: &fleet{list: []gateway.Status{fine("openai"), sick("anthropic")}}, took: map[string][]time.Duration{}}
	policy, err := retry.Parse("fixed(1s) attempts=unlimited")
	if err != nil {
		t.Fatal(err)
	}
	spec := &session.Spec{Name: "night", Start: []string{"true"}, Pack: "generic", Policy: policy}
	night, err := spec.Workflow(nil)
	if err != nil {
		t.Fatal(err)
	}
	restless, busy := flowOf(t, "restless", "fixed(20s) jitter=full attempts=unlimited"), flowOf(t, "busy", "fixed(400ms) attempts=unlimited")
	began := time.Now() // real clock: for the log
	retried := max(*soakRuns/100, 10)
	e, _ := full(t, *soakRuns-retried, restless, busy, night)
	// real clock: for the log
	t.Logf("%d runs are stored after %v", *soakRuns-retried, time.Since(began).Round(time.Second))
	manager := &session.Manager{Engine: e}
	s.serve(e, func(o *setup) { o.Providers, o.Sessions = s.fleet, manager })
	s.api = api.New(api.Options{
		Control: admin.New(admin.Config{Engine: e, Sessions: manager}), Guard: httpserver.GuardOptions{Token: secret.New(soakToken)},
	})
	if _, err := manager.Set(t.Context(), []*session.Spec{spec}, []*engine.Workflow{night}); err != nil {
		t.Fatal(err)
	}
	always := job{Fail: 1 << 40, Error: "503 Service Unavailable"}
	for range retried {
		s.begin(restless, always)
	}
	s.busy = s.begin(busy, always)
	s.feed()
	return s
}

func (s *soak) begin(w *engine.Workflow, j job) string {
	s.Helper()
	st, err := s.e.Start(s.Context(), w, j)
	if err != nil {
		s.Fatal(err)
	}
	return st.ID
}

// feed starts runs, some of which die, and changes providers until the test ends.
func (s *soak) feed() {
	quick, _ := s.e.Workflow("quick")
	ctx, cancel := context.WithCancel(s.Context())
	var feeder sync.WaitGroup
	feeder.Go(func() {
		every := 100 * time.Millisecond
		if long() {
			every = 20 * time.Millisecond
		}
		tick := time.NewTicker(every) // real clock: the load; no result depends on how much it is
		defer tick.Stop()
		for n := 0; ctx.Err() == nil; n++ {
			j := job{Name: "fed-" + strconv.Itoa(n)}
			if n%25 == 0 {
				j.Fail, j.Error = 9, fmt.Sprintf("refused by %c", 'a'+n/25%26)
			}
			if _, err := s.e.Start(ctx, quick, j); err != nil && ctx.Err() == nil {
				s.Errorf("start: %v", err)
			}
			s.fleet.change("openai", func(st *gateway.Status) { st.Totals.Requests++; st.Totals.Attempts++; st.InFlight = n % 7 })
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
		}
	})
	s.Cleanup(func() {
		cancel()
		feeder.Wait()
	})
}

// stay has the measurements of a page that was open for a while.
type stay struct {
	path    string
	live    bool
	lasted  time.Duration
	weights []weight
	updates int    // updates that the page received
	asked   int    // requests that the page sent
	events  uint64 // events of the engine in that time
	pace    time.Duration

	private int // private memory of the renderer processes at the end, in bytes; 0 if unknown
}

// stay keeps a page open, and measures it and the lists from time to time.
//
// real clock: a page is open for as long as the flag says. Only the long test checks
// the measurements.
func (s *soak) stay(x *tab, path string, share time.Duration) *stay {
	s.Helper()
	y := &stay{path: path, live: path != "/policies", pace: s.h.Pace}
	if y.live {
		x.live(path)
	} else {
		x.visit(path)
	}
	x.exec(`window.updates = 0; document.addEventListener("htmx:sse:after:message", (e) => { updates++; });`)
	asked := `performance.getEntriesByType("resource").length`
	began, events, requests := time.Now(), s.lastEvent(), eval[int](x, asked)
	if y.live {
		x.Wait("the page is updated", "updates > 0")
	}
	testwait.Until(s, "an event", func() bool { return s.lastEvent() > events })
	y.weights = append(y.weights, x.weigh())
	if len(s.took) == 0 || long() {
		s.measure()
	}
	for time.Since(began) < share {
		time.Sleep(max(share/looks, 250*time.Millisecond))
		y.weights = append(y.weights, x.weigh())
		s.measure()
	}
	y.updates, y.asked = eval[int](x, "updates"), eval[int](x, asked)-requests
	y.lasted, y.events = time.Since(began), s.lastEvent()-events
	y.private = x.private()
	s.Logf("%-10.10s for %v: %d updates and %d requests for %d events; %v; %d MB in all",
		path, y.lasted.Round(time.Second), y.updates, y.asked, y.events, y.parts(), y.private>>20)
	return y
}

// judge checks in the long test that the page did not grow, and got few updates.
func (y *stay) judge(t *testing.T) {
	t.Helper()
	if !long() {
		return
	}
	if limit := int(y.lasted/y.pace) + int(y.lasted/(10*time.Second)) + 2; y.updates > limit || y.asked > 2 {
		t.Errorf("%s: %d updates and %d requests, want at most %d and 2", y.path, y.updates, y.asked, limit)
	}
	if y.part(2).grown(y.part(0)) {
		t.Errorf("%s has grown: %v", y.path, y.parts())
	}
}

// part returns the smallest weight in a third of the time; n is 0, 1 or 2. The smallest weight contains
// the least garbage.
func (y *stay) part(n int) weight {
	third := (len(y.weights) + 2) / 3
	list := y.weights[min(n*third, len(y.weights)-1):min((n+1)*third, len(y.weights))]
	least := list[0]
	for _, w := range list {
		least.heap, least.listeners = min(least.heap, w.heap), min(least.listeners, w.listeners)
		if w.excess() < least.excess() {
			least.nodes, least.loose = w.nodes, w.loose
		}
	}
	return least
}

func (y *stay) parts() string {
	return fmt.Sprintf("%v; %v; %v", y.part(0), y.part(1), y.part(2))
}
