package cli

import (
	"testing"
	"time"
)

func TestSize(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]int64{
		"0": 0, "500": 500, "500B": 500, "10kB": 1e4, "64KiB": 64 << 10, "64MiB": 64 << 20, "1GiB": 1 << 30, "2TB": 2e12,
	} {
		var got size
		if err := got.Set(s); err != nil || int64(got) != want {
			t.Errorf("Set(%q) = %d, %v, want %d", s, got, err, want)
		}
		var again size
		if err := again.Set(got.String()); err != nil || again != got {
			t.Errorf("%q prints as %q, which is %d, %v", s, got.String(), again, err)
		}
	}
	for _, s := range []string{"", "-1", "1.5MiB", "MiB", "1 MiB", "9999999999TiB", "many"} {
		if err := new(size).Set(s); err == nil {
			t.Errorf("Set(%q) accepted", s)
		}
	}
}

func TestDuration(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]time.Duration{"0s": 0, "500ms": 500 * time.Millisecond, "1d12h": 36 * time.Hour} {
		var got duration
		if err := got.Set(s); err != nil || time.Duration(got) != want {
			t.Errorf("Set(%q) = %v, %v, want %v", s, time.Duration(got), err, want)
		}
	}
	for _, s := range []string{"", "5", "-1s", "soon"} {
		if err := new(duration).Set(s); err == nil {
			t.Errorf("Set(%q) accepted", s)
		}
	}
}
