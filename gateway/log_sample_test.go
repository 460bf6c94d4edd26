package gateway

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/internal/logsample"
	"github.com/tideover/tideover/retry"
)

// Under load, the log has one line from time to time, with the number of suppressed ones.
func TestTheLogIsNotFlooded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b strings.Builder
		g := &Gateway{reporter: reporter{log: slog.New(slog.NewTextHandler(&b, nil))}}
		say := func(kind retry.EventKind, name, note string, by retry.Source) {
			g.emit(retry.Event{Kind: kind, Name: name, Note: note, By: by, Delay: time.Second, Err: fmt.Errorf("port %d", b.Len())})
		}
		for range 100 {
			say(retry.FailedOver, "gateway/a", "a → b: 503", 0)
			say(retry.FailedOver, "gateway/a", "a → b: down", 0)
			say(retry.FailedOver, "gateway/c", "c → b: 503", 0)
			say(retry.Waiting, "gateway/a", "", retry.ByServer)
		}
		if n := strings.Count(b.String(), "\n"); n != 4 {
			t.Errorf("%d lines, want one for each: %s", n, b.String())
		}
		time.Sleep(logsample.DefaultEvery)
		b.Reset()
		say(retry.FailedOver, "gateway/a", "a → b: 503", 0)
		say(retry.FailedOver, "gateway/a", "a → b: 503", 0)
		if text := b.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "suppressed=99") {
			t.Errorf("after a while: %s", text)
		}
		b.Reset()
		for range 5 {
			say(retry.GaveUp, "gateway/a", "", 0)
		}
		if n := strings.Count(b.String(), "\n"); n != 5 {
			t.Errorf("%d lines, want one for each request that failed", n)
		}
	})
}
