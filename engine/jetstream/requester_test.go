package jetstream

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/tideover/tideover/engine/jetstream/natstest"
	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/internal/testwait"
)

// hold returns a function that never answers, and sends an element to taken for each
// request.
func hold(taken chan<- struct{}) journal.Answer {
	return func([]byte, func([]byte)) { taken <- struct{}{} }
}

func inBackground(do func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- do() }()
	return done
}

func TestACallToAProcessThatIsKilledEndsSoon(t *testing.T) {
	t.Parallel()
	nodes := natstest.SharedNode(t)
	cfg := Config{Replicas: 1, URL: nodes.URL(), Name: newName()}
	owner, caller := openTest(t, cfg), openTest(t, cfg)
	taken := make(chan struct{}, 1)
	if err := mustLease(t, owner, 0).Serve(hold(taken)); err != nil {
		t.Fatal(err)
	}
	var call <-chan error
	natstest.Wait(t, func(context.Context) error {
		call = inBackground(func() error { _, err := caller.Call(t.Context(), 0, nil); return err })
		select {
		case <-taken:
			return nil
		case err := <-call: // no process served yet
			return err
		}
	})
	id := owner.Member()
	owner.kill()
	expel(t, caller, id, caller.backend.timing.gone)
	wantPlain(t, "Call", testwait.Receive(t, "Call of a killed owner", call), "may have been carried out")
}

func TestACallerWithoutConnectionDoesNotWait(t *testing.T) {
	t.Parallel()
	nodes := natstest.Start(t, 1, natstest.WithProxies())
	log := openTest(t, Config{URL: nodes.URL()})
	taken := make(chan struct{}, 1)
	if err := mustLease(t, log, 0).Serve(hold(taken)); err != nil {
		t.Fatal(err)
	}
	call := inBackground(func() error { _, err := log.Call(t.Context(), 0, nil); return err })
	testwait.Receive(t, "the request", taken)
	nodes.CutClients(0)
	wantPlain(t, "Call", testwait.Receive(t, "Call without connection", call), "may have been carried out")
	_, err := log.Call(t.Context(), 0, nil)
	wantErr(t, "the next Call", err, journal.ErrNobody, "not connected")
	nodes.HealClients(0)
}

func TestMoreRequestsThanADeskTakesAreSentAgain(t *testing.T) {
	nodes := natstest.SharedNode(t)
	log := openTest(t, Config{Replicas: 1, URL: nodes.URL()})
	var mu sync.Mutex
	var replies []func([]byte)
	if err := log.Serve(func(_ []byte, reply func([]byte)) {
		mu.Lock()
		defer mu.Unlock()
		replies = append(replies, reply)
	}); err != nil {
		t.Fatal(err)
	}
	const limit, calls = 50, 150
	log.member.requests.mu.Lock()
	log.member.requests.limit = limit
	log.member.requests.mu.Unlock()
	var group sync.WaitGroup
	for range calls {
		group.Go(func() {
			if _, err := log.Ask(t.Context(), log.Member(), nil); err != nil {
				t.Error(err)
			}
		})
	}
	answered := 0
	natstest.Wait(t, func(context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		if answered == 0 && len(replies) < limit {
			return fmt.Errorf("%d requests", len(replies))
		}
		if len(replies) > limit {
			t.Errorf("%d requests are open at once", len(replies))
		}
		for _, reply := range replies {
			reply(nil)
			reply(nil) // once is enough
		}
		answered += len(replies)
		replies = nil
		if answered < calls {
			return fmt.Errorf("%d requests answered", answered)
		}
		return nil
	})
	group.Wait()
}

func TestARequestThatIsTooLargeIsRefused(t *testing.T) {
	t.Parallel()
	nodes := natstest.SharedNode(t)
	log := openTest(t, Config{Replicas: 1, URL: nodes.URL()})
	_, err := log.Call(t.Context(), 0, make([]byte, journal.MaxEntry+1))
	wantErr(t, "Call with too much", err, journal.ErrTooLarge)
}

func TestAMemberIsServedOnce(t *testing.T) {
	t.Parallel()
	nodes := natstest.SharedNode(t)
	log := openTest(t, Config{Replicas: 1, URL: nodes.URL()})
	l := mustLease(t, log, 0)
	answer := func(_ []byte, reply func([]byte)) { reply(nil) }
	for _, s := range []interface{ Serve(journal.Answer) error }{log, l} {
		if err := s.Serve(answer); err != nil {
			t.Fatal(err)
		}
		wantErr(t, "a second Serve", s.Serve(answer), nil, "served already")
	}
}

func TestNoMemberHasAStrangeName(t *testing.T) {
	t.Parallel()
	nodes := natstest.SharedNode(t)
	log := openTest(t, Config{Replicas: 1, URL: nodes.URL()})
	for _, id := range []string{"", "*", ">", "a.b", "a b", "a\r\nPUB x 0\r\n"} {
		_, err := log.Ask(t.Context(), id, nil)
		wantErr(t, fmt.Sprintf("Ask(%q)", id), err, journal.ErrNobody)
	}
}

func TestPartsOfAnAnswer(t *testing.T) {
	t.Parallel()
	part := func(header, text string) *nats.Msg {
		m := &nats.Msg{Data: []byte(text), Header: nats.Header{}}
		if header != "" {
			m.Header.Set(partHeader, header)
		}
		return m
	}
	tests := []struct {
		name  string
		parts []*nats.Msg
		want  string // empty means an error
	}{
		{"one", []*nats.Msg{part("", "a")}, "a"},
		{"two", []*nats.Msg{part("1/2", "a"), part("2/2", "b")}, "ab"},
		{"in another order, one of them twice", []*nats.Msg{part("2/2", "b"), part("2/2", "b"), part("1/2", "a")}, "ab"},
		{"no number", []*nats.Msg{part("x", "a")}, ""},
		{"too high a number", []*nats.Msg{part("3/2", "a")}, ""},
		{"zero", []*nats.Msg{part("0/0", "a")}, ""},
		{"another count", []*nats.Msg{part("1/3", "a"), part("2/2", "b")}, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			q := &requester{prefix: "p.", open: map[string]*call{}}
			c := &call{done: make(chan struct{})}
			q.open["1"] = c
			for _, m := range test.parts {
				m.Subject = "p.1"
				q.receive(m)
			}
			if isOpen(c.done) {
				t.Fatal("it is not whole")
			}
			got, err := c.answer()
			if string(got) != test.want || (err != nil) != (test.want == "") {
				t.Errorf("answer = %q, %v; want %q", got, err, test.want)
			}
		})
	}
}
