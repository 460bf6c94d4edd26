package cli

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/control"
	"github.com/tideover/tideover/internal/textfmt"
)

// report prints the result of the move.
func (o *moveOptions) report(m moved) error {
	if len(m.LeftOut) > 0 {
		(&remote{io: o.io}).warn("%s", incomplete(m.LeftOut))
	}
	if o.json {
		text, err := json.Marshal(m)
		if err != nil {
			return err
		}
		_, err = o.io.Out.Write(append(visibleJSON(text), '\n'))
		return err
	}
	s := screenOf(o.io.Out)
	_, err := fmt.Fprintln(o.io.Out, strings.Join(renderMoved(m, &s), "\n"))
	return err
}

func renderMoved(m moved, s *screen) []string {
	total := 0
	for _, n := range m.Runs {
		total += n
	}
	verb := "moved"
	if m.DryRun {
		verb = "would move"
	}
	lines := []string{visible(fmt.Sprintf("%s %s from %s to %s", verb, textfmt.Plural(total, "run"), m.From, m.To))}
	fact := func(n int, name, colour string) {
		if n > 0 {
			lines = append(lines, fmt.Sprintf("  %s  %d", s.paint(colour, fmt.Sprintf("%-13s", name)), n))
		}
	}
	for _, state := range control.States() {
		fact(m.Runs[state], state, stateColours[state])
	}
	fact(m.Keys, "keys", "")
	fact(m.Schedules, "schedules", "")
	if m.Orphans > 0 {
		lines = append(lines, textfmt.Plural(m.Orphans, "attempt")+" had not ended and will be made again")
	}
	if len(m.Unreadable) > 0 {
		lines = append(lines, s.paint("31", visible("skipped, because they can't be read: "+strings.Join(slices.Sorted(slices.Values(m.Unreadable)), ", "))))
	}
	lines = append(lines, renderLeftOut(m.LeftOut, s)...)
	if m.DryRun {
		return append(lines, "nothing was written")
	}
	return append(lines,
		fmt.Sprintf("%s in %s; downtime %s", textfmt.RoundedSize(uint64(max(m.Bytes, 0))), textfmt.Plural(m.ToShards, "shard"), textfmt.CoarseDuration(m.Stood.Round(time.Millisecond))),
		"the old place is marked, so that no server opens it; nothing was deleted from it")
}
