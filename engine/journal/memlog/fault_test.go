package memlog_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/engine/journal/memlog"
)

var errBroken = errors.New("broken")

// once returns a function for Disturb: the first operation of that name has the fault.
func once(name string, f memlog.Fault) func(memlog.Operation) memlog.Fault {
	var done atomic.Bool
	return func(op memlog.Operation) memlog.Fault {
		if op.Name == name && done.CompareAndSwap(false, true) {
			return f
		}
		return memlog.Fault{}
	}
}

func TestFaultsOfAppends(t *testing.T) {
	tests := map[string]struct {
		fault memlog.Fault
		last  uint64 // last sequence after the append has failed
	}{
		"before it is delivered": {memlog.Fault{Before: errBroken}, 0},
		"the answer is lost":     {memlog.Fault{After: errBroken}, 1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := join(t, &memlog.Store{}, "a")[0]
				l := lease(t, a, 0)
				a.Disturb(once("append", tt.fault))
				if err := tryAdd(t.Context(), l, 0); !errors.Is(err, errBroken) {
					t.Errorf("Append = %v; want %v", err, errBroken)
				}
				if _, last, _ := l.Bounds(t.Context()); last != tt.last {
					t.Errorf("the last entry is %d; want %d", last, tt.last)
				}
				add(t, l, 0) // the repeat
				add(t, l, 1)
			})
		})
	}
}

func TestLateAppendOfAnOldOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := join(t, &memlog.Store{}, "a", "b")
		a, b := m[0], m[1]
		l := lease(t, a, 0)
		a.Disturb(once("append", memlog.Fault{After: errBroken, Late: 5 * time.Second}))
		data := []byte("old")
		if _, err := l.Append(t.Context(), 0, journal.ID{1}, data); !errors.Is(err, errBroken) {
			t.Fatalf("Append = %v; want %v", err, errBroken)
		}
		clear(data)
		a.Kill()
		time.Sleep(4 * time.Second)
		next := lease(t, b, 0)
		if _, last, _ := next.Bounds(t.Context()); last != 0 {
			t.Fatalf("the last entry is %d; want none yet", last)
		}
		time.Sleep(2 * time.Second)
		wantStale(t, next, 0)
		for e, err := range next.Read(t.Context(), 1) {
			if err != nil || e.Epoch != l.Epoch() || string(e.Data) != "old" {
				t.Errorf("Read(1) yields %+v, %v; want that of the old owner", e, err)
			}
		}
		add(t, next, 1)
	})
}

func TestDelayedAppend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := join(t, &memlog.Store{}, "a")[0]
		l := lease(t, a, 0)
		a.Disturb(func(op memlog.Operation) memlog.Fault {
			if op.Name == "append" {
				return memlog.Fault{Delay: time.Minute}
			}
			return memlog.Fault{}
		})
		begin := time.Now()
		add(t, l, 0)
		if time.Since(begin) != time.Minute {
			t.Errorf("the append took %v; want a minute", time.Since(begin))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := tryAdd(ctx, l, 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Append = %v; want %v", err, context.DeadlineExceeded)
		}
		appended := make(chan error, 1)
		go func() { appended <- tryAdd(t.Context(), l, 1) }()
		synctest.Wait()
		a.Kill()
		if err := <-appended; !errors.Is(err, journal.ErrStale) {
			t.Errorf("Append by a member that is killed = %v; want %v", err, journal.ErrStale)
		}
	})
}

func TestFaultsOfCalls(t *testing.T) {
	tests := map[string]struct {
		fault memlog.Fault
		seen  int32 // a second later
	}{
		"before it is delivered":         {memlog.Fault{Before: errBroken}, 0},
		"the answer is lost":             {memlog.Fault{After: errBroken}, 1},
		"the request is late":            {memlog.Fault{After: errBroken, Late: time.Second}, 1},
		"the request is later than that": {memlog.Fault{After: errBroken, Late: time.Minute}, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := join(t, &memlog.Store{}, "a", "b")
				l := lease(t, m[0], 0)
				var seen atomic.Int32
				count := func(request []byte, reply func([]byte)) {
					seen.Add(1)
					reply(request)
				}
				if err := l.Serve(count); err != nil {
					t.Fatal(err)
				}
				m[1].Disturb(once("call", tt.fault))
				if _, err := m[1].Call(t.Context(), 0, nil); !errors.Is(err, errBroken) || errors.Is(err, journal.ErrNobody) {
					t.Errorf("Call = %v; want %v", err, errBroken)
				}
				time.Sleep(time.Second)
				synctest.Wait()
				if seen.Load() != tt.seen {
					t.Errorf("the request was delivered %d times; want %d", seen.Load(), tt.seen)
				}
				if _, err := m[1].Call(t.Context(), 0, nil); err != nil {
					t.Errorf("the next Call = %v", err)
				}
			})
		})
	}
}

func TestLeaseWhoseAnswerIsLostIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := join(t, &memlog.Store{}, "a")[0]
		a.Disturb(once("lease", memlog.Fault{After: errBroken}))
		if _, err := a.Lease(t.Context(), 0); !errors.Is(err, errBroken) {
			t.Fatalf("Lease = %v; want %v", err, errBroken)
		}
		if l := lease(t, a, 0); l.Epoch() != 2 {
			t.Errorf("Epoch() = %d; want 2, after the one that its caller does not know", l.Epoch())
		}
	})
}
