package pages

import (
	"strings"
	"testing"
	"time"
)

func TestSpan(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0 s", 0: "0 s", 400 * time.Millisecond: "0 s", 1600 * time.Millisecond: "2 s", 59 * time.Second: "59 s",
		65 * time.Second: "1 min 05 s", 59*time.Minute + 59*time.Second: "59 min 59 s", 2*time.Hour + 3*time.Minute: "2 h 03 min",
		8*24*time.Hour + time.Hour: "8 d 01 h",
	} {
		if got := SpacedDuration(d); got != want {
			t.Errorf("SpacedDuration(%v) = %q, want %q", d, got, want)
		}
	}
}

func TestExact(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-1: "0 s", 12 * time.Microsecond: "12 µs", 12 * time.Millisecond: "12 ms", 1234 * time.Millisecond: "1.23 s",
		12345 * time.Millisecond: "12.3 s", 90 * time.Second: "1 min 30 s",
	} {
		if got := Exact(d); got != want {
			t.Errorf("Exact(%v) = %q, want %q", d, got, want)
		}
	}
}

func TestTimesNameTheirZone(t *testing.T) {
	zone := time.FixedZone("CET", 3600)
	now := time.Date(2026, 2, 5, 23, 0, 0, 0, zone)
	for _, c := range []struct {
		name, got string
		want      []string
	}{
		{"ahead", string(in(now, now.Add(90*time.Second))), []string{`datetime="2026-02-05T22:01:30.000Z"`, "data-in", "in 1 min 30 s", "2026-02-05 23:01:30 CET (+01:00)"}},
		{"due", string(in(now, now)), []string{"due now"}},
		{"past", string(ago(now, now.Add(-time.Hour))), []string{"data-ago", "1 h 00 min ago"}},
		{"today", string(at(now, now.Add(-time.Hour))), []string{"22:00:00 CET"}},
		{"tomorrow", string(at(now, now.Add(2*time.Hour))), []string{"6 Feb 01:00:00 CET"}},
		{"going on", string(since(now, now.Add(-3*time.Second))), []string{"data-since", ">3 s<"}},
	} {
		for _, w := range c.want {
			if !strings.Contains(c.got, w) {
				t.Errorf("%s: %s has no %q", c.name, c.got, w)
			}
		}
	}
}

func TestRound(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		500 * time.Microsecond: "500 µs", 5 * time.Millisecond: "5 ms", 2 * time.Second: "2 s", time.Minute: "1 min", 90 * time.Second: "1 min 30 s", time.Hour: "1 h", 48 * time.Hour: "2 d",
	} {
		if got := Round(d); got != want {
			t.Errorf("Round(%v) = %q, want %q", d, got, want)
		}
	}
}
