//go:build !linux

package gateway

import "time"

// clock is a ticker.
type clock struct{ ticker *time.Ticker }

func newClock(every time.Duration) (*clock, error) { return &clock{time.NewTicker(every)}, nil }

func (c *clock) wait() error {
	<-c.ticker.C
	return nil
}

func (c *clock) stop() { c.ticker.Stop() }
