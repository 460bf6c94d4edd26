package contend_test

import (
	"context"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/contend"
	"github.com/tideover/tideover/retry"
)

func parse(t *testing.T, text string) retry.Policy {
	t.Helper()
	p, err := retry.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestMustTakesAConfigOrItsText(t *testing.T) {
	a, b := contend.Must("contention attempts=2"), contend.Must(contend.Config{Policy: parse(t, "contention attempts=2")})
	if a.Policy() != b.Policy() {
		t.Errorf("Must of the text has %v, of the config %v", a.Policy(), b.Policy())
	}
	defer func() {
		if err, _ := recover().(error); err == nil {
			t.Error("Must of a config that is not valid did not panic with an error")
		}
	}()
	contend.Must(contend.Config{Scale: -1})
}

func TestAConfigIsRefusedWithAllItsProblems(t *testing.T) {
	bad := parse(t, "contention")
	bad.Base = -1
	_, err := contend.New(contend.Config{Policy: bad, Scale: math.NaN()}, contend.WithRand(nil), nil)
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"base:", "scale:", "WithRand: nil", "option: nil"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not name %q", err, want)
		}
	}
	for text, word := range map[string]string{
		"fixed(0s) attempts=3":      "base above zero",
		"contention reset-after=1m": "reset-after",

		"decorrelated(10ms..1s) attempts=3": "decorrelated",
	} {
		_, err := contend.New(contend.Config{Policy: parse(t, text), Scale: 1})
		if err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%s: %v, want it to say %q", text, err, word)
		}
	}
}

func TestForScalesWithinBounds(t *testing.T) {
	const ms = time.Millisecond
	tests := []struct {
		name      string
		policy    string
		scale     float64
		attempt   time.Duration
		base, cap time.Duration
	}{
		{"without scale it stays", "contention", 0, 200 * ms, 10 * ms, time.Second},
		{"nothing measured yet", "contention", 1, 0, 10 * ms, time.Second},
		{"near by it never shrinks", "contention", 1, ms, 10 * ms, time.Second},
		{"base and cap grow alike", "contention", 1, 40 * ms, 40 * ms, 4 * time.Second},
		{"by the scale", "contention", 2.5, 40 * ms, 100 * ms, 10 * time.Second},
		{"no cap stays none", "exponential(10ms) attempts=3", 1, 20 * ms, 20 * ms, 0},
		// (30s - 7×0.5s) / 0.945s = 28.04
		{"until all would not fit", "contention", 5, 500 * ms, 280423280, 28042328042},
		{"and attempts that fill the time leave it", "contention", 5, 10 * time.Second, 10 * ms, time.Second},
	}
	for _, tt := range tests {
		c := contend.Config{Policy: parse(t, tt.policy), Scale: tt.scale}
		p := c.For(tt.attempt)
		if p.Base != tt.base || p.Cap != tt.cap {
			t.Errorf("%s: For(%v) is %v..%v, want %v..%v", tt.name, tt.attempt, p.Base, p.Cap, tt.base, tt.cap)
		}
	}
}

func FuzzForKeepsItsBounds(f *testing.F) {
	f.Add(int64(200e6), 1.0, 7, int64(10e6), int64(30e9))
	f.Add(int64(1), 999.0, 2, int64(1), int64(1))
	f.Fuzz(func(t *testing.T, attempt int64, scale float64, attempts int, base, total int64) {
		p, _ := retry.Preset("contention")
		p.Attempts, p.Base, p.TotalTimeout = attempts, time.Duration(base), time.Duration(total)
		c := contend.Config{Policy: p, Scale: scale}
		if c.Validate() != nil || attempts > 100 {
			return
		}
		got := c.For(time.Duration(attempt))
		if err := got.Validate(); err != nil {
			t.Fatalf("%v scaled for %v is %v: %v", p, time.Duration(attempt), got, err)
		}
		if got.Base < p.Base || got.Cap < p.Cap {
			t.Fatalf("%v shrank to %v", p, got)
		}
		sum := time.Duration(0)
		for k := 1; k <= got.Retries(); k++ {
			_, hi := got.Bounds(k)
			sum += min(hi, got.TotalTimeout)
		}
		if got.Base > p.Base && sum > got.TotalTimeout+time.Duration(got.Attempts)*time.Microsecond {
			t.Fatalf("%v waits up to %v", got, sum)
		}
	})
}

func TestThePaceFollowsWhatIsMeasured(t *testing.T) {
	var p contend.Pace
	if p.Attempt() != 0 {
		t.Error("a pace out of nothing")
	}
	p.Observe(80)
	if p.Attempt() != 80 {
		t.Errorf("first reading: %v, want it whole", p.Attempt())
	}
	p.Observe(160)
	if p.Attempt() != 90 {
		t.Errorf("second reading: %v, want an eighth of it", p.Attempt())
	}
	for range 100 {
		p.Observe(-5)
	}
	if p.Attempt() < 1 {
		t.Errorf("%v, want it above zero", p.Attempt())
	}
}

func TestAWriterWaitsInAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, err := contend.New(contend.Config{Policy: parse(t, "contention"), Scale: 1}, contend.WithRand(func() uint64 { return 0 }))
		if err != nil {
			t.Fatal(err)
		}
		var at []time.Duration
		start := time.Now()
		err = w.Do(t.Context(), func(_ context.Context, try contend.Try) error {
			at = append(at, time.Since(start))
			time.Sleep(200 * time.Millisecond)
			if try.Number < 4 {
				return contend.Lost(nil, nil)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		want := []time.Duration{0, 400e6, 1000e6, 2000e6} // waits of 200, 400 and 800 ms
		for i := range want {
			if at[i] != want[i] {
				t.Fatalf("attempts at %v, want %v", at, want)
			}
		}
		if got := w.Policy().Base; got != 200*time.Millisecond {
			t.Errorf("base %v, want 200ms", got)
		}
	})
}
