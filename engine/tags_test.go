package engine_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/engine/enginetest"
	"github.com/tideover/tideover/internal/testwait"
	"github.com/tideover/tideover/retry"
)

// tagged is a flow that sets a status and tags around two sleeps.
var tagged = engine.MustFlow("tagged", func(f *engine.Flow, city string) (string, error) {
	engine.SetStatus(f, "packing")
	for name, value := range map[string]string{"city": city, "phase": "pack"} {
		if err := engine.SetTag(f, name, value); err != nil {
			return "", err
		}
	}
	if err := engine.Sleep(f, "pack", time.Hour); err != nil {
		return "", err
	}
	engine.SetStatus(f, "shipping")
	if err := engine.SetTag(f, "phase", "ship"); err != nil {
		return "", err
	}
	if err := engine.Sleep(f, "ship", time.Hour); err != nil {
		return "", err
	}
	return "", engine.SetTag(f, "phase", "")
})

// real clock: enginetest.Test runs the function in a bubble
func TestTagsAreShownAndFilter(t *testing.T) {
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		ids := map[string]string{}
		for _, city := range []string{"Oslo", "Bergen"} {
			run, err := e.Start(t.Context(), tagged, city)
			if err != nil {
				t.Fatal(err)
			}
			ids[run.ID] = city
		}
		expect := func(when, status, tags string) {
			t.Helper()
			for id, city := range ids {
				run, err := e.Get(t.Context(), id)
				if err != nil {
					t.Fatal(err)
				}
				if want := strings.ReplaceAll(tags, "CITY", city); run.Status != status || fmt.Sprint(run.Tags) != want {
					t.Errorf("%s: status %q, tags %v; want %q, %s", when, run.Status, run.Tags, status, want)
				}
			}
		}
		selects := func(want string, tags ...string) {
			t.Helper()
			page, err := e.List(t.Context(), engine.Filter{Tags: tags})
			if err != nil {
				t.Fatal(err)
			}
			found := map[string]bool{}
			for _, run := range page.Runs {
				found[ids[run.ID]+" "+run.Status+" "+run.Tags["phase"]] = true
			}
			if fmt.Sprint(found) != want {
				t.Errorf("List(%q) has %v, want %s", tags, found, want)
			}
		}
		time.Sleep(time.Minute)
		expect("in the first sleep", "packing", "map[city:CITY phase:pack]")
		selects("map[Oslo packing pack:true]", "city=Oslo")
		selects("map[Bergen packing pack:true Oslo packing pack:true]", "phase=pack")
		selects("map[]", "city=Oslo", "phase=ship")
		e.Crash(tagged)
		expect("after a crash", "packing", "map[city:CITY phase:pack]")
		time.Sleep(time.Hour)
		expect("in the second sleep", "shipping", "map[city:CITY phase:ship]")
		selects("map[Oslo shipping ship:true]", "city=Oslo", "phase=ship")
		time.Sleep(time.Hour)
		expect("at the end", "shipping", "map[city:CITY]")
	}, tagged)
}

func TestTagsInTheViewAfterARestart(t *testing.T) {
	dir := t.TempDir()
	open := func() *engine.Engine {
		e, err := engine.Open(t.Context(), engine.Config{Dir: dir, Workflows: []*engine.Workflow{tagged}, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	list := func(e *engine.Engine, f engine.Filter) string {
		f.Fresh = true
		page, err := e.List(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		if len(page.Runs) != 1 {
			return fmt.Sprint(len(page.Runs), " runs")
		}
		return fmt.Sprintf("%s %v %s", page.Runs[0].Status, page.Runs[0].Tags, page.Runs[0].Step)
	}
	e := open()
	done := engine.MustFlow("done", func(f *engine.Flow, _ int) (int, error) { return 1, engine.SetTag(f, "city", "Rome") })
	finished, err := e.Start(t.Context(), done, 1)
	if err == nil {
		_, err = finished.Wait(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	run, err := e.Start(t.Context(), tagged, "Oslo")
	if err != nil {
		t.Fatal(err)
	}
	testwait.Until(t, "the run waits", func() bool {
		i, err := e.Get(t.Context(), run.ID)
		return err == nil && i.State == engine.StateWaiting
	})
	for range 2 {
		if got := list(e, engine.Filter{Tags: []string{"city=Oslo"}}); got != "packing map[city:Oslo phase:pack] pack" {
			t.Errorf("a waiting run: %s", got)
		}
		if got := list(e, engine.Filter{Tags: []string{"city=Rome"}}); got != " map[city:Rome] " {
			t.Errorf("a finished run: %s", got)
		}
		if i, err := e.Get(t.Context(), finished.ID); err != nil || i.Tags["city"] != "Rome" {
			t.Errorf("a finished run has the tags %v: %v", i.Tags, err)
		}
		if err := e.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		e = open()
	}
	if err := e.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestTagsHaveLimits(t *testing.T) {
	var got []string
	w := engine.MustFlow("limits", func(f *engine.Flow, _ int) (int, error) {
		try := func(name, value string) {
			if err := engine.SetTag(f, name, value); err != nil {
				got = append(got, err.Error())
			}
		}
		try("a name", "x")
		try("long", strings.Repeat("x", 129))
		try("lines", "a\nb")
		try("bytes", "\xff")
		for i := range 17 {
			try(fmt.Sprint("n", i), "x")
		}
		try("n3", "y") // no further tag
		try("n4", "")
		try("n17", "x") // there is room again
		return 0, nil
	})
	run := enginetest.Run(t, w, 1)
	want := []string{
		`tag "a name": name: "a name" may have letters, digits, '-', '_' and '.'`,
		`tag "long": value: `, `tag "lines": value: "a\nb" must have at most 128 bytes of UTF-8 without control characters`,
		`tag "bytes": value: "\xff" must`, `tag "n16": the run has 16 tags already`,
	}
	if len(got) != len(want) || len(run.Tags) != 16 || run.Tags["n3"] != "y" || run.Tags["n17"] != "x" {
		t.Fatalf("%d errors and the tags %v:\n%s", len(got), run.Tags, strings.Join(got, "\n"))
	}
	for i := range want {
		if !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("error %q, want %q", got[i], want[i])
		}
	}
}

func TestEventsNameOperations(t *testing.T) {
	w := engine.MustFlow("events", func(f *engine.Flow, _ int) ([]int, error) {
		if _, err := engine.Do(f, "pay", func(context.Context) (int, error) { return 1, nil }, engine.ForKey("a")); err != nil {
			return nil, err
		}
		return engine.Map(f, "hold", []int{7, 8}, func(_ context.Context, i int) (int, error) {
			if i == 8 {
				return 0, retry.Permanent(fmt.Errorf("item %d is gone", i))
			}
			return i, nil
		}, engine.Parallel(1))
	})
	var mu sync.Mutex
	var seen []string
	e, err := engine.Open(t.Context(), engine.Config{
		Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler),
		Observer: func(ev retry.Event) {
			mu.Lock()
			defer mu.Unlock()
			seen = append(seen, fmt.Sprintf("%s %s %d/%d", ev.Kind, ev.Step, ev.Attempt, ev.Attempts))
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	run, err := e.Start(t.Context(), w, 1)
	if err == nil {
		_, err = run.Wait(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Close(t.Context()); err != nil { // after this all events were observed
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	all := strings.Join(seen, "\n")
	for _, want := range []string{"attempt-started pay[a] 1/", "succeeded pay[a] 1/", "succeeded hold#0 1/", "attempt-failed hold#1 1/", "gave-up hold#1 1/"} {
		if !strings.Contains(all, want) {
			t.Errorf("no event %q in\n%s", want, all)
		}
	}
}
