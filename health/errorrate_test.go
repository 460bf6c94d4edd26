package health

import (
	"math"
	"testing"
	"testing/synctest"
	"time"
)

func TestErrorRate(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		ok, bad  int
		at       time.Duration // results come at 0
		pressure float64
	}{
		{"nothing known is no pressure", 0, 0, 0, 0},
		{"fewer than five a second are no pressure", 0, 299, 0, 0},
		{"half of it failing is no pressure", 200, 200, 0, 0},
		{"three quarters failing is nearly a half", 100, 300, 0, 200.0 / 401},
		{"all failing is at most nine tenths", 0, 300, 0, 0.9},
		{"results count to the end of the window", 0, 300, 59 * sec, 0.9},
		{"and no longer", 0, 300, 60 * sec, 0},
		{"nor after a very long time", 0, 300, math.MaxInt64, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var e ErrorRate
			for range tt.ok {
				e.AddAt(0, true)
			}
			for range tt.bad {
				e.AddAt(0, false)
			}
			if got := e.PressureAt(tt.at); !near(got, tt.pressure) {
				t.Errorf("PressureAt(%v) = %v, want %v", tt.at, got, tt.pressure)
			}
			want := time.Duration(float64(sec) / (1 - tt.pressure))
			if got := e.StretchAt(tt.at, sec); (got - want).Abs() > 1 {
				t.Errorf("StretchAt(%v, 1s) = %v, want %v", tt.at, got, want)
			}
		})
	}
}

func TestErrorRateFollowsAnOutageAndItsEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var e ErrorRate
		send := func(d time.Duration, ok bool) {
			for range int(d / (50 * ms)) {
				e.Add(ok)
				time.Sleep(50 * ms)
			}
		}
		send(time.Minute, true)
		if p := e.Pressure(); p != 0 {
			t.Errorf("in good times the pressure is %v", p)
		}
		send(45*sec, false)
		if p := e.Pressure(); math.Abs(p-0.5) > 0.04 {
			t.Errorf("after 45 s of failures the pressure is %v, want about a half", p)
		}
		send(time.Minute, true)
		if d := e.Stretch(sec); d != sec {
			t.Errorf("a minute after the outage a second is stretched to %v", d)
		}
	})
}

func FuzzErrorRate(f *testing.F) {
	f.Add(int64(1), []byte{1, 2, 3})
	f.Fuzz(func(t *testing.T, start int64, steps []byte) {
		var e ErrorRate
		now := time.Duration(start)
		for _, s := range steps {
			now += time.Duration(int8(s)) * 100 * ms
			for range 50 {
				e.AddAt(now, s%4 == 0)
			}
			if p := e.PressureAt(now); !(p >= 0 && p <= MaxPressure) {
				t.Fatalf("PressureAt(%v) = %v", now, p)
			}
			if d := e.StretchAt(now, sec); d < sec || d > 10*sec+1 {
				t.Fatalf("StretchAt(%v, 1s) = %v", now, d)
			}
			if d := e.StretchAt(now, math.MaxInt64); d <= 0 {
				t.Fatalf("StretchAt(%v, max) = %v", now, d)
			}
			if e.n < 0 || e.s < 0 || e.s > e.n {
				t.Fatalf("%d of %d succeeded", e.s, e.n)
			}
		}
	})
}
