package gateway

import (
	"bufio"
	"net"
	"testing"
	"time"
)

func TestRequestsFallDueAtEqualDistances(t *testing.T) {
	t.Parallel()
	const n, rate = 50, 2000
	due := make(chan time.Time, n)
	before := time.Now()
	if err := pace(t.Context(), rate, n, due); err != nil {
		t.Fatal(err)
	}
	last := <-due
	if last.Before(before) || last.After(time.Now()) {
		t.Errorf("the first was due at %v, between %v and now", last, before)
	}
	for range n - 1 {
		at := <-due
		if at.Sub(last) != time.Second/rate || at.After(time.Now()) {
			t.Errorf("due at %v, %v after the one before", at, at.Sub(last))
		}
		last = at
	}
}

// A request that had to wait for a connection is measured from its due time:
// everything that a stall delays is in the percentiles.
func TestWaitingForAConnectionCounts(t *testing.T) {
	t.Parallel()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go serveUpstream(l)
	e := endpoint{addr: l.Addr().String()}
	c := &client{addr: e.addr, text: e.get(), end: time.Now().Add(answerTimeout), r: bufio.NewReader(nil)}
	defer c.close()
	const n = 10
	due := make(chan time.Time, n)
	start := time.Now()
	for i := range n {
		due <- start.Add(-time.Duration(n-i) * time.Second)
	}
	close(due)
	var times samples
	if o := answerDue(c, due, &times); o.good != n || o.failed != 0 || len(times.list) != n {
		t.Fatalf("%d good, %d failed, %d times: %v; want %d good", o.good, o.failed, len(times.list), o.why, n)
	}
	for i, got := range times.list {
		if least := time.Duration(n-i) * time.Second; got < least {
			t.Errorf("request %d took %v, and was due %v before it could be sent", i, got, least)
		}
	}
}

func TestFailuresAreCountedAndTheConnectionIsReplaced(t *testing.T) {
	t.Parallel()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go serveUpstream(l)
	e := endpoint{addr: l.Addr().String()}
	wrong := endpoint{addr: e.addr, prefix: "/nowhere"}
	clients, err := dialAll(1, e.addr, wrong.get(), time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(clients)
	var o outcome
	o.record(clients[0].exchange())
	clients[0].text = e.get()
	o.record(clients[0].exchange())
	if o.good != 1 || o.failed != 1 || o.why == nil || o.why.Error() != "answer: HTTP/1.1 404 Not Found" {
		t.Errorf("%d good, %d failed: %v; want one of each, and the status", o.good, o.failed, o.why)
	}
}
