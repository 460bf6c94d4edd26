package engine_test

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/engine/enginetest"
	"github.com/tideover/tideover/engine/journal/memlog"
)

// BenchmarkFlowRounds measures a run whose function does an operation and sleeps for two seconds, again
// and again: after each sleep the function is called again from its beginning. With longer sleeps most
// of the time would be that of snapshots, one for each ten minutes. Package enginetest is not used: it
// walks the stack at each operation, to find mistakes.
func BenchmarkFlowRounds(b *testing.B) {
	for _, rounds := range []int{500, 1000, 2000, 4000} {
		b.Run(strconv.Itoa(rounds), func(b *testing.B) {
			w := roundsFlow()
			before := processorTime(b)
			for range b.N {
				inVirtualTime(b, func(t *testing.T) {
					e, err := engine.Open(t.Context(), engine.Config{Log: new(memlog.Store).Open(), Workflows: []*engine.Workflow{w}})
					if err != nil {
						t.Fatal(err)
					}
					defer func() { _ = e.Close(context.Background()) }()
					s, err := e.Start(t.Context(), w, rounds)
					if err != nil {
						t.Fatal(err)
					}
					run, err := e.Wait(t.Context(), s.ID)
					if err != nil {
						t.Fatal(err)
					}
					wantRun(t, run, engine.StateSucceeded, strconv.Itoa(rounds))
				})
			}
			b.ReportMetric((processorTime(b)-before).Seconds()/float64(b.N), "cpu-s/op")
		})
	}
}

// processorTime returns how much processor time the process has used.
func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// A function that is called again asks for all its stored operations, after each long wait. So this
// must cost little for each of them. What is measured are allocations: the processor time depends on
// what else the machine does.
func TestStoredOperationsAreCheap(t *testing.T) {
	const rounds = 150
	w := roundsFlow()
	var before, after runtime.MemStats
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		runtime.ReadMemStats(&before)
		wantRun(t, e.Run(w, rounds), engine.StateSucceeded, strconv.Itoa(rounds))
		runtime.ReadMemStats(&after)
	}, w)
	const calls = rounds * rounds // half of the two operations of each round, in each call of the function
	// The function itself has three for two operations.
	if n := float64(after.Mallocs-before.Mallocs) / calls; n > 2.5 {
		t.Errorf("each operation that is asked for takes %.1f allocations", n)
	}
}

// A function may change what an operation has returned. When it is called again it gets the result
// as it was stored.
func TestAFunctionMayChangeItsResults(t *testing.T) {
	t.Parallel()
	type stock struct {
		Items []string
		Count map[string]int
	}
	calls := 0
	w := engine.MustFlow("stock", func(f *engine.Flow, _ string) (string, error) {
		calls++
		for i := range 20 {
			key := engine.ForKey(strconv.Itoa(i))
			got, err := engine.Do(f, "count", value(&stock{[]string{"a"}, map[string]int{"a": i}}), key)
			if err != nil {
				return "", err
			}
			if len(got.Items) != 1 || got.Items[0] != "a" || len(got.Count) != 1 || got.Count["a"] != i {
				return "", fmt.Errorf("call %d got %+v for %d", calls, got, i)
			}
			got.Items[0], got.Count["a"], got.Count["b"] = "changed", -1, 1
			if err := engine.Sleep(f, "pause", time.Hour, key); err != nil {
				return "", err
			}
		}
		return fmt.Sprintf("%d calls", calls), nil
	})
	wantRun(t, enginetest.Run(t, w, ""), engine.StateSucceeded, "21 calls")
}

// inVirtualTime calls a test as a part of a benchmark: package synctest needs a testing.T.
func inVirtualTime(b *testing.B, test func(*testing.T)) {
	all := func(string, string) (bool, error) { return true, nil }
	inBubble := func(t *testing.T) { synctest.Test(t, test) }
	if !testing.RunTests(all, []testing.InternalTest{{Name: b.Name(), F: inBubble}}) {
		b.Fatal("the test failed")
	}
}

// roundsFlow returns a flow that does an operation and sleeps, as often as its input says.
func roundsFlow() *engine.Workflow {
	return engine.MustFlow("rounds", func(f *engine.Flow, rounds int) (sum int, err error) {
		for i := range rounds {
			key := engine.ForKey(strconv.Itoa(i))
			n, err := engine.Do(f, "add", value(1), key)
			if err != nil {
				return 0, err
			}
			sum += n
			if err := engine.Sleep(f, "pause", 2*time.Second, key); err != nil {
				return 0, err
			}
		}
		return sum, nil
	})
}
