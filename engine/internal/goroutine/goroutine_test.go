package goroutine

import (
	"context"
	"testing"
)

func TestID(t *testing.T) {
	t.Parallel()
	const n = 100
	ids, end := make(chan [2]uint64), make(chan struct{})
	for range n {
		go func() {
			ids <- [2]uint64{ID(), ID()}
			<-end
		}()
	}
	seen := map[uint64]bool{ID(): true}
	for range n {
		got := <-ids
		if got[0] != got[1] {
			t.Fatalf("ID() = %d after %d in the same goroutine", got[1], got[0])
		}
		if seen[got[0]] {
			t.Fatalf("ID() = %d in two goroutines", got[0])
		}
		seen[got[0]] = true
	}
	close(end)
}

// An operation in the goroutine of a function is no function.
func TestWatch(t *testing.T) {
	t.Parallel()
	w := Of(With(context.Background()))
	want := func(what Work) {
		t.Helper()
		if _, got := w.Current(); got != what {
			t.Errorf("the goroutine executes %d, want %d", got, what)
		}
	}
	want(Other)
	endFunction := w.Begin(Function)
	want(Function)
	endOperation := w.Begin(Operation)
	want(Operation)
	other := make(chan Work)
	go func() {
		_, work := w.Current()
		other <- work
	}()
	if got := <-other; got != Other {
		t.Errorf("another goroutine executes %d", got)
	}
	endOperation()
	want(Function)
	endFunction()
	want(Other)
	if len(w.works) > 0 || Of(context.Background()) != nil {
		t.Errorf("%d goroutines are left", len(w.works))
	}
}
