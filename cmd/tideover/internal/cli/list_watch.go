package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/tideover/tideover/internal/textfmt"
)

// watchEvery is the interval at which --watch updates a list.
const watchEvery = time.Second

// listWatch shows a list every second: in place on a terminal, otherwise only its changes.
type listWatch[T any] struct {
	resultPrinter
	get       func(context.Context) (T, error)
	isAway    func(error) bool // reports whether get may succeed again after this error
	warnsAway bool             // print a warning if get fails and the output is not a terminal
	render    func(T, *screen) []string
	changes   func(T, printChange) // calls printChange for each entry

	height int               // number of lines that redraw has written
	seen   map[string]string // last printed state of each entry
	warned bool              // a warning was printed, and get has failed ever since
	failed error             // the first entry that could not be printed
}

// printChange prints an entry if its state differs from the state that was last printed for this
// key. With --json it prints entry as JSON, otherwise line.
type printChange func(key, state string, entry any, line string)

// run shows the list until the context ends. It returns an error if the first call of get fails, or
// if a later call fails with an error for which isAway returns false.
func (w *listWatch[T]) run(ctx context.Context) error {
	w.seen = map[string]string{}
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for first := true; ; first = false {
		list, err := w.get(ctx)
		if err != nil && (first || !w.isAway(err)) {
			return err
		}
		if err := w.update(list, err); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (w *listWatch[T]) update(list T, away error) error {
	s := screenOf(w.io.Out)
	inPlace := s.terminal && !w.json
	switch {
	case inPlace && away != nil:
		return w.redraw([]string{textfmt.ClipWithin(visible(away.Error()), s.width, "…")})
	case inPlace:
		return w.redraw(w.render(list, &s))
	case away == nil || !w.warnsAway:
		w.warned = false
		w.changes(list, w.printChange)
	case !w.warned:
		w.warned = true
		w.warn("%s", away)
	}
	return w.failed
}

func (w *listWatch[T]) printChange(key, state string, entry any, line string) {
	if w.seen[key] != state && w.failed == nil {
		w.seen[key] = state
		w.failed = w.printJSONOrLine(entry, "%s", line)
	}
}

// redraw writes lines to the terminal, in place of the lines of the previous call.
func (w *listWatch[T]) redraw(lines []string) error {
	if _, height := terminalSize(w.io.Out); height > 2 && len(lines) > height-1 {
		lines = lines[:height-1] // a line that has scrolled away can't be redrawn
	}
	text := strings.Join(lines, "\x1b[K\n") + "\x1b[K\n\x1b[J"
	if w.height > 0 {
		text = fmt.Sprintf("\x1b[%dF", w.height) + text
	}
	w.height = len(lines)
	_, err := w.io.Out.WriteString(text)
	return err
}
