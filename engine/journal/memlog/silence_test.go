package memlog_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/engine/journal/memlog"
)

func TestKilledMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := join(t, &memlog.Store{Shards: 4}, "a", "b")
		a, b := m[0], m[1]
		l := lease(t, a, 0)
		if err := errors.Join(l.Serve(echo), a.Serve(echo)); err != nil {
			t.Fatal(err)
		}
		add(t, l, 0)
		_, changed := b.Assigned()

		a.Kill()
		wantLost(t, l, true)
		wantStale(t, l, 1)
		if _, err := b.Call(t.Context(), 0, nil); !errors.Is(err, journal.ErrNobody) {
			t.Errorf("Call of a shard whose owner was killed = %v; want %v", err, journal.ErrNobody)
		}
		if _, err := b.Ask(t.Context(), a.Member(), nil); !errors.Is(err, journal.ErrNobody) {
			t.Errorf("Ask of a member that was killed = %v; want %v", err, journal.ErrNobody)
		}
		if _, err := a.Lease(t.Context(), 1); err == nil {
			t.Error("a killed member gets a lease")
		}
		time.Sleep(3*time.Second - 1)
		synctest.Wait()
		wantLocked(t, b, 0)
		wantAssigned(t, b, 2)

		<-changed
		wantAssigned(t, b, 4)
		next := lease(t, b, 0)
		if next.Epoch() <= l.Epoch() {
			t.Errorf("Epoch() = %d after %d", next.Epoch(), l.Epoch())
		}
		add(t, next, 1)
		wantStale(t, l, 1)
		if err := errors.Join(l.Release(), a.Close()); err != nil {
			t.Errorf("Release, Close of a killed member = %v", err)
		}
		add(t, next, 2)
	})
}

func TestFrozenMemberIsTakenForDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := join(t, &memlog.Store{Shards: 4, Silence: time.Second}, "a", "b")
		a, b := m[0], m[1]
		l := lease(t, a, 0)
		id := a.Member()
		add(t, l, 0)

		a.Freeze()
		appended := make(chan error, 1)
		go func() { appended <- tryAdd(t.Context(), l, 1) }()
		time.Sleep(time.Second)
		synctest.Wait()
		wantAssigned(t, b, 4)
		add(t, lease(t, b, 0), 1)
		wantLost(t, l, false)
		select {
		case err := <-appended:
			t.Fatalf("Append by a frozen member = %v; want it to wait", err)
		default:
		}

		a.Thaw()
		if err := <-appended; !errors.Is(err, journal.ErrStale) {
			t.Errorf("Append after the thaw = %v; want %v", err, journal.ErrStale)
		}
		wantLost(t, l, true)
		wantAssigned(t, a, 2)
		wantAssigned(t, b, 2)
		if a.Member() == id {
			t.Errorf("Member() is still %q after it was taken for dead", id)
		}
	})
}

func TestShortFreezeCostsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := join(t, &memlog.Store{Shards: 4}, "a", "b")
		a, b := m[0], m[1]
		l, id := lease(t, a, 0), a.Member()
		if err := l.Serve(echo); err != nil {
			t.Fatal(err)
		}
		for range 5 {
			a.Freeze()
			var called sync.WaitGroup
			called.Go(func() {
				if got, err := b.Call(t.Context(), 0, []byte("x")); err != nil || string(got) != "x" {
					t.Errorf("Call of a frozen member, which thaws = %q, %v", got, err)
				}
			})
			time.Sleep(2 * time.Second)
			a.Thaw()
			called.Wait()
		}
		time.Sleep(time.Minute)
		wantLost(t, l, false)
		add(t, l, 0)
		if a.Member() != id {
			t.Errorf("Member() = %q; want %q", a.Member(), id)
		}
	})
}

func TestFrozenMemberActsOnWhatHasWaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := join(t, &memlog.Store{}, "a", "b")
		a, b := m[0], m[1]
		l := lease(t, a, 0)
		var seen atomic.Int32
		err := l.Serve(func([]byte, func([]byte)) {
			seen.Add(1)
			wantLost(t, l, false)
			wantStale(t, l, 0)
		})
		if err != nil {
			t.Fatal(err)
		}
		a.Freeze()
		if _, err := b.Call(t.Context(), 0, nil); err == nil || errors.Is(err, journal.ErrNobody) {
			t.Errorf("Call of a member that froze for ever = %v; want an error that is not %v", err, journal.ErrNobody)
		}
		a.Thaw()
		if seen.Load() != 1 {
			t.Errorf("%d requests were delivered; want 1", seen.Load())
		}
		wantLost(t, l, true)
	})
}

func TestCutOffMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := join(t, &memlog.Store{Shards: 2}, "a", "b")
		a, b := m[0], m[1]
		l := lease(t, a, 0)
		add(t, l, 0)
		a.Cut()
		if err := tryAdd(t.Context(), l, 1); err == nil || errors.Is(err, journal.ErrStale) {
			t.Errorf("Append while cut off = %v; want a plain error", err)
		}
		time.Sleep(2 * time.Second)
		a.Heal()
		add(t, l, 1)

		id := a.Member()
		a.Cut()
		<-l.Lost()
		synctest.Wait()
		wantAssigned(t, a, 0)
		wantAssigned(t, b, 2)
		add(t, lease(t, b, 0), 2)
		if a.Heal(); a.Member() == id {
			t.Errorf("Member() is still %q after it was taken for dead", id)
		}
		wantAssigned(t, a, 1)
		wantStale(t, l, 3)
	})
}

func TestReleaseWhileCutOffArrivesLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := join(t, &memlog.Store{}, "a", "b")
		a, b := m[0], m[1]
		l := lease(t, a, 0)
		a.Cut()
		if err := l.Release(); err == nil {
			t.Error("Release succeeds while cut off")
		}
		wantLost(t, l, true)
		wantLocked(t, b, 0)
		a.Heal()
		lease(t, b, 0)
	})
}

func TestCloseWhileCutOffIsSeenLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := join(t, &memlog.Store{}, "a", "b")
		a, b := m[0], m[1]
		lease(t, a, 0)
		a.Cut()
		if err := a.Close(); err == nil {
			t.Error("Close succeeds while cut off")
		}
		wantLocked(t, b, 0)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		lease(t, b, 0)
	})
}

func TestFrozenAndCutOff(t *testing.T) {
	for _, thawFirst := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			m := join(t, &memlog.Store{}, "a", "b")
			a, b := m[0], m[1]
			l := lease(t, a, 0)
			a.Freeze()
			a.Cut()
			time.Sleep(3 * time.Second)
			synctest.Wait()
			lease(t, b, 0)
			wantLost(t, l, false)
			steps := []func(){a.Thaw, a.Heal}
			if !thawFirst {
				slices.Reverse(steps)
			}
			for _, step := range steps {
				step()
			}
			wantLost(t, l, true)
			if s, err := b.Status(t.Context()); err != nil || len(s.Members) != 2 {
				t.Errorf("Status() = %+v, %v; want two members", s, err)
			}
		})
	}
}

func TestAnswerToACallerThatIsCutOffIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := join(t, &memlog.Store{}, "a", "b")
		a, b := m[0], m[1]
		l := lease(t, a, 0)
		if err := l.Serve(func(_ []byte, reply func([]byte)) { time.AfterFunc(time.Second, func() { reply(nil) }) }); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		called := make(chan error, 1)
		go func() {
			_, err := b.Call(ctx, 0, nil)
			called <- err
		}()
		synctest.Wait()
		b.Cut()
		time.Sleep(2 * time.Second)
		b.Heal()
		if err := <-called; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Call = %v; want %v", err, context.DeadlineExceeded)
		}
	})
}
