package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/contend"
	"github.com/tideover/tideover/internal/paxos"
	"github.com/tideover/tideover/retry"
)

// fakeWire is a wire on which a test plays the acceptors.
type fakeWire struct {
	*Actor
	sent   chan paxos.Message
	events chan retry.Event
}

func (s *fakeWire) send(m paxos.Message) bool { s.sent <- m; return true }
func (s *fakeWire) close()                    {}

// newFakeWire returns an actor of three acceptors whose answers the test sends.
// It must be stopped.
func newFakeWire(t *testing.T, c contend.Config, u uint64) *fakeWire {
	t.Helper()
	s := &fakeWire{sent: make(chan paxos.Message, 1000), events: make(chan retry.Event, 1000)}
	config := Config{Member: 2, Acceptors: 3, Contend: c, Random: func() uint64 { return u }, Observe: func(e retry.Event) { s.events <- e }}
	a, err := start(config, func(listener) wire { return s })
	if err != nil {
		t.Fatal(err)
	}
	s.Actor = a
	return s
}

// next returns the next message of the kind, of all that are sent to acceptor 0.
func (s *fakeWire) next(k paxos.Kind) paxos.Message {
	for m := range s.sent {
		if m.Kind == k && m.To == 0 {
			return m
		}
	}
	panic("unreachable")
}

// waits returns the next event of a wait.
func (s *fakeWire) waits() retry.Event {
	for e := range s.events {
		if e.Kind == retry.Waiting || e.Kind == retry.GaveUp {
			return e
		}
	}
	panic("unreachable")
}

// answer answers the message for two of the three acceptors. Only a rejection
// has a ballot.
func (s *fakeWire) answer(m paxos.Message, k paxos.Kind) {
	said := paxos.Message{Kind: k, To: m.From, Ballot: m.Ballot, Value: m.Value}
	if k == paxos.Reject {
		said.Prior = above(m)
	}
	for said.From = range 2 {
		s.hear(said)
	}
}

// above returns a ballot that is higher than the message's.
func above(m paxos.Message) paxos.Ballot {
	return paxos.Ballot{Epoch: m.Ballot.Epoch, Attempt: m.Ballot.Attempt, Member: 9}
}

func TestAllPathsLeadToOneDelay(t *testing.T) {
	for _, u := range []uint64{0, 1 << 63, 1<<64 - 1} {
		synctest.Test(t, func(t *testing.T) {
			p, _ := retry.Preset("contention")
			s := newFakeWire(t, contend.Config{Policy: p}, u)
			defer s.Stop()
			attempt, delay := 0, time.Duration(0)
			want := func(by path) {
				t.Helper()
				attempt++
				e := s.waits()
				d := retry.Decide(p, retry.State{Attempt: attempt}, retry.Outcome{}, retry.Gates{}, u)
				if e.Kind != retry.Waiting || e.Note != string(by) || e.Delay != d.Wait || e.Attempt != attempt {
					t.Fatalf("attempt %d: %v %q waits %v, want %q to wait %v", e.Attempt, e.Kind, e.Note, e.Delay, by, d.Wait)
				}
				delay = d.Wait
			}
			reply := func(to, with paxos.Kind) {
				t.Helper()
				start := time.Now()
				m := s.next(to)
				if took := time.Since(start); to == paxos.Prepare && took != delay {
					t.Errorf("attempt %d starts after %v, want %v", attempt+1, took, delay)
				}
				s.answer(m, with)
			}

			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { _, err := s.Update(ctx, "x"); done <- err }()
			reply(paxos.Prepare, paxos.Reject)
			want(simple)
			reply(paxos.Prepare, paxos.Reject)
			want(again)
			reply(paxos.Prepare, paxos.Promise)
			reply(paxos.Accept, paxos.Reject)
			want(accepting)
			cancel()
			if err := <-done; !errors.Is(err, context.Canceled) || !errors.Is(err, contend.ErrUnsure) {
				t.Errorf("%v, want canceled and unsure: it was sent out to be accepted", err)
			}
			if e := s.waits(); e.Kind != retry.GaveUp {
				t.Errorf("%v, want it given up", e.Kind)
			}

			attempt, delay = 0, 0
			go func() { _, err := s.AddMember(t.Context(), "y"); done <- err }()
			reply(paxos.Prepare, paxos.Reject)
			want(withWelcome)
			for range 5 {
				reply(paxos.Prepare, paxos.Reject)
				want(again)
			}
			reply(paxos.Prepare, paxos.Reject)
			err := <-done
			if !errors.Is(err, contend.ErrRetries) || errors.Is(err, contend.ErrUnsure) || !strings.HasPrefix(err.Error(), "max proposal retries exceeded: lost to ballot 1.") {
				t.Errorf("%v, want the retries used up, for sure", err)
			}
		})
	}
}

func TestAWaitingActorAnswersAndStopsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := retry.Parse("fixed(1h) attempts=3 total-timeout=9h")
		s := newFakeWire(t, contend.Config{Policy: p}, 0)
		done := make(chan error)
		for range 2 { // the second one is queued
			go func() { _, err := s.Update(t.Context(), "x"); done <- err }()
		}
		m := s.next(paxos.Prepare)
		s.answer(m, paxos.Reject)
		s.waits()
		start := time.Now()
		if got, err := s.Status(); err != nil || got.Doing != "waiting" || got.Attempt != 1 {
			t.Errorf("%+v, %v; want it waiting after attempt 1", got, err)
		}
		s.Stop()
		for range 2 {
			if err := <-done; !errors.Is(err, errStopped) || errors.Is(err, contend.ErrUnsure) {
				t.Errorf("%v, want it stopped, for sure", err)
			}
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("it took %v, want no time", took)
		}
		if _, err := s.Status(); !errors.Is(err, errStopped) {
			t.Errorf("a question after the end: %v", err)
		}
		if _, err := s.Update(t.Context(), "z"); !errors.Is(err, errStopped) {
			t.Errorf("a proposal after the end: %v", err)
		}
		s.Stop() // twice does no harm
	})
}

func TestAProposalThatIsNeverAnsweredTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeWire(t, preset(), 0)
		defer s.Stop()
		start := time.Now()
		_, err := s.Update(t.Context(), "x")
		if !errors.Is(err, contend.ErrTimeout) || time.Since(start) != 30*time.Second {
			t.Errorf("%v after %v, want a timeout after 30s", err, time.Since(start))
		}
	})
}

func TestAnAttemptThatIsNotAnsweredIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := retry.Parse("contention attempt-timeout=1s")
		s := newFakeWire(t, contend.Config{Policy: p}, 0)
		defer s.Stop()
		done := make(chan int)
		go func() { epoch, _ := s.Update(t.Context(), "x"); done <- epoch }()
		s.next(paxos.Prepare)
		if e := s.waits(); !errors.Is(e.Err, errNoQuorum) {
			t.Errorf("%v, want too few answers", e.Err)
		}
		s.answer(s.next(paxos.Prepare), paxos.Promise)
		s.answer(s.next(paxos.Accept), paxos.Accepted)
		if epoch := <-done; epoch != 1 {
			t.Errorf("committed in epoch %d, want 1", epoch)
		}
	})
}

func TestReconnectedDeviceAsksAtOnceAndThenRegularly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeWire(t, preset(), 0)
		defer s.Stop()
		start := time.Now()
		s.connected(0)
		s.next(paxos.Learn)
		if time.Since(start) != 0 {
			t.Errorf("it asks after %v, want no time", time.Since(start))
		}
		s.next(paxos.Learn)
		if took := time.Since(start); took <= 0 || took > 3*pollEvery {
			t.Errorf("it asks again after %v, want each acceptor in turn", took)
		}
	})
}

// A change that lost is rebuilt on the winning one, and so is its welcome.
func TestALoserIsRebased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeWire(t, preset(), 0)
		defer s.Stop()
		done := make(chan string)
		go func() { welcome, _ := s.AddMember(t.Context(), "y"); done <- welcome }()
		m := s.next(paxos.Prepare)
		s.hear(paxos.Message{Kind: paxos.Chosen, From: 0, To: 2, Ballot: above(m), Value: paxos.Value{Member: 9, Seq: 1, Data: "z"}})
		s.answer(s.next(paxos.Prepare), paxos.Promise)
		m = s.next(paxos.Accept)
		if m.Value.Data != "add y (on 1)" {
			t.Errorf("proposed %q, want it on epoch 1", m.Value.Data)
		}
		s.answer(m, paxos.Accepted)
		if got := <-done; got != "welcome y to epoch 2" {
			t.Errorf("%q, want a welcome to epoch 2", got)
		}
	})
}

func TestChangesThatNoMessageCarries(t *testing.T) {
	for _, text := range []string{strings.Repeat("x", paxos.MaxData), "caf\xe9"} {
		if err := checkText(text); err == nil {
			t.Errorf("a change of %d bytes is taken", len(text))
		}
	}
}

// preset is the config with the delays of the preset.
func preset() contend.Config {
	p, _ := retry.Preset("contention")
	return contend.Config{Policy: p}
}
