package gateway

import (
	"testing"
	"testing/synctest"
	"time"
)

// The mean time to the first byte stays while there are no requests.
func TestThePaceDoesNotFade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p pace
		if got := p.mean(); got != 0 {
			t.Errorf("before the first request: %v", got)
		}
		p.observe(100 * time.Millisecond)
		time.Sleep(24 * time.Hour)
		if got := p.mean(); got != 0.1 {
			t.Errorf("after a day without requests: %v, want 0.1", got)
		}
	})
}
