package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tideover/tideover/cmd/tideover/internal/client"
	"github.com/tideover/tideover/internal/textfmt"
)

// watch keeps the list up to date. Whoever keeps sessions is looked for anew each
// time: watches come and go.
func (o *sessionsOptions) watch(cmd *cobra.Command) error {
	ctx, stop := o.context(cmd)
	defer stop()
	w := &sessionsWatcher{sessionsOptions: o, seen: map[string]string{}}
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		if err := w.look(ctx); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// sessionsWatcher shows a list again and again.
type sessionsWatcher struct {
	*sessionsOptions
	redrawn
	seen  map[string]string // what was last said of each session
	notes []string          // that were last said
}

func (w *sessionsWatcher) look(ctx context.Context) error {
	places, err := w.places()
	if err != nil {
		return err
	}
	defer closePlaces(places)
	all, unwatched, notes, err := w.everything(ctx, places)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if _, away := errors.AsType[*client.UnreachableError](err); away {
		notes = append(notes, err.Error()) // they may be back
	} else if err != nil {
		return err
	}
	all, hidden := w.recent(all, time.Now())
	s := screenOf(w.io.Out)
	if !s.terminal || w.json {
		return w.changes(all, notes)
	}
	return w.draw(all, slices.Concat(notes, hints(unwatched), hiddenHint(hidden)), &s)
}

// draw writes the list over the one before.
func (w *sessionsWatcher) draw(all []located, notes []string, s *screen) error {
	var lines []string
	if len(all) > 0 || len(notes) == 0 {
		lines = renderSessions(all, s)
	}
	for _, n := range notes {
		lines = append(lines, textfmt.ClipWithin(visible(n), s.width, "…"))
	}
	return w.redraw(w.io.Out, lines)
}

// changes prints a line for each session that has changed.
func (w *sessionsWatcher) changes(all []located, notes []string) error {
	for _, n := range notes {
		if !slices.Contains(w.notes, n) {
			w.warn("%s", n)
		}
	}
	w.notes = notes
	for i := range all {
		s := &all[i]
		text := sessionLine(s)
		key := s.At + "\x00" + s.Name
		if w.seen[key] == text {
			continue
		}
		w.seen[key] = text
		var err error
		if w.json {
			err = w.printJSON(s)
		} else {
			err = w.say("%s %s", time.Now().Format(time.RFC3339), text)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// sessionLine says where a session is.
func sessionLine(s *located) string {
	parts := []string{s.Name, s.State}
	if !s.unknown() {
		parts = append(parts, "windows="+of(s.Windows, s.MaxWindows), "attempts="+of(s.Spent, s.MaxAttempts), fmt.Sprintf("commands=%d", s.Commands))
	}
	if s.Next != nil {
		parts = append(parts, "next="+s.Next.Local().Format(time.RFC3339))
	}
	if text := why(&s.Status); text != "" {
		parts = append(parts, fmt.Sprintf("why=%q", textfmt.ClipWithin(text, 200, "…")))
	}
	return strings.Join(parts, " ")
}
