package goroutine

import (
	"runtime"
	"testing"
)

func TestID(t *testing.T) {
	t.Parallel()
	if ID() == 0 {
		t.Skip("goroutines can't be told apart on", runtime.GOARCH)
	}
	const n = 1000
	ids, done, end := make(chan [2]uintptr), make(chan struct{}), make(chan struct{})
	for range n {
		go func() {
			first := ID()
			runtime.Gosched()
			deep(100)
			ids <- [2]uintptr{first, ID()}
			<-end // so that no other goroutine gets its number
			done <- struct{}{}
		}()
	}
	seen := map[uintptr]bool{ID(): true}
	for range n {
		got := <-ids
		if got[0] != got[1] {
			t.Fatalf("ID() = %x after the stack has grown; want %x", got[1], got[0])
		}
		if seen[got[0]] {
			t.Fatalf("ID() = %x in two goroutines", got[0])
		}
		seen[got[0]] = true
	}
	close(end)
	for range n {
		<-done
	}
}

// deep makes the stack of the goroutine larger.
func deep(n int) int {
	var space [1 << 10]byte
	if n == 0 {
		return int(space[0])
	}
	return deep(n-1) + int(space[n])
}

func BenchmarkID(b *testing.B) {
	for b.Loop() {
		ID()
	}
}
