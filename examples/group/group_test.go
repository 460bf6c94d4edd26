package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tideover/tideover/contend"
	"github.com/tideover/tideover/internal/paxos"
	"github.com/tideover/tideover/internal/testwait"
	"github.com/tideover/tideover/retry"
)

// patient is a policy without timeouts, for tests.
func patient(t *testing.T) contend.Config {
	t.Helper()
	p, err := retry.Parse("contention attempts=100000 attempt-timeout=2s total-timeout=1h")
	if err != nil {
		t.Fatal(err)
	}
	return contend.Config{Policy: p}
}

// processes starts three acceptors as separate processes.
func processes(t *testing.T) []*process {
	t.Helper()
	list, err := startProcesses(context.Background(), 3, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stopAll(list); err != nil {
			t.Errorf("stopping the acceptors: %v", err)
		}
	})
	return list
}

// newDevice starts a device that is stopped with the test.
func newDevice(t *testing.T, member int, addresses []string, observe func(retry.Event), log ...paxos.Entry) *Actor {
	t.Helper()
	c := Config{Member: member, Acceptors: len(addresses), Log: log, Contend: patient(t), Observe: observe}
	a, err := start(c, func(l listener) wire { return dialAll(addresses, l) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Stop)
	return a
}

// sameLog waits until all devices know this many epochs, and returns them.
func sameLog(t *testing.T, ctx context.Context, devices []*Actor, epochs int) (log []string) { //nolint:revive // t comes first
	t.Helper()
	for i, a := range devices {
		s, err := waitForStatus(ctx, a, func(s Status) bool { return len(s.Log) >= epochs })
		if err != nil {
			t.Fatalf("device %d: %v", i, err)
		}
		if log == nil {
			log = s.Log
		}
		if !slices.Equal(s.Log, log) {
			t.Fatalf("device %d has the log %q, and device 0 %q", i, s.Log, log)
		}
	}
	return log
}

func TestTenDevicesCommitWhileAnAcceptorIsKilled(t *testing.T) {
	ctx, acceptors := testwait.Context(t), processes(t)
	var devices []*Actor
	for i := range 10 {
		devices = append(devices, newDevice(t, i, addressesOf(acceptors), nil))
	}
	epochs, some := make([]int, 10), make(chan struct{}, 10)
	var all sync.WaitGroup
	for i, a := range devices {
		all.Go(func() {
			var err error
			if epochs[i], err = a.Update(ctx, fmt.Sprintf("<%d>", i)); err != nil {
				t.Errorf("device %d: %v", i, err)
			}
			some <- struct{}{}
		})
	}
	<-some
	if err := acceptors[1].kill(); err != nil {
		t.Fatal(err)
	}
	<-some // a quorum is left
	if err := acceptors[1].restart(context.Background()); err != nil {
		t.Fatal(err)
	}
	all.Wait()
	log := sameLog(t, ctx, devices, 10)
	if len(log) != 10 {
		t.Fatalf("%d epochs, want 10: %q", len(log), log)
	}
	for i, epoch := range epochs {
		if epoch == 0 || !strings.HasPrefix(log[epoch-1], fmt.Sprintf("<%d> (on %d)", i, epoch-1)) {
			t.Errorf("device %d committed in epoch %d: %q", i, epoch, log)
		}
	}
}

// Decisions survive the death of every acceptor.
func TestTheLogSurvivesAllAcceptors(t *testing.T) {
	ctx, acceptors := testwait.Context(t), processes(t)
	first := newDevice(t, 0, addressesOf(acceptors), nil)
	for i := range 3 {
		if _, err := first.Update(ctx, fmt.Sprintf("<%d>", i)); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range acceptors {
		if err := p.kill(); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range acceptors {
		if err := p.restart(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	second := newDevice(t, 1, addressesOf(acceptors), nil)
	if epoch, err := second.Update(ctx, "<new>"); err != nil || epoch != 4 {
		t.Errorf("epoch %d, %v; want 4", epoch, err)
	}
	sameLog(t, ctx, []*Actor{first, second}, 4)
}

// An acceptor's file does not grow with the log, and is intact whenever the
// acceptor is killed.
func TestTheFilesAreCutWhileAcceptorsAreKilled(t *testing.T) {
	ctx, acceptors := testwait.Context(t), processes(t)
	first := newDevice(t, 0, addressesOf(acceptors), nil)
	const updates = 2 * recent
	for i := range updates {
		if _, err := first.Update(ctx, fmt.Sprintf("<%d>", i)); err != nil {
			t.Fatal(err)
		}
		if i%30 == 5 {
			victim := acceptors[i/30%len(acceptors)]
			if err := errors.Join(victim.kill(), victim.restart(context.Background())); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, p := range acceptors {
		waitUntilCut(t, store{filepath.Join(p.dir, fmt.Sprintf("acceptor-%d.json", p.id))}, recent+10)
	}
	log, err := first.Log()
	if err != nil || len(log) != updates {
		t.Fatalf("%d epochs, %v; want %d", len(log), err, updates)
	}
	second := newDevice(t, 1, addressesOf(acceptors), nil, log...)
	if epoch, err := second.Update(ctx, "<second>"); err != nil || epoch != updates+1 {
		t.Errorf("who has the log commits in epoch %d, %v; want %d", epoch, err, updates+1)
	}
	sameLog(t, ctx, []*Actor{first, second}, updates+1)
	stranger := newDevice(t, 2, addressesOf(acceptors), nil)
	for range 2 {
		if _, err := stranger.Update(ctx, "<stranger>"); !errors.Is(err, errTooLate) {
			t.Errorf("who has no log: %v, want %v", err, errTooLate)
		}
	}
}

// waitUntilCut waits until the file has at most this many slots. An acceptor
// that was away must first learn what it missed.
func waitUntilCut(t *testing.T, st store, most int) {
	t.Helper()
	testwait.Until(t, fmt.Sprintf("%s has at most %d slots", st.path, most), func() bool {
		m, err := st.load()
		if err != nil {
			t.Fatal(err)
		}
		return len(m.Slots) <= most
	})
}

func TestADeviceBehindAPartitionCatchesUpWhenItHeals(t *testing.T) {
	ctx, acceptors := testwait.Context(t), processes(t)
	var behind []string
	var proxies []*proxy
	for _, address := range addressesOf(acceptors) {
		p := newProxy(t, address)
		proxies = append(proxies, p)
		behind = append(behind, p.address())
	}
	waiting := make(chan struct{}, 1)
	away := newDevice(t, 7, behind, func(e retry.Event) {
		if e.Kind == retry.Waiting {
			select {
			case waiting <- struct{}{}:
			default:
			}
		}
	})
	here := newDevice(t, 0, addressesOf(acceptors), nil)
	if epoch, err := away.Update(ctx, "<before>"); err != nil || epoch != 1 {
		t.Fatalf("epoch %d, %v; want 1", epoch, err)
	}
	for _, p := range proxies {
		p.cut()
	}
	if _, err := waitForStatus(ctx, away, func(s Status) bool { return s.Near == 0 }); err != nil {
		t.Fatal(err)
	}
	for len(waiting) > 0 {
		<-waiting
	}
	done := make(chan error, 1)
	var epoch int
	go func() { var err error; epoch, err = away.Update(ctx, "<away>"); done <- err }()
	<-waiting // it lost because too few acceptors answered, and tries again
	for i := range 3 {
		if _, err := here.Update(ctx, fmt.Sprintf("<here %d>", i)); err != nil {
			t.Fatal(err)
		}
	}
	if s, err := away.Status(); err != nil || len(s.Log) != 1 {
		t.Errorf("behind the partition: %+v, %v", s, err)
	}
	for _, p := range proxies {
		p.heal()
	}
	if err := <-done; err != nil || epoch != 5 {
		t.Errorf("epoch %d, %v; want 5, after what it missed", epoch, err)
	}
	if log := sameLog(t, ctx, []*Actor{here, away}, 5); log[4] != "<away> (on 4)" {
		t.Errorf("%q, want the last one rebased on epoch 4", log)
	}
}

func TestStoppingADeviceThatWaitsTakesEffectAtOnce(t *testing.T) {
	p, err := retry.Parse("fixed(1h) attempts=3 total-timeout=9h")
	if err != nil {
		t.Fatal(err)
	}
	unreachable := newProxy(t, "127.0.0.1:1")
	unreachable.cut()
	waiting := make(chan struct{}, 10)
	c := Config{Acceptors: 3, Contend: contend.Config{Policy: p}, Observe: func(e retry.Event) {
		if e.Kind == retry.Waiting {
			waiting <- struct{}{}
		}
	}}
	a, err := start(c, func(l listener) wire {
		return dialAll([]string{unreachable.address(), unreachable.address(), unreachable.address()}, l)
	})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { _, err := a.Update(context.Background(), "x"); done <- err }()
	<-waiting
	if s, err := a.Status(); err != nil || s.Doing != "waiting" {
		t.Errorf("%+v, %v; want it waiting", s, err)
	}
	a.Stop()
	if err := testwait.Receive(t, "the update ends", done); !errors.Is(err, errStopped) {
		t.Errorf("%v, want it stopped", err)
	}
}
