package web

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/internal/testwait"
)

// listen opens a stream and returns a channel with the event name and the data of each message. The
// last message is "end".
func (b *testSite) listen(path string) <-chan [2]string {
	b.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	b.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, "GET", b.srv.URL+path, nil)
	if err != nil {
		b.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		b.Fatal(err)
	}
	if got := resp.Header.Get("Content-Type"); got != "text/event-stream" {
		b.Fatalf("GET %s: Content-Type %q", path, got)
	}
	messages := make(chan [2]string, 1000)
	go func() {
		defer resp.Body.Close()
		for in := bufio.NewReader(resp.Body); ; {
			event, data := read(in)
			messages <- [2]string{event, data}
			if event == "end" {
				return
			}
		}
	}()
	return messages
}

// hear waits for a message of the event that contains the texts, and returns the number of messages
// before it.
func hear(t *testing.T, messages <-chan [2]string, event string, want ...string) (before int) {
	t.Helper()
	for ; ; before++ {
		m := testwait.Receive(t, fmt.Sprintf("message %q with %q", event, want), messages)
		found := m[0] == event
		for _, w := range want {
			found = found && strings.Contains(m[1], w)
		}
		if found {
			return before
		}
		if m[0] == "end" {
			t.Fatalf("the stream ended before %q %q", event, want)
		}
	}
}

func TestTheListFollows(t *testing.T) {
	t.Parallel()
	b := newTestSite(t)
	m := b.listen("/live/runs?workflow=slow")
	hear(t, m, "", "No runs match")
	id := b.start("slow", job{Fail: 1, Error: "no route"})
	hear(t, m, "", `id="r-`+id+`"`, "waiting", "no route", "by policy")
	b.act(id, "wake")
	hear(t, m, "", `id="r-`+id+`"`, "succeeded")
}

// real clock: the pause between two messages is at least the pace. A slow machine has
// more time for the same number of messages.
func TestEventsAreGathered(t *testing.T) {
	t.Parallel()
	b := newTestSite(t)
	b.h.Pace, b.h.Beat = 200*time.Millisecond, time.Hour
	start := time.Now()
	m := b.listen("/live/runs")
	for range 40 {
		b.start("quick", job{Fail: 2})
	}
	before := hear(t, m, "", `succeeded <span class="count">40</span>`)
	if limit := int(time.Since(start)/b.h.Pace) + 1; before > limit {
		t.Errorf("%d messages in %v, want at most %d", before, time.Since(start), limit)
	}
}

func TestTheRunFollows(t *testing.T) {
	t.Parallel()
	b := newTestSite(t)
	b.h.Pace = 20 * time.Millisecond
	id := b.start("slow", job{Fail: 1})
	b.until(id, "waiting")
	m := b.listen("/live/runs/" + id)
	hear(t, m, "", "Next attempt", "◐")
	b.act(id, "wake")
	hear(t, m, "", "✓", "ended early by")
}

func TestDeadLettersFollow(t *testing.T) {
	t.Parallel()
	b := newTestSite(t)
	m := b.listen("/live/dead")
	hear(t, m, "", "No run has given up")
	id := b.start("quick", job{Fail: 3})
	hear(t, m, "", "1 run has given up", `id="r-`+id+`"`, `hx-target="#nav-dead"`)
	b.act(id, "retry")
	hear(t, m, "", "No run has given up")
}

func TestStreamsEndWithTheEngine(t *testing.T) {
	t.Parallel()
	b := newTestSite(t)
	id := b.start("slow", job{Fail: 1})
	streams := []<-chan [2]string{b.listen("/live/runs"), b.listen("/live/dead"), b.listen("/live/runs/" + id)}
	for _, m := range streams {
		hear(t, m, "")
	}
	b.close()
	for _, m := range streams {
		hear(t, m, "end")
	}
	if a := b.request("GET", "/runs", nil); a.status != http.StatusServiceUnavailable {
		t.Errorf("GET /runs afterwards: %d, want 503", a.status)
	}
	if a := b.request("GET", "/live/runs", nil); a.status != http.StatusServiceUnavailable {
		t.Errorf("GET /live/runs afterwards: %d, want 503", a.status)
	}
	testwait.Until(t, "no stream is left", func() bool { return b.h.Open() == 0 })
}

func TestAQuietStreamLives(t *testing.T) {
	t.Parallel()
	b := newTestSite(t)
	b.h.Beat, b.h.Pace = 20*time.Millisecond, time.Millisecond
	id := b.start("slow", job{Fail: 1})
	b.until(id, "waiting")
	waitUntilIdle(t, b.e)
	m := b.listen("/live/runs")
	hear(t, m, "", id)
	for range 3 {
		if n := hear(t, m, "beat"); n > 0 {
			t.Errorf("%d messages, though nothing happened", n)
		}
	}
	// The page of an unfinished run is updated even without events.
	m = b.listen("/live/runs/" + id)
	hear(t, m, "beat")
	hear(t, m, "", id)
}
