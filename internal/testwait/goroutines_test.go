package testwait

import (
	"strings"
	"testing"
)

func TestGoroutines(t *testing.T) {
	end, running := make(chan struct{}), make(chan struct{})
	go leftBehind(running, end)
	<-running
	if left := goroutines([]string{"nothing", "testwait.leftBehind"}); len(left) != 1 || !strings.Contains(left[0], "leftBehind") {
		t.Errorf("while it runs: %q", left)
	}
	if left := goroutines([]string{"nothing"}); len(left) != 0 {
		t.Errorf("another text: %q", left)
	}
	close(end)
	if left := Goroutines("testwait.leftBehind"); left != "" {
		t.Errorf("after its end: %q", left)
	}
}

func leftBehind(running, end chan struct{}) {
	close(running)
	<-end
}
