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

const sessionsListLong = `Lists sessions: where they are, when they go on, what they have spent, and the line
of output because of which they wait. An interactive session that shows a limit on its
screen is still open, and running; NEXT is the end of the limit, if it is stated.

WINDOWS are stated resets that were waited for, ATTEMPTS tries that failed
otherwise; both with how many there may be. IN says who keeps the session: serve,
or a watch. One whose watch does not run is not-watched, or as its watch left it; how
it goes on stands below. Sessions that ended more than a day ago are listed with --all.

With --watch the list stays up to date: on a terminal in place, otherwise as a
line for each session that has changed.`

const sessionsListExample = `  tideover sessions ls
  tideover sessions ls --watch
  tideover sessions ls --all
  tideover sessions ls --json | jq -r '.sessions[] | select(.state == "gave-up").name'`

func newSessionsList(io Streams) *cobra.Command {
	o := &sessionsOptions{remote: remote{io: io}}
	var watch bool
	cmd := &cobra.Command{
		Use: "ls [flags]", Aliases: []string{"list"}, Short: "List sessions", Long: sessionsListLong, Example: sessionsListExample,
		Args: none, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if watch {
				return o.watch(cmd)
			}
			return o.ask(cmd, o.list)
		},
	}
	cmd.Flags().BoolVar(&watch, "watch", false, "keep the list up to date")
	cmd.Flags().BoolVar(&o.all, "all", false, "also those that ended more than a day ago")
	o.command(cmd)
	return cmd
}

func (o *sessionsOptions) list(ctx context.Context, places []*place) error {
	all, unwatched, notes, err := o.everything(ctx, places)
	for _, n := range notes {
		o.warn("%s", n)
	}
	if err != nil {
		return err
	}
	all, hidden := o.recent(all, time.Now())
	if o.json {
		return o.printJSON(map[string]any{"sessions": described(all, unwatched)})
	}
	s := screenOf(o.io.Out)
	lines := renderSessions(all, &s)
	for _, h := range append(hints(unwatched), hiddenHint(hidden)...) {
		lines = append(lines, s.paint("2", visible(h)))
	}
	_, err = fmt.Fprintln(o.io.Out, strings.Join(lines, "\n"))
	return err
}

// listedFor is for how long a session is listed after its end.
const listedFor = 24 * time.Hour

// recent returns the sessions that are listed, and how many are not.
func (o *sessionsOptions) recent(all []located, now time.Time) (list []located, hidden int) {
	if o.all {
		return all, 0
	}
	list = slices.DeleteFunc(slices.Clone(all), func(s located) bool {
		return s.Over() && s.Ended != nil && now.Sub(*s.Ended) > listedFor
	})
	return list, len(all) - len(list)
}

// hiddenHint says how sessions are listed that are not.
func hiddenHint(n int) []string {
	switch n {
	case 0:
		return nil
	case 1:
		return []string{"1 session ended more than a day ago; --all lists it too"}
	}
	return []string{fmt.Sprintf("%d sessions ended more than a day ago; --all lists them too", n)}
}

// described returns the list with what is known besides of those that nobody
// watches.
func described(all []located, unwatched []idle) []idle {
	list := make([]idle, len(all))
	for i, s := range all {
		list[i].located = s
		for _, u := range unwatched {
			if u.At == s.At {
				list[i] = u
			}
		}
	}
	return list
}

// sessionColours are of the states that runs do not have.
var sessionColours = map[string]string{"completed": "32", "gave-up": "31", "stopped": "2", "idle": "2", notWatched: "35"}

func sessionColour(state string) string { return cmp.Or(sessionColours[state], stateColours[state]) }

func renderSessions(list []located, s *screen) []string {
	if len(list) == 0 {
		return []string{"no sessions; keep one with `tideover watch`, or put one into the configuration of `tideover serve`"}
	}
	t := &table{heads: []string{"NAME", "STATE", "NEXT", "WINDOWS", "ATTEMPTS", "IN", "WHY"}}
	narrow := s.width > 0 && s.width < roomForWhy
	reasons := make([]string, len(list))
	for i := range list {
		st := &list[i].Status
		reasons[i] = why(st)
		windows, attempts := of(st.Windows, st.MaxWindows), of(st.Spent, st.MaxAttempts)
		if list[i].unknown() {
			windows, attempts = "", ""
		}
		row := []cell{
			plain(st.Name), {st.State, sessionColour(st.State)}, {s.next(goesOn(st)), "33"}, plain(windows), plain(attempts), plain(list[i].In),
			{reasons[i], "2"},
		}
		if narrow {
			row[len(row)-1].text = ""
		}
		t.add(row...)
	}
	lines := t.render(s)
	if narrow {
		return below(lines, reasons, s)
	}
	return lines
}

// unknown reports whether nobody can say what the session has spent: its watch does
// not run.
func (s *located) unknown() bool { return s.MaxWindows == 0 && s.MaxAttempts == 0 }

// stillOpen begins the reason of a session that a limit on its screen holds up.
const stillOpen = "limit on its screen, still open: "

// roomForWhy is how wide a terminal must be for a reason to stand beside the rest.
const roomForWhy = 110

// below puts each reason on a line of its own.
func below(rows, reasons []string, s *screen) []string {
	lines := rows[:1:1]
	for i, text := range reasons {
		lines = append(lines, rows[i+1])
		if text != "" {
			lines = append(lines, "  "+s.paint("2", textfmt.ClipWithin(visible(text), s.width-2, "…")))
		}
	}
	return lines
}

// of writes how much of something is spent.
func of(spent, limit int) string {
	if limit < 0 {
		return strconv.Itoa(spent) + "/∞"
	}
	return strconv.Itoa(spent) + "/" + strconv.Itoa(limit)
}

// next writes how long it is until a time, and which it is.
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

// goesOn returns when a session goes on, or when the limit on its screen ends; nil if
// that is not known.
func goesOn(st *session.Status) *time.Time {
	if st.Next == nil && st.Limit != nil && !st.Limit.Until.IsZero() {
		return &st.Limit.Until
	}
	return st.Next
}

// why says in a line what keeps a session from going on.
func why(st *session.Status) string {
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
