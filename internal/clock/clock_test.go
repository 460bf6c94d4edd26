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
	check := func(t *testing.T) {
		t.Helper()
		before := time.Now()
		at := Time(Now() + time.Hour)
		after := time.Now()
		if at.Before(before.Add(time.Hour)) || at.After(after.Add(time.Hour)) {
			t.Errorf("an hour from a time between %v and %v is %v", before, after, at)
		}
	}
	check(t)
	synctest.Test(t, check)
}
