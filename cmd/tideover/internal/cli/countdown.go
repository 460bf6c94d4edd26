package cli

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/process"
)

// countdown is one line of a terminal that rewrites itself until it is stopped,
// and then is erased.
type countdown struct {
	out   io.Writer
	file  *os.File // the terminal that out writes to
	label string   // before the time
	tail  string   // behind it
	until time.Time
	mu    sync.Mutex // held while drawing
	shown string     // what the line shows; empty if it is not ours
	quit  chan struct{}
	done  chan struct{}
}

// clearLine moves to the start of the line and clears it.
const clearLine = "\r\x1b[K"

func startCountdown(out io.Writer, file *os.File, label, tail string, until time.Time) *countdown {
	c := &countdown{out: out, file: file, label: label, tail: tail, until: until, quit: make(chan struct{}), done: make(chan struct{})}
	go c.run()
	return c
}

func (c *countdown) run() {
	defer close(c.done)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		c.draw()
		select {
		case <-tick.C:
		case <-c.quit:
			return
		}
	}
}

// draw brings the line up to date, unless the terminal has become somebody
// else's, as after Ctrl-Z and bg.
func (c *countdown) draw() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !process.Foreground(c.file) {
		c.shown = ""
		return
	}
	text := fit(c.label+remaining(time.Until(c.until))+c.tail, columns(c.file)-1)
	if text != c.shown {
		c.shown = text
		fmt.Fprint(c.out, clearLine+text)
	}
}

// fit cuts the text to the width, because a line that wraps can't be rewritten.
func fit(text string, width int) string {
	if width <= 0 {
		return text // the terminal does not say
	}
	return text[:min(len(text), width)]
}

// erase clears the line, so that another may be written in its place.
func (c *countdown) erase() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.shown != "" {
		c.shown = ""
		fmt.Fprint(c.out, clearLine)
	}
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
