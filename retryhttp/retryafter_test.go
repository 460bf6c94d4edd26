package retryhttp_test

import (
	"testing"
	"time"

	"github.com/tideover/tideover/retryhttp"
)

func TestH18RetryAfterFollowsBacklogAndPace(t *testing.T) {
	const second, ms = time.Second, time.Millisecond
	// Ten at once, two seconds each: a place becomes free every 200 milliseconds.
	paced := func() *retryhttp.Refusals {
		r := new(retryhttp.Refusals)
		for i := range 100 {
			end := time.Duration(i) * 200 * ms
			r.Serve(end-2*second, end)
		}
		return r
	}
	const now = 99 * 200 * ms
	for _, tt := range []struct {
		name            string
		at              time.Duration
		atOnce, waiting int
		u               float64
		want            time.Duration
	}{
		{"no request waits", now, 10, 0, 0, 200 * ms},
		{"twenty wait", now, 10, 20, 0, 4200 * ms},
		{"as late as can be", now, 10, 20, 1, 5040 * ms},
		{"half as many at once", now, 5, 20, 0, 8400 * ms},
		{"more than anybody is sent away for", now, 10, 1 << 40, 0, 50 * second},
		{"no request ended for three seconds", now + 3*second, 10, 20, 0, 7 * second},
		{"a maximum that is not known", now, 0, 0, 0, 2 * second},
	} {
		if got := paced().Wait(tt.at, tt.atOnce, tt.waiting, 50*second, tt.u); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
	if got := new(retryhttp.Refusals).Wait(0, 4, 1, 50*second, 0); got != 500*ms {
		t.Errorf("before anybody was served: %v, want two places of a second with four at once", got)
	}
	// A few requests that are far apart do not make the service time longer.
	rare := new(retryhttp.Refusals)
	for i := range 10 {
		rare.Serve(time.Duration(i)*time.Hour, time.Duration(i)*time.Hour+20*ms)
	}
	rare.Serve(10*time.Hour, 10*time.Hour+20*ms)
	if got := rare.Wait(10*time.Hour+20*ms, 2, 0, 50*second, 0); got != 10*ms {
		t.Errorf("after rare requests: %v, want 10ms", got)
	}
}

func TestH18TheRefusedDoNotComeBackTogether(t *testing.T) {
	const ms = time.Millisecond
	r := new(retryhttp.Refusals)
	for i := range 50 {
		r.Serve(time.Duration(i)*10*ms, time.Duration(i+1)*10*ms)
	}
	// A thousand clients are spread, ten milliseconds apart.
	now, back := 500*ms, map[time.Duration]int{}
	for i := range 1000 {
		wait := r.Wait(now, 1, 0, time.Minute, 0)
		back[wait.Truncate(time.Second)]++
		if want := time.Duration(i+1) * 10 * ms; wait != want {
			t.Fatalf("number %d was sent away for %v, want %v", i, wait, want)
		}
	}
	if len(back) != 11 || back[0] != 99 || back[5*time.Second] != 100 {
		t.Errorf("they come back at %v, want 100 in each second", back)
	}
	// Once their times have passed, waits are short again.
	later := now + 20*time.Second
	r.Serve(later-10*ms, later)
	if wait := r.Wait(later, 1, 0, time.Minute, 0); wait != 10*ms {
		t.Errorf("later: %v, want 10ms", wait)
	}
}

func FuzzRefusals(f *testing.F) {
	f.Add(int64(time.Second), int64(time.Second), uint32(10), uint32(3), int64(time.Minute), 0.5)
	f.Add(int64(1), int64(1<<62), uint32(0), uint32(1<<31), int64(1), 0.99)
	f.Fuzz(func(t *testing.T, took, idle int64, atOnce, waiting uint32, most int64, u float64) {
		if !(u >= 0 && u < 1) {
			u = 0.5
		}
		longest := max(time.Duration(most&(1<<61-1)), time.Millisecond)
		var r retryhttp.Refusals
		start := time.Duration(took & (1<<61 - 1))
		r.Serve(0, start)
		now, last := start+time.Duration(idle&(1<<61-1)), time.Duration(0)
		for range 3 {
			got := r.Wait(now, int(atOnce), int(waiting), longest, u)
			if got < time.Millisecond || got < last || float64(got) > float64(longest)*1.2000001 {
				t.Fatalf("Wait = %v after %v, want at least a millisecond, not before those refused earlier, and at most %v and a fifth", got, last, longest)
			}
			last = got
		}
	})
}
