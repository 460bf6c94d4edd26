package cli

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// countdown is one line of a terminal that rewrites itself until it is stopped,
// and then is erased.
type countdown struct {
	out   io.Writer
	label string
	until time.Time
	mu    sync.Mutex // held while drawing
	quit  chan struct{}
	done  chan struct{}
}

// clearLine moves to the start of the line and clears it.
const clearLine = "\r\x1b[K"

func startCountdown(out io.Writer, label string, until time.Time) *countdown {
	c := &countdown{out: out, label: label, until: until, quit: make(chan struct{}), done: make(chan struct{})}
	go c.run()
	return c
}

func (c *countdown) run() {
	defer close(c.done)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	shown := ""
	for {
		if text := remaining(time.Until(c.until)); text != shown {
			shown = text
			c.mu.Lock()
			fmt.Fprint(c.out, clearLine+c.label+text)
			c.mu.Unlock()
		}
		select {
		case <-tick.C:
		case <-c.quit:
			return
		}
	}
}

// erase clears the line, so that another may be written in its place.
func (c *countdown) erase() {
	c.mu.Lock()
	defer c.mu.Unlock()
	fmt.Fprint(c.out, clearLine)
}

func (c *countdown) stop() {
	close(c.quit)
	<-c.done
	c.erase()
}

// remaining writes what is left, in tenths of a second near the end.
func remaining(d time.Duration) string {
	d = max(d, 0)
	if d < 10*time.Second {
		return fmt.Sprintf("%.1fs", d.Seconds())
	}
	return d.Round(time.Second).String()
}
