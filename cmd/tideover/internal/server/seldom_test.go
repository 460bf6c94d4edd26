package server

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestTheSameTroubleIsSaidSeldom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		log := newSeldom(slog.New(slog.NewTextHandler(&text, nil)))
		for range 10 {
			for shard := range 3 {
				log.Error("can't work", "shard", shard, "error", "away")
			}
			log.With("a", "b").Error("can't work", "shard", 0, "error", "away")
			log.WithGroup("g").Info("fine")
		}
		if n := strings.Count(text.String(), "can't work"); n != 3 {
			t.Errorf("trouble was said %d times:\n%s", n, text.String())
		}
		if n := strings.Count(text.String(), "fine"); n != 10 {
			t.Errorf("what is no trouble was said %d times", n)
		}
		log.Error("can't work", "shard", 0, "error", "full") // which is another
		time.Sleep(time.Minute)
		log.Error("can't work", "shard", 0, "error", "away")
		if n := strings.Count(text.String(), "can't work"); n != 5 {
			t.Errorf("trouble was said %d times:\n%s", n, text.String())
		}
		for i := range 2 * maxSaid {
			log.Error("more", "number", i)
		}
		if h, ok := log.Handler().(seldom); !ok || len(h.said.last) > maxSaid {
			t.Error("it remembers too much")
		}
	})
}
