package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/tideover/tideover/cmd/tideover/internal/plan"
	"github.com/tideover/tideover/cmd/tideover/internal/process"
	"github.com/tideover/tideover/cmd/tideover/internal/simulate"
	"github.com/tideover/tideover/internal/textfmt"
	"github.com/tideover/tideover/sim"
)

// run simulates all policies. A signal ends the simulation at once.
func (o *simOptions) run(cmd *cobra.Command, io Streams, f simulate.File) (*sim.Report, error) {
	ctx, stop := contextUntilSignal(cmd.Context())
	defer stop()
	total := len(f.Policies) * o.seeds
	p := newSimProgress(io.Err, total)
	report, err := sim.Run(ctx, f.Scenario, f.Policies, sim.Options{
		Seed: o.seed, Seeds: o.seeds, Workers: o.workers, Progress: p.step,
	})
	done := p.finish()
	if interrupted, ok := errors.AsType[*interruptedError](context.Cause(ctx)); ok && err != nil {
		return nil, &codedError{fmt.Errorf("interrupted after %d of %s: nothing was written", done, textfmt.Plural(total, "run")), codeSignal + int(interrupted.signal)}
	}
	if err != nil {
		return nil, &codedError{err, CodeOwn}
	}
	return report, nil
}

// write writes the table, chart and page that the flags select. If a file can't be written, it
// still writes the rest.
func (o *simOptions) write(out *os.File, v *simulate.View) error {
	var drawing, page, text bytes.Buffer
	var err error
	if o.svg != "" {
		err = simulate.SVG(&drawing, v)
	}
	if o.html != "" {
		err = errors.Join(err, simulate.HTML(&page, v))
	}
	switch {
	case o.svg == "-":
		text = drawing
	case o.json:
		e := json.NewEncoder(&text)
		e.SetIndent("", "  ")
		err = errors.Join(err, e.Encode(v.Report))
		text = *bytes.NewBuffer(visibleJSON(text.Bytes()))
	default:
		s := planStyle(out, planOptions{ascii: o.ascii})
		style := simulate.Style{Width: s.Width, ASCII: s.ASCII, Colour: s.Colour}
		err = errors.Join(err, simulate.Text(&text, v, style))
	}
	if err != nil {
		return err
	}
	_, err = out.Write(text.Bytes())
	return errors.Join(err, writeTo("svg", o.svg, drawing.Bytes()), writeTo("html", o.html, page.Bytes()))
}

// writeTo writes data to the file that a flag names. It does nothing if file is empty or -.
func writeTo(flag, file string, data []byte) error {
	if file == "" || file == "-" {
		return nil
	}
	if err := plan.WriteFile(file, data); err != nil {
		return fmt.Errorf("--%s: %w", flag, err)
	}
	return nil
}

// command returns the command line that reproduces the report.
func (o *simOptions) command(name string) string {
	words := []string{"tideover", "sim", name}
	for _, p := range o.policies {
		words = append(words, "--policy", p)
	}
	return textfmt.ShellWords(append(words, "--seed", fmt.Sprint(o.seed), "--seeds", fmt.Sprint(o.seeds)))
}

// progressTimes says when the progress first appears, and how often it is updated.
type progressTimes struct{ delay, interval time.Duration }

var (
	terminalProgress = progressTimes{delay: 500 * time.Millisecond, interval: 100 * time.Millisecond}
	fileProgress     = progressTimes{delay: 5 * time.Second, interval: 10 * time.Second}
)

// simProgress shows the progress of the runs: on a terminal in one line, elsewhere in a line from
// time to time.
type simProgress struct {
	out      *os.File
	terminal bool
	times    progressTimes
	about    string      // "about " if the total is an estimate
	first    *time.Timer // shows the progress after the delay, even if no run has ended by then

	mu    sync.Mutex
	done  int
	total int
	next  time.Time // when the line may be updated again
	said  bool      // a line was printed
	ended bool      // finish was called
}

func newSimProgress(out *os.File, total int) *simProgress {
	p := &simProgress{out: out, terminal: process.IsTerminal(out), times: fileProgress, total: total}
	if p.terminal {
		p.times = terminalProgress
	}
	p.next = time.Now().Add(p.times.delay)
	p.first = time.AfterFunc(p.times.delay, p.printProgress)
	return p
}

// step records how many runs have ended, and updates the progress line if it is due.
func (p *simProgress) step(done, total int) {
	p.mu.Lock()
	p.done, p.total = done, total
	due := time.Now().After(p.next)
	p.mu.Unlock()
	if due {
		p.printProgress()
	}
}

func (p *simProgress) printProgress() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended || p.said && time.Now().Before(p.next) {
		return
	}
	format := "simulated %d of %s%d runs\n"
	if p.terminal {
		format = "\rsimulated %d of %s%d runs"
	}
	fmt.Fprintf(p.out, format, p.done, p.about, p.total)
	p.next, p.said = time.Now().Add(p.times.interval), true
}

// finish removes the progress line and returns the number of finished runs.
func (p *simProgress) finish() int {
	p.first.Stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	if p.said && p.terminal {
		fmt.Fprint(p.out, clearLine)
	}
	return p.done
}
