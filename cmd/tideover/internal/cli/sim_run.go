package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/tideover/tideover/cmd/tideover/internal/plan"
	"github.com/tideover/tideover/cmd/tideover/internal/process"
	"github.com/tideover/tideover/cmd/tideover/internal/simulate"
	"github.com/tideover/tideover/internal/textfmt"
	"github.com/tideover/tideover/sim"
)

// run simulates. A signal ends it at once.
func (o *simOptions) run(cmd *cobra.Command, io Streams, f simulate.File) (*sim.Report, error) {
	r := &remote{io: io}
	ctx, stop := r.context(cmd)
	defer stop()
	total := len(f.Policies) * o.seeds
	p := newSimProgress(io.Err, total)
	report, err := sim.Run(ctx, f.Scenario, f.Policies, sim.Options{
		Seed: o.seed, Seeds: o.seeds, Workers: o.workers, Progress: p.step,
	})
	done := p.end()
	if told, ok := errors.AsType[*toldToEnd](context.Cause(ctx)); ok && err != nil {
		return nil, &codedError{fmt.Errorf("interrupted after %d of %s; nothing was written", done, textfmt.Plural(total, "run")), 128 + int(told.signal)}
	}
	if err != nil {
		return nil, &codedError{err, codeImpossible}
	}
	return report, nil
}

// write writes all that was asked for. That a file can't be written does not take
// the rest from somebody who may have waited for long.
func (o *simOptions) write(out *os.File, v *simulate.View) error {
	var drawing, page bytes.Buffer
	if o.svg != "" {
		if err := simulate.SVG(&drawing, v); err != nil {
			return err
		}
	}
	if o.html != "" {
		if err := simulate.HTML(&page, v); err != nil {
			return err
		}
	}
	text, err := drawing.Bytes(), error(nil)
	if o.svg != "-" {
		text, err = o.text(out, v)
	}
	if err != nil {
		return err
	}
	_, err = out.Write(text)
	return errors.Join(err, writeTo("svg", o.svg, drawing.Bytes()), writeTo("html", o.html, page.Bytes()))
}

// text returns the table or JSON.
func (o *simOptions) text(out *os.File, v *simulate.View) ([]byte, error) {
	var b bytes.Buffer
	if !o.json {
		s := planStyle(out, planOptions{ascii: o.ascii})
		err := simulate.Text(&b, v, simulate.Style{Width: s.Width, ASCII: s.ASCII, Colour: s.Colour})
		return b.Bytes(), err
	}
	e := json.NewEncoder(&b)
	e.SetIndent("", "  ")
	err := e.Encode(v.Report)
	return visibleJSON(b.Bytes()), err
}

// writeTo writes the file that a flag names, if it does.
func writeTo(flag, file string, data []byte) error {
	if file == "" || file == "-" {
		return nil
	}
	if err := plan.WriteFile(file, data); err != nil {
		return fmt.Errorf("--%s: %w", flag, err)
	}
	return nil
}

// command is the command line that shows the same again.
func (o *simOptions) command(name string) string {
	words := []string{"tideover", "sim", shellWord(name)}
	for _, p := range o.policies {
		words = append(words, "--policy", shellWord(p))
	}
	return strings.Join(append(words, "--seed", fmt.Sprint(o.seed), "--seeds", fmt.Sprint(o.seeds)), " ")
}

// How long a person waits without a word, and how often the word changes then.
const (
	simPatience = 500 * time.Millisecond
	simRefresh  = 100 * time.Millisecond
)

// simProgress tells a person at a terminal how far the runs are.
type simProgress struct {
	out   *os.File // nil if nobody is there
	first *time.Timer

	mu    sync.Mutex
	done  int
	total int
	next  time.Time // when to say something
	said  bool
	ended bool
}

func newSimProgress(out *os.File, total int) *simProgress {
	p := &simProgress{total: total, next: time.Now().Add(simPatience)}
	if process.IsTerminal(out) {
		p.out = out
	}
	p.first = time.AfterFunc(simPatience, p.say) // the first run may take long
	return p
}

// step is called after each run.
func (p *simProgress) step(done, total int) {
	p.mu.Lock()
	p.done, p.total = done, total
	due := time.Now().After(p.next)
	p.mu.Unlock()
	if due {
		p.say()
	}
}

func (p *simProgress) say() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.out != nil && !p.ended {
		fmt.Fprintf(p.out, "\rsimulated %d of %d runs", p.done, p.total)
		p.next, p.said = time.Now().Add(simRefresh), true
	}
}

// end takes back what was said, and returns how many runs there were.
func (p *simProgress) end() int {
	p.first.Stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	if p.said {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
	return p.done
}
