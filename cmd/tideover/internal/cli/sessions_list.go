package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tideover/tideover/cmd/tideover/internal/session"
	"github.com/tideover/tideover/internal/textfmt"
)

const sessionsListDetails = `An interactive session that shows a limit on its screen is still open
and running; NEXT is then the end of the limit, if it is stated.

  STATE     not-watched if its watch is not running; the line below the list has
            the command to continue it
  NEXT      when the session continues
  WINDOWS   limits with a stated end that were waited for, of the maximum
  ATTEMPTS  other failed tries, of the maximum
  IN        the process that runs the session: serve or watch
  WHY       the line of output that explains the wait

Sessions that ended more than a day ago are listed only with --all.

With --watch the list is updated in place on a terminal. Otherwise a line is printed
for each session that has changed.`

const sessionsListExample = `  tideover sessions ls
  tideover sessions ls --watch
  tideover sessions ls --all
  tideover sessions ls --json | jq -r '.sessions[] | select(.state == "gave-up").name'`

// newSessionsList makes a command list the sessions, and returns it. sessions without a subcommand does
// the same as sessions ls.
func newSessionsList(io Streams, cmd *cobra.Command) *cobra.Command {
	o := &sessionsOptions{remote: newRemote(io)}
	var watch bool
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if watch {
			return o.watch(cmd)
		}
		return o.withHosts(cmd, o.list)
	}
	cmd.Flags().BoolVar(&watch, "watch", false, "update the list every second")
	cmd.Flags().BoolVar(&o.all, "all", false, "also list sessions that ended more than a day ago")
	return o.command(cmd)
}

func (o *sessionsOptions) list(ctx context.Context, hosts []*sessionHost) error {
	all, unwatched, notes, err := o.allSessions(ctx, hosts)
	for _, n := range notes {
		o.warn("%s", n)
	}
	if err != nil {
		return err
	}
	all, hidden := o.recent(all, time.Now())
	return o.printRendered(map[string]any{"sessions": withWatchDetails(all, unwatched)}, func(s *screen) []string {
		lines := renderSessions(all, s)
		for _, h := range append(resumeHints(unwatched), hiddenHint(hidden)...) {
			lines = append(lines, s.paint("2", visible(h)))
		}
		return lines
	})
}

// listedFor is how long a session is listed after its end.
const listedFor = 24 * time.Hour

// recent removes sessions that ended more than listedFor ago, and returns how many it removed. With
// --all it removes none.
func (o *sessionsOptions) recent(all []hostedSession, now time.Time) (list []hostedSession, hidden int) {
	if o.all {
		return all, 0
	}
	list = slices.DeleteFunc(slices.Clone(all), func(s hostedSession) bool {
		return s.Over() && s.Ended != nil && now.Sub(*s.Ended) > listedFor
	})
	return list, len(all) - len(list)
}

// hiddenHint returns a line that says how many sessions are not listed, and how to list them; nil
// if n is 0.
func hiddenHint(n int) []string {
	if n == 0 {
		return nil
	}
	return []string{textfmt.PluralOf(n,
		"session ended more than a day ago; --all lists it too",
		"sessions ended more than a day ago; --all lists them too")}
}

// withWatchDetails adds to each session that is not watched the details in unwatched, which were
// read from the folder of its watch.
func withWatchDetails(all []hostedSession, unwatched []unwatchedSession) []unwatchedSession {
	list := make([]unwatchedSession, len(all))
	for i, s := range all {
		list[i].hostedSession = s
		for _, u := range unwatched {
			if u.At == s.At {
				list[i] = u
			}
		}
	}
	return list
}

// sessionColours has the terminal codes for the colours of states that only sessions have. For the
// other states, see stateColours.
var sessionColours = map[string]string{"completed": "32", "gave-up": "31", "stopped": "2", "idle": "2", notWatched: "35"}

func sessionColour(state string) string { return cmp.Or(sessionColours[state], stateColours[state]) }

func renderSessions(list []hostedSession, s *screen) []string {
	if len(list) == 0 {
		return []string{"no sessions: start one with `tideover watch`, or add one to the configuration of `tideover serve`"}
	}
	t := &table{heads: []string{"NAME", "STATE", "NEXT", "WINDOWS", "ATTEMPTS", "IN", "WHY"}}
	narrow := s.width > 0 && s.width < roomForWhy
	reasons := make([]string, len(list))
	for i := range list {
		st := &list[i].Status
		reasons[i] = waitReason(st)
		windows, attempts := spentOf(st.Windows, st.MaxWindows), spentOf(st.Spent, st.MaxAttempts)
		if list[i].usageUnknown() {
			windows, attempts = "", ""
		}
		row := []cell{
			plain(st.Name), {st.State, sessionColour(st.State)}, {s.next(resumeTime(st)), "33"}, plain(windows), plain(attempts), plain(list[i].In),
			{reasons[i], "2"},
		}
		if narrow {
			row[len(row)-1].text = ""
		}
		t.add(row...)
	}
	lines := t.render(s)
	if narrow {
		return notesBelow(lines, reasons, s)
	}
	return lines
}

// usageUnknown reports whether the numbers of attempts and windows are unknown, because the watch
// is not running.
func (s *hostedSession) usageUnknown() bool { return s.MaxWindows == 0 && s.MaxAttempts == 0 }

// stillOpen is the prefix of the reason if an interactive session shows a limit on its screen.
const stillOpen = "limit on its screen, still open: "

// roomForWhy is the terminal width from which the list has the column WHY. On a narrower terminal
// the reason goes on a second line.
const roomForWhy = 110

// notesBelow returns the lines of a table, each followed by its reason on a second line. rows
// begins with the line of headings, which has no reason.
func notesBelow(rows, reasons []string, s *screen) []string {
	lines := rows[:1:1]
	for i, text := range reasons {
		lines = append(lines, rows[i+1])
		if text != "" {
			lines = append(lines, "  "+s.paint("2", textfmt.ClipWithin(visible(text), s.width-2, "…")))
		}
	}
	return lines
}

// spentOf formats a counter with its limit, such as 2/5; a negative limit means unlimited.
func spentOf(spent, limit int) string {
	if limit < 0 {
		return strconv.Itoa(spent) + "/∞"
	}
	return strconv.Itoa(spent) + "/" + strconv.Itoa(limit)
}

// next formats the time until t, followed by t as a time of day, such as "2h (07:00)"; empty if t
// is nil.
func (s *screen) next(t *time.Time) string {
	if t == nil {
		return ""
	}
	layout, at, now := "15:04", t.In(s.zone), s.now.In(s.zone)
	switch days := at.Sub(now) / (24 * time.Hour); {
	case days >= 6:
		layout = "2 Jan 15:04"
	case at.Weekday() != now.Weekday():
		layout = "Mon 15:04"
	}
	return s.until(t) + " (" + at.Format(layout) + ")"
}

// resumeTime returns when a session continues, or when the limit on its screen ends; nil if
// unknown.
func resumeTime(st *session.Status) *time.Time {
	if st.Next == nil && st.Limit != nil && !st.Limit.Until.IsZero() {
		return &st.Limit.Until
	}
	return st.Next
}

// waitReason says in one line why a session waits or gave up.
func waitReason(st *session.Status) string {
	switch {
	case st.Limit != nil:
		return stillOpen + st.Limit.Line
	case st.State == "gave-up":
		return strings.TrimPrefix(st.Reason+": "+firstLine(st.Error), ": ")
	case st.State == "running" && st.Handover != nil:
		return "handed over to " + st.Handover.Assistant
	case st.State != "waiting" && st.State != "paused" && st.State != notWatched:
		return ""
	case st.Last == nil || st.Last.Line == "" || slices.Contains([]string{"human", "handler", "account"}, st.WaitBy):
		return st.WaitFor
	}
	return st.Last.Line
}

// watch shows the list until a signal ends it, with an update every second.
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
	var printed []string // the notes of the previous list
	w.changes = func(l sessionList, emit printChange) {
		for _, n := range l.notes {
			if !slices.Contains(printed, n) {
				o.warn("%s", n)
			}
		}
		printed = l.notes
		for i := range l.sessions {
			s := &l.sessions[i]
			text := sessionLine(s)
			emit(s.At+"\x00"+s.Name, text, s, time.Now().Format(time.RFC3339)+" "+text)
		}
	}
	return w.run(ctx)
}

// sessionList is the list of sessions at one time.
type sessionList struct {
	sessions []hostedSession
	notes    []string // problems of hosts
	hints    []string // commands that continue or list further sessions
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
