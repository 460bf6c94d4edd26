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

func TestTimeOfAReading(t *testing.T) {
	near := func(t *testing.T) {
		t.Helper()
		before := time.Now()
		at := Time(Now() + time.Hour)
		if d := at.Sub(before) - time.Hour; d < 0 || d > time.Minute {
			t.Errorf("an hour from now is %v off", d)
		}
		if left := time.Until(at); left < 59*time.Minute || left > time.Hour {
			t.Errorf("an hour from now is in %v", left)
		}
	}
	near(t)
	synctest.Test(t, near)
}
