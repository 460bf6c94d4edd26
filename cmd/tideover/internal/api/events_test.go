package api

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/client"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/engine/journal/memlog"
	"github.com/tideover/tideover/internal/console/control"
	"github.com/tideover/tideover/internal/testwait"
	"github.com/tideover/tideover/retry"
)

// opened is an open event stream that a test reads message by message.
type opened struct {
	t    *testing.T
	resp *http.Response
	in   *bufio.Reader
}

func (f *fixture) open(path string, header ...string) *opened {
	f.t.Helper()
	r, err := http.NewRequestWithContext(f.t.Context(), http.MethodGet, "http://tideover"+Prefix+path, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", f.socket)
	}}
	resp, err := transport.RoundTrip(r)
	if err != nil || resp.StatusCode != http.StatusOK {
		f.t.Fatalf("GET %s: %+v, %v", path, resp, err)
	}
	f.t.Cleanup(func() { _ = resp.Body.Close() })
	if kind := resp.Header.Get("Content-Type"); kind != "text/event-stream" {
		f.t.Fatalf("GET %s: Content-Type %q", path, kind)
	}
	return &opened{f.t, resp, bufio.NewReader(resp.Body)}
}

// message is an event of a stream.
type message struct{ id, name, data string }

// read reads a message, up to the empty line that ends it.
func (o *opened) read() (m message, err error) {
	for {
		line, err := o.in.ReadString('\n')
		if err != nil || line == "\n" {
			return m, err
		}
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch name {
		case "id":
			m.id = value
		case "event":
			m.name = value
		case "data":
			m.data += value
		}
	}
}

// next returns the next message with data. It skips heartbeats.
func (o *opened) next() message {
	o.t.Helper()
	for {
		m, err := o.read()
		if err != nil {
			o.t.Fatalf("the stream ended: %v", err)
		}
		if m.data != "" {
			return m
		}
	}
}

func TestFeedbackOfARunFromItsStart(t *testing.T) {
	t.Parallel()
	f := serve(t)
	c := f.client()
	id := f.start("flaky", `{"fail":2,"text":"boom"}`)
	var live, after []string
	end, err := c.Follow(t.Context(), id, func(e control.Event) { live = append(live, e.Kind.String()+": "+e.Message) })
	if err != nil || end.State != "succeeded" || string(end.Output) != `"did boom"` {
		t.Fatalf("end: %+v, %v", end, err)
	}
	want := []string{
		"run-started: Run started by tester",
		"attempt-started: Attempt 1/4 of do started",
		"attempt-failed: Attempt 1/4 of do failed: boom",
		"waiting: Retry 1/3 after error: boom",
		"attempt-started: Attempt 2/4 of do started",
		"attempt-failed: Attempt 2/4 of do failed: boom",
		"waiting: Retry 2/3 after error: boom",
		"attempt-started: Attempt 3/4 of do started",
		"succeeded: Attempt 3/4 of do succeeded",
		"succeeded: Run succeeded",
	}
	if !slices.Equal(live, want) {
		t.Errorf("live:\n%s\nwant:\n%s", strings.Join(live, "\n"), strings.Join(want, "\n"))
	}
	if _, err := c.Follow(t.Context(), id, func(e control.Event) { after = append(after, e.Kind.String()+": "+e.Message) }); err != nil || !slices.Equal(after, want) {
		t.Errorf("afterwards, %v:\n%s", err, strings.Join(after, "\n"))
	}
	_, err = c.Follow(t.Context(), "unknown", func(control.Event) {})
	if !isCode(err, control.CodeNotFound) {
		t.Errorf("of a run that does not exist: %v", err)
	}
}

func TestFeedbackCountsAnewAfterARetryByHand(t *testing.T) {
	t.Parallel()
	f := serve(t)
	c := f.client()
	id := f.start("never", `{"fail":3,"text":"boom"}`)
	f.over(id)
	if _, err := c.Retry(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	var got []string
	if _, err := c.Follow(t.Context(), id, func(e control.Event) {
		if e.Kind == retry.AttemptStarted || e.Kind == retry.Waiting || e.Kind == retry.GaveUp || e.Kind == retry.Resumed {
			got = append(got, e.Message)
		}
	}); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"Attempt 1/2 of do started", "Retry 1/1 after error: boom", "Attempt 2/2 of do started", "Step do gave up: attempts used up; boom",
		"Run resumed by tester", "Attempt 3 of do started", "Retry 1/1 after error: boom", "Attempt 4 of do started",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestRunEventsResumeAfterLastEventID(t *testing.T) {
	t.Parallel()
	f := serve(t)
	id := f.start("flaky", `{"fail":1,"text":"boom"}`)
	f.over(id)
	var all []message
	s := f.open("runs/" + id + "/events")
	for {
		m := s.next()
		if all = append(all, m); m.name == "end" {
			break
		}
	}
	for i, m := range all[:len(all)-1] {
		s := f.open("runs/"+id+"/events", "Last-Event-ID", m.id)
		if next := s.next(); next.data != all[i+1].data {
			t.Errorf("after %s (%s): %s, want %s", m.id, m.data, next.data, all[i+1].data)
		}
	}
	for _, id2 := range []string{"x", "5", "5.x", "-"} {
		if got := f.ask(false, "GET", Prefix+"runs/"+id+"/events", "", "Last-Event-ID", id2); got.status != 400 {
			t.Errorf("Last-Event-ID %q: %d %s", id2, got.status, got.text)
		}
	}
}

func TestProgressIsFeedback(t *testing.T) {
	t.Parallel()
	f := serve(t)
	id := f.start("gate", `{"text":"progress"}`)
	var got []string
	end, err := f.client().Follow(t.Context(), id, func(e control.Event) {
		if e.Kind == retry.Progressed {
			got = append(got, e.Message)
			close(f.gate)
		}
	})
	if err != nil || end.State != "succeeded" || len(got) != 1 || got[0] != `Attempt 1/2 of wait: {"percent":50}` {
		t.Errorf("%+v, %v, %q", end, err, got)
	}
}

func TestEventsResumeAfterLastEventID(t *testing.T) {
	t.Parallel()
	f := serve(t)
	for range 3 {
		f.over(f.start("echo", `1`))
	}
	s := f.open("events?after=0")
	var all []message
	for range 12 { // three runs of four events: run started, attempt started, step succeeded, run succeeded
		all = append(all, s.next())
	}
	for i, m := range all[:len(all)-1] {
		for _, again := range []*opened{f.open("events", "Last-Event-ID", m.id), f.open("events?after=" + m.id), f.open(fmt.Sprintf("events?after=%d", i+1))} {
			if next := again.next(); next.id != all[i+1].id || next.data != all[i+1].data {
				t.Errorf("after %s: %+v, want %+v", m.id, next, all[i+1])
			}
		}
	}
	again := f.open("events", "Last-Event-ID", "12-another")
	if m := again.next(); m.name != "missed" || !strings.Contains(m.data, "was restarted") {
		t.Errorf("of another process: %+v", m)
	}
	if m := again.next(); m.data != all[0].data {
		t.Errorf("of another process, next: %+v", m)
	}
	for query, field := range map[string]string{
		"after=x": "after", "after=18446744073709551615": "after", "kind=nothing": "kind", "follow=maybe": "follow", "from=1": "from",
	} {
		if got := f.ask(false, "GET", Prefix+"events?"+query, ""); got.status != 400 || got.problem(t).Field != field {
			t.Errorf("%s: %d %s", query, got.status, got.text)
		}
	}
	if got := f.ask(false, "GET", Prefix+"events?run=unknown", ""); got.status != 404 {
		t.Errorf("of a run that does not exist: %d %s", got.status, got.text)
	}
}

func TestEventsAreFiltered(t *testing.T) {
	t.Parallel()
	f := serve(t)
	echo, dead := f.start("echo", `1`), f.start("never", `{"fail":9,"text":"x"}`)
	f.over(echo)
	f.over(dead)
	for _, c := range []struct {
		name string
		wish client.EventFilter
		want int
	}{
		{"all", client.EventFilter{}, 12},
		{"of a run", client.EventFilter{Run: echo}, 4},
		{"of a workflow", client.EventFilter{Workflow: "never"}, 8},
		{"of a kind", client.EventFilter{Kinds: []string{"gave-up", "waiting"}}, 3},
		{"of everything", client.EventFilter{Run: dead, Workflow: "echo"}, 0},
	} {
		c.wish.After, c.wish.Once = "0", true
		n := 0
		if err := f.client().Events(t.Context(), c.wish, func(control.Event) bool { n++; return true }, nil); err != nil || n != c.want {
			t.Errorf("%s: %d, %v; want %d", c.name, n, err, c.want)
		}
	}
}

func TestSlowReadersGetAMissedEvent(t *testing.T) {
	t.Parallel()
	f := serve(t, func(_ *fixture, cfg *engine.Config) {
		cfg.Log = (&memlog.Store{Shards: 1, Silence: time.Hour}).Join("it") // in memory: on a disk, so many runs would take too long
	})
	first := f.start("echo", `1`)
	f.over(first)
	const runs = 2200 // each has four events; together they are more than the engine keeps
	done := make(chan error)
	for range 8 {
		go func() {
			for range runs / 8 {
				w, _ := f.engine.Workflow("echo")
				if _, err := f.engine.Start(t.Context(), w, 1); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range 8 {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	testwait.Until(t, "all runs", func() bool {
		s, err := f.engine.Stats(t.Context())
		return err == nil && s.Workflows[0].Totals.Succeeded == runs+1
	})
	var missed control.Missed
	n := 0
	err := f.client().Events(t.Context(), client.EventFilter{After: "1", Once: true}, func(control.Event) bool { n++; return true }, func(m control.Missed) { missed = m })
	if err != nil || missed.Count == 0 || n == 0 || missed.Count+uint64(n) != 4*(runs+1)-1 {
		t.Errorf("%d events, missed %+v, %v; want %d in all", n, missed, err, 4*(runs+1)-1)
	}
}

func TestAClientOutlivesTheServer(t *testing.T) {
	t.Parallel()
	f := serve(t)
	c := f.client()
	interrupted := make(chan struct{}, 100)
	c.OnReconnect = func(error, time.Duration) { interrupted <- struct{}{} }
	id := f.start("gate", `{}`)
	type result struct {
		text string
		err  error
	}
	results := make(chan result, 3)
	events := make(chan string, 100)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		out, err := c.Result(t.Context(), id)
		results <- result{string(out), err}
	}()
	go func() {
		end, err := c.Follow(t.Context(), id, func(e control.Event) { events <- e.Kind.String() })
		results <- result{string(end.Output), err}
	}()
	seen := make(chan string, 100)
	go func() {
		err := c.Events(ctx, client.EventFilter{}, func(e control.Event) bool { seen <- e.Kind.String(); return true }, func(control.Missed) { seen <- "missed" })
		results <- result{"", err}
	}()
	for _, want := range []string{"run-started", "attempt-started"} {
		if got := <-events; got != want {
			t.Fatalf("event %s, want %s", got, want)
		}
	}
	// After a restart, a stream continues after the last event that it has received. So wait until it
	// has received one.
	testwait.Until(t, "the stream of all events is open", func() bool {
		f.start("gate", `{}`)
		return len(seen) > 0
	})
	f.close()
	for range 3 {
		<-interrupted
	}
	f.listen(f.tcp)
	close(f.gate)
	for range 2 {
		if r := <-results; r.err != nil || r.text != `"through"` {
			t.Errorf("result %q, %v", r.text, r.err)
		}
	}
	for _, want := range []string{"succeeded", "succeeded"} {
		if got := <-events; got != want {
			t.Errorf("event %s, want %s", got, want)
		}
	}
	for got := ""; got != "succeeded"; got = <-seen { // the event of the engine, which was not restarted
		if got != "" && got != "missed" && got != "attempt-started" && got != "run-started" {
			t.Errorf("event %s", got)
		}
	}
	cancel()
	if r := <-results; !errors.Is(r.err, context.Canceled) {
		t.Errorf("events: %v", r.err)
	}
}

func TestStreamLimit(t *testing.T) {
	t.Parallel()
	s := eventStream{streams: make(chan struct{}, 1)}
	r := &request{Request: httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil), w: httptest.NewRecorder()}
	_, end, err := s.open(r)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.open(r); !isCode(err, control.CodeBusy) {
		t.Errorf("one too many: %v", err)
	}
	end()
	if _, _, err := s.open(r); err != nil {
		t.Errorf("when there is room again: %v", err)
	}
}
