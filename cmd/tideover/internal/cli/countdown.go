package cli

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/process"
)

// countdown is a line on a terminal that shows the time left. It is redrawn every 100 ms until stop
// is called, and then erased.
type countdown struct {
	out   io.Writer
	file  *os.File // the terminal that out writes to
	label string   // text before the time
	tail  string   // text after the time
	until time.Time
	mu    sync.Mutex // held while drawing
	shown string     // text on the screen; empty if nothing is drawn
	quit  chan struct{}
	done  chan struct{}
}

// clearLine moves the cursor to the start of the line and clears the line.
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

// draw redraws the line if its text has changed. It draws nothing while another process has the
// terminal, as after Ctrl-Z and bg.
func (c *countdown) draw() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !process.Foreground(c.file) {
		c.shown = ""
		return
	}
	text := clipToWidth(c.label+formatRemaining(time.Until(c.until))+c.tail, columns(c.file)-1)
	if text != c.shown {
		c.shown = text
		fmt.Fprint(c.out, clearLine+text)
	}
}

// clipToWidth cuts text to the width of the terminal, because a line that wraps can't be redrawn. A
// width of 0 means unknown, and cuts nothing.
func clipToWidth(text string, width int) string {
	if width <= 0 {
		return text
	}
	return text[:min(len(text), width)]
}

// erase clears the line, so that other text can be written in its place.
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

// formatRemaining formats a duration in seconds; below 10 s in tenths.
func formatRemaining(d time.Duration) string {
	d = max(d, 0)
	if d < 10*time.Second {
		return fmt.Sprintf("%.1fs", d.Seconds())
	}
	return d.Round(time.Second).String()
}
