package logsample_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/internal/logsample"
)

func TestSampler(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 11, 15, 8, 0, 0, 0, time.UTC)
	s := logsample.Sampler[string]{Every: time.Minute, Max: 2}
	for i, c := range []struct {
		key        string
		after      time.Duration
		ok         bool
		suppressed int
	}{
		{"a", 0, true, 0},
		{"a", 0, false, 0},
		{"b", 1 * time.Second, true, 0},
		{"a", 59 * time.Second, false, 0},
		{"a", 60 * time.Second, true, 2}, // a period later, although two keys are kept
		{"a", 61 * time.Second, false, 0},
		{"b", 62 * time.Second, true, 0},
		{"c", 63 * time.Second, true, 0}, // a third key drops the others
		{"a", 64 * time.Second, true, 0},
		{"a", 65 * time.Second, false, 0},
	} {
		if ok, suppressed := s.Allow(c.key, start.Add(c.after)); ok != c.ok || suppressed != c.suppressed {
			t.Errorf("%d: Allow(%q) after %v = %v, %d, want %v, %d", i, c.key, c.after, ok, suppressed, c.ok, c.suppressed)
		}
	}
}

func TestSamplerIsBounded(t *testing.T) {
	t.Parallel()
	var s logsample.Sampler[int]
	now := time.Date(2026, 11, 15, 8, 0, 0, 0, time.UTC)
	for i := range 3*logsample.DefaultMax + 1 {
		if ok, _ := s.Allow(i, now); !ok {
			t.Fatalf("the first line of %d was suppressed", i)
		}
	}
	if n := s.Len(); n != 1 {
		t.Errorf("%d keys are kept, want 1", n)
	}
	if ok, _ := s.Allow(3*logsample.DefaultMax, now.Add(logsample.DefaultEvery-1)); ok {
		t.Error("a line was allowed before the default period ended")
	}
}

func TestHandler(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		log := slog.New(logsample.NewHandler(slog.NewTextHandler(&text, nil), &logsample.Sampler[string]{Every: time.Minute}))
		for range 10 {
			for shard := range 3 {
				log.Error("can't work", "shard", shard, "error", "away")
			}
			log.With("a", "b").Error("can't work", "shard", 0, "error", "away")
			log.WithGroup("g").Info("fine")
		}
		if n := strings.Count(text.String(), "can't work"); n != 3 {
			t.Errorf("%d errors, want one for each shard:\n%s", n, text.String())
		}
		if n := strings.Count(text.String(), "fine"); n != 10 {
			t.Errorf("%d lines below a warning, want all 10", n)
		}
		log.Error("can't work", "shard", 0, "error", "full") // another attribute
		time.Sleep(time.Minute)
		log.Error("can't work", "shard", 0, "error", "away")
		if n := strings.Count(text.String(), "can't work"); n != 5 {
			t.Errorf("%d errors, want 5:\n%s", n, text.String())
		}
	})
}
