package bench_test

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"time"
)

// The policy of all peers, as near as each lets us come: 4 attempts, an
// exponential delay with the peer's own jitter.
const (
	attempts   = 4
	baseDelay  = 100 * time.Millisecond
	capDelay   = 10 * time.Second
	factor     = 2.0
	perAttempt = 5 * time.Second // timeout of one attempt, where there is one
)

var errTransient = errors.New("transient")

// The operations are package variables which call functions that are not
// inlined: opaque, as a real operation is.
var (
	op         = func() error { return succeed() }
	opCtx      = func(context.Context) error { return succeed() }
	opDone     = func(ctx context.Context) error { _ = ctx.Done(); return succeed() } // as net/http does
	opFail     = func() error { return errTransient }
	opFailCtx  = func(context.Context) error { return errTransient }
	opValue    = func() (int, error) { return answer() }
	opValueCtx = func(context.Context) (int, error) { return answer() }
)

//go:noinline
func succeed() error { return nil }

//go:noinline
func answer() (int, error) { return 42, nil }

// Sinks keep the results of serial benchmarks alive.
var (
	sinkInt int
	sinkErr error
)

// entry is a peer in a scenario. prepare creates the objects that calls share, and
// returns the call that is measured.
type entry struct {
	peer    string
	prepare func(ctx context.Context) (call func() error)
}

// compare measures each peer's calls one after the other.
func compare(b *testing.B, entries []entry) {
	each(b, entries, func(b *testing.B, e entry) {
		call := e.prepare(requestContext(b))
		for b.Loop() {
			if err := call(); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// compareShared measures calls from GOMAXPROCS goroutines that share what was
// prepared.
func compareShared(b *testing.B, entries []entry) {
	each(b, entries, func(b *testing.B, e entry) {
		call := e.prepare(requestContext(b))
		apart = distance()
		b.RunParallel(func(pb *testing.PB) { drain(pb, call) })
	})
}

// apart keeps the result of distance alive.
var apart []*[4]*int

// distance allocates objects that lie in memory between a call's closure and the
// counters that package testing writes for each goroutine. Both have the same size. When
// they were in one cache line by chance, some peers were three times slower.
func distance() (list []*[4]*int) {
	for range 16 {
		list = append(list, new([4]*int))
	}
	return list
}

// compareOwn is compareShared for objects that goroutines can't share: every goroutine
// calls prepare.
func compareOwn(b *testing.B, entries []entry) {
	each(b, entries, func(b *testing.B, e entry) {
		ctx := requestContext(b)
		b.RunParallel(func(pb *testing.PB) { drain(pb, e.prepare(ctx)) })
	})
}

func each(b *testing.B, entries []entry, measure func(*testing.B, entry)) {
	b.Helper()
	for _, e := range entries {
		b.Run("peer="+e.peer, func(b *testing.B) {
			b.ReportAllocs()
			start := cpuTime()
			measure(b, e)
			b.ReportMetric(float64(cpuTime()-start)/float64(b.N), "cpu-ns/op")
		})
	}
}

func drain(pb *testing.PB, call func() error) {
	for pb.Next() {
		if err := call(); err != nil {
			panic(err)
		}
	}
}

// requestContext can be canceled, as a request's context can:
// context.Background() would let peers skip work.
func requestContext(tb testing.TB) context.Context {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	tb.Cleanup(cancel)
	return ctx
}

// cpuTime returns the processor time that this process has used.
func cpuTime() time.Duration {
	var ru syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &ru); err != nil {
		panic(err)
	}
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
}

// flaky fails three times, then succeeds, over and over. It is not for use by
// several goroutines.
type flaky struct{ calls int }

func (f *flaky) call() error {
	f.calls++
	if f.calls%attempts != 0 {
		return errTransient
	}
	return nil
}

func (f *flaky) callCtx(context.Context) error { return f.call() }
