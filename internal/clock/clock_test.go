package clock

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestNowIsPositiveAndAdvances(t *testing.T) {
	if a, b := Now(), Now(); a <= 0 || b < a {
		t.Errorf("Now() = %v, then %v", a, b)
	}
	synctest.Test(t, func(t *testing.T) {
		a := Now()
		time.Sleep(time.Hour)
		if d := Now() - a; a <= 0 || d != time.Hour {
			t.Errorf("in a bubble: Now() = %v, an hour later %v more", a, d)
		}
	})
}
