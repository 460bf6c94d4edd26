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

// watch prints the list every second until the context ends. It looks for hosts each time, because
// watches start and end.
func (o *sessionsOptions) watch(cmd *cobra.Command) error {
	ctx, stop := o.context(cmd)
	defer stop()
	w := &sessionsWatcher{sessionsOptions: o, seen: map[string]string{}}
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		if err := w.refresh(ctx); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// sessionsWatcher prints the list repeatedly: in place on a terminal, otherwise only changes.
type sessionsWatcher struct {
	*sessionsOptions
	redrawn
	seen  map[string]string // last printed state of each session
	notes []string          // printed last
}

// refresh queries all hosts and prints the list or the changes.
func (w *sessionsWatcher) refresh(ctx context.Context) error {
	hosts, err := w.sessionHosts()
	if err != nil {
		return err
	}
	defer closeHosts(hosts)
	all, unwatched, notes, err := w.allSessions(ctx, hosts)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if _, away := errors.AsType[*client.UnreachableError](err); away {
		notes = append(notes, err.Error()) // the hosts may come back
	} else if err != nil {
		return err
	}
	all, hidden := w.recent(all, time.Now())
	s := screenOf(w.io.Out)
	if !s.terminal || w.json {
		return w.printChanges(all, notes)
	}
	return w.draw(all, slices.Concat(notes, resumeHints(unwatched), hiddenHint(hidden)), &s)
}

// draw writes the list over the previous one.
func (w *sessionsWatcher) draw(all []hostedSession, notes []string, s *screen) error {
	var lines []string
	if len(all) > 0 || len(notes) == 0 {
		lines = renderSessions(all, s)
	}
	for _, n := range notes {
		lines = append(lines, textfmt.ClipWithin(visible(n), s.width, "…"))
	}
	return w.redraw(w.io.Out, lines)
}

// printChanges prints a line for each session that has changed.
func (w *sessionsWatcher) printChanges(all []hostedSession, notes []string) error {
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
			err = w.printLine("%s %s", time.Now().Format(time.RFC3339), text)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// sessionLine returns the state of a session as one line of key=value pairs.
func sessionLine(s *hostedSession) string {
	parts := []string{s.Name, s.State}
	if !s.usageUnknown() {
		parts = append(parts, "windows="+spentOf(s.Windows, s.MaxWindows), "attempts="+spentOf(s.Spent, s.MaxAttempts), fmt.Sprintf("commands=%d", s.Commands))
	}
	if s.Next != nil {
		parts = append(parts, "next="+s.Next.Local().Format(time.RFC3339))
	}
	if text := waitReason(&s.Status); text != "" {
		parts = append(parts, fmt.Sprintf("why=%q", textfmt.ClipWithin(text, 200, "…")))
	}
	return strings.Join(parts, " ")
}
