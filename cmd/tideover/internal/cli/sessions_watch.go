package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tideover/tideover/internal/textfmt"
)

// watch prints the list every second until the context ends.
func (o *sessionsOptions) watch(cmd *cobra.Command) error {
	ctx, stop := contextUntilSignal(cmd.Context())
	defer stop()
	w := &listWatch[sessionList]{
		resultPrinter: o.resultPrinter, get: o.currentSessions, isAway: func(error) bool { return false },
		render: func(l sessionList, s *screen) (lines []string) {
			notes := slices.Concat(l.notes, l.hints)
			if len(l.sessions) > 0 || len(notes) == 0 {
				lines = renderSessions(l.sessions, s)
			}
			for _, n := range notes {
				lines = append(lines, textfmt.ClipWithin(visible(n), s.width, "…"))
			}
			return lines
		},
	}
	var printed []string // notes
	w.changes = func(l sessionList, emit printChange) error {
		for _, n := range l.notes {
			if !slices.Contains(printed, n) {
				o.warn("%s", n)
			}
		}
		printed = l.notes
		for i := range l.sessions {
			s := &l.sessions[i]
			text := sessionLine(s)
			if err := emit(s.At+"\x00"+s.Name, text, s, time.Now().Format(time.RFC3339)+" "+text); err != nil {
				return err
			}
		}
		return nil
	}
	return w.run(ctx)
}

// sessionList is the list of sessions at one time.
type sessionList struct {
	sessions []hostedSession
	notes    []string // problems of hosts
	hints    []string
}

// currentSessions queries all hosts. It looks for hosts each time, because watches start and end.
func (o *sessionsOptions) currentSessions(ctx context.Context) (l sessionList, err error) {
	hosts, err := o.sessionHosts()
	if err != nil {
		return l, err
	}
	defer closeHosts(hosts)
	all, unwatched, notes, err := o.allSessions(ctx, hosts)
	switch {
	case ctx.Err() != nil:
		return l, context.Cause(ctx)
	case unreachable(err):
		notes = append(notes, err.Error()) // the hosts may come back
	case err != nil:
		return l, err
	}
	recent, hidden := o.recent(all, time.Now())
	return sessionList{recent, notes, append(resumeHints(unwatched), hiddenHint(hidden)...)}, nil
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
