package cli

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/process"
	"github.com/tideover/tideover/internal/textfmt"
)

// progressPrinter prints lines about a command to standard error, and a countdown on a terminal.
type progressPrinter struct {
	out   io.Writer
	file  *os.File // the file that out writes to
	quiet bool
	draw  bool                // show a countdown
	clean func(string) string // applied to each line before it is printed

	mu        sync.Mutex
	countdown *countdown // nil if none is running
}

// printInfo prints a line, unless --quiet is given.
func (p *progressPrinter) printInfo(format string, args ...any) {
	if !p.quiet {
		p.warn(fmt.Sprintf(format, args...))
	}
}

// warn prints a line, also with --quiet.
func (p *progressPrinter) warn(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.countdown != nil {
		p.countdown.erase()
	}
	fmt.Fprintf(p.out, "tideover: %s\n", p.clean(text))
}

// showCountdown starts a countdown to until, if this process is in the foreground of the terminal
// and the delay is at least a second. label and tail are the texts before and after the time.
func (p *progressPrinter) showCountdown(label, tail string, delay time.Duration, until time.Time) {
	if !p.draw || delay < time.Second || !process.Foreground(p.file) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.countdown = &countdown{out: p.out, file: p.file, label: label, tail: tail, until: until, quit: make(chan struct{})}
	p.countdown.running.Go(p.countdown.run)
}

// stopCountdown stops the countdown, if there is one.
func (p *progressPrinter) stopCountdown() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.countdown != nil {
		p.countdown.stop()
		p.countdown = nil
	}
}

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

	running sync.WaitGroup // the goroutine that redraws the line
}

// clearLine moves the cursor to the start of the line and clears the line.
const clearLine = "\r\x1b[K"

func (c *countdown) run() {
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

// draw redraws the line if its text has changed. It draws nothing while this process is in the
// background of the terminal, for example after Ctrl-Z and bg.
func (c *countdown) draw() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !process.Foreground(c.file) {
		c.shown = ""
		return
	}
	text := c.label + formatRemaining(time.Until(c.until)) + c.tail
	if width, _ := terminalSize(c.file); width > 1 {
		text = textfmt.ClipWithin(text, width-1, "") // a line that wraps can't be redrawn
	}
	if text != c.shown {
		c.shown = text
		fmt.Fprint(c.out, clearLine+text)
	}
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
	c.running.Wait()
	c.erase()
}

// formatRemaining formats a duration, rounded to seconds; below 10 s to tenths of a second.
func formatRemaining(d time.Duration) string {
	d = max(d, 0)
	if d < 10*time.Second {
		return fmt.Sprintf("%.1fs", d.Seconds())
	}
	return d.Round(time.Second).String()
}
