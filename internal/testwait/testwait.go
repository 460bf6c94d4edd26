// Package testwait waits in tests for conditions that have no event to wait for: of a
// process, a socket, a file.
//
// A wait has no timeout of its own, because none is right on every machine. It ends
// shortly before the deadline of the test binary (go test -timeout), with the name of
// what did not happen.
package testwait

import (
	"context"
	"runtime"
	"testing"
	"time"
)

// reserve is what remains of the test binary's time when a wait gives up: enough to
// report, and to clean up.
const reserve = 15 * time.Second

// Until polls until holds returns true. what names the condition in the failure. It uses
// at most a fifth of the time to poll, because the code under test needs the processor
// too. It polls less often the longer it has waited.
func Until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	ctx := Context(t)
	start := time.Now()
	for {
		began := time.Now()
		if holds() {
			return
		}
		late := min(time.Since(start)/4, 100*time.Millisecond)
		pause := time.NewTimer(max(2*time.Millisecond, late, min(4*time.Since(began), time.Second)))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			fail(t, what)
		}
	}
}

// Receive returns the next value of the channel. It returns the zero value once the
// channel is closed.
func Receive[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-Context(t).Done():
		fail(t, what)
		panic("unreachable")
	}
}

// Context returns a context that ends with the test, or shortly before the test
// binary's deadline. In a cleanup function it is not canceled with the test.
func Context(t testing.TB) context.Context {
	t.Helper()
	ctx := t.Context()
	if ctx.Err() != nil { // in a cleanup function
		ctx = context.WithoutCancel(ctx)
	}
	d, ok := t.(interface{ Deadline() (time.Time, bool) })
	if !ok {
		return ctx
	}
	deadline, ok := d.Deadline()
	if !ok {
		return ctx
	}
	ctx, cancel := context.WithDeadline(ctx, deadline.Add(-reserve))
	t.Cleanup(cancel)
	return ctx
}

// fail ends the test and prints all goroutines, as the test binary does at its deadline.
func fail(t testing.TB, what string) {
	t.Helper()
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	t.Fatalf("did not happen before the test binary's deadline: %s\n%s", what, stacks)
}
