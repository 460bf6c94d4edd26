package server

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/config"
	"github.com/tideover/tideover/cmd/tideover/internal/storm"
)

// TestANewRuleOfTheAlarmIsUsed has a load that is a storm only by the rule of the
// next configuration.
func TestANewRuleOfTheAlarmIsUsed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var n uint64
		s := new(server)
		s.alarm = storm.New(storm.Rule{Amplification: 10, For: 30 * time.Second, MinAttempts: 1}, func() map[storm.Subject]storm.Count {
			n++
			return map[storm.Subject]storm.Count{{Layer: "workflow", Name: "order"}: {Attempts: 5 * n, First: n}}
		}, func(storm.Change) {})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- s.alarm.Run(ctx) }()
		time.Sleep(2 * time.Minute)
		if got := s.alarm.Storms(); len(got) != 0 {
			t.Errorf("by the first rule: %v", got)
		}
		s.use(&config.Config{Alarm: storm.Rule{Amplification: 4, For: 30 * time.Second, MinAttempts: 1}})
		time.Sleep(2 * time.Minute)
		if got := s.alarm.Storms(); len(got) != 1 {
			t.Errorf("by the next one: %v", got)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
