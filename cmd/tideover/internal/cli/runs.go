package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tideover/tideover/cmd/tideover/internal/client"
	"github.com/tideover/tideover/cmd/tideover/internal/control"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/textfmt"
)

// filterFlags are the flags that say which runs are meant.
type filterFlags struct {
	states      []string
	workflow    string
	search      string
	errorLike   string
	since       string
	until       string
	minAttempts int
	internal    bool
}

func (f *filterFlags) register(cmd *cobra.Command, names ...string) {
	s := cmd.Flags()
	for _, name := range names {
		switch name {
		case "state":
			s.StringSliceVar(&f.states, "state", nil, "only runs in these `states`: "+strings.Join(control.States(), ", "))
		case "workflow":
			s.StringVar(&f.workflow, "workflow", "", "only runs of the workflow of this `name`")
		case "search":
			s.StringVar(&f.search, "search", "", "only runs with these `words` in id, key, input or error")
		case "error-like":
			s.StringVar(&f.errorLike, "error-like", "", "only runs that failed like this `error`, whatever numbers and ids are in it")
		case "since":
			s.StringVar(&f.since, "since", "", "only runs started since a `time`, or a duration ago")
		case "until":
			s.StringVar(&f.until, "until", "", "only runs started before a `time`, or a duration ago")
		case "min-attempts":
			s.IntVar(&f.minAttempts, "min-attempts", 0, "only runs with at least `N` attempts")
		case "internal":
			s.BoolVar(&f.internal, "internal", false, "also runs of sessions, messages and on-give-up")
		}
	}
}

// filter checks the flags.
func (f *filterFlags) filter() (out control.Filter, err error) {
	out = control.Filter{States: f.states, Workflow: f.workflow, Search: f.search, Error: f.errorLike, MinAttempts: f.minAttempts, Internal: f.internal}
	for _, s := range f.states {
		if !slices.Contains(control.States(), s) {
			return out, fmt.Errorf("--state: there is no state %q; there are %s", s, strings.Join(control.States(), ", "))
		}
	}
	for _, m := range []struct {
		name, text string
		to         *time.Time
	}{{"since", f.since, &out.Since}, {"until", f.until, &out.Until}} {
		if m.text == "" {
			continue
		}
		if *m.to, err = control.ParseMoment(m.text, -1); err != nil {
			return out, fmt.Errorf("--%s: %w", m.name, err)
		}
	}
	if f.minAttempts < 0 {
		return out, fmt.Errorf("--min-attempts: %d is negative", f.minAttempts)
	}
	return out, nil
}

type runsOptions struct {
	remote
	filterFlags
	order string
	limit int
	watch bool
}

const runsLong = `Lists runs: where they are, how often they were attempted, how long they still
wait, and what went wrong last. Those of sessions, of messages to notifiers and of
on-give-up are left out: 'tideover sessions ls' has sessions, --internal lists all.

With --watch the list stays up to date: on a terminal in place, otherwise as a
line for each run that has changed.`

const runsExample = `  tideover runs                              the latest
  tideover runs --state waiting,running      what is under way
  tideover runs --state waiting --order next --watch
  tideover runs --workflow order --search 4711
  tideover runs --state dead --json | jq -r '.runs[].id'`

func newRuns(io Streams) *cobra.Command {
	o := &runsOptions{remote: remote{io: io}}
	cmd := &cobra.Command{
		Use:               "runs [flags]",
		Short:             "List runs",
		Long:              runsLong,
		Example:           runsExample,
		Args:              none,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f, err := o.filter()
			if err != nil {
				return err
			}
			return o.ask(cmd, func(ctx context.Context, c *client.Client) error { return o.list(ctx, c, f) })
		},
	}
	o.register(cmd, "state", "workflow", "search", "error-like", "since", "until", "min-attempts", "internal")
	f := cmd.Flags()
	f.StringVar(&o.order, "order", "newest", "`order`: newest, oldest, or next for those that wait, by the end of the wait")
	f.IntVar(&o.limit, "limit", 20, "list at most `N` runs, 1000 at most")
	f.BoolVar(&o.watch, "watch", false, "keep the list up to date")
	o.command(cmd)
	o.completeFlags(cmd)
	return cmd
}

func (o *runsOptions) list(ctx context.Context, c *client.Client, f control.Filter) error {
	if o.limit < 1 || o.limit > 1000 {
		return fmt.Errorf("--limit: %d is not between 1 and 1000", o.limit)
	}
	if !slices.Contains([]string{"newest", "oldest", "next"}, o.order) {
		return fmt.Errorf("--order: %q is not newest, oldest or next", o.order)
	}
	f.Order, f.Limit = o.order, o.limit
	if o.watch {
		return o.watchRuns(ctx, c, f)
	}
	page, err := c.List(ctx, f)
	if err != nil {
		return err
	}
	o.missing(page.Silent)
	if o.json {
		return o.printJSON(page)
	}
	s := screenOf(o.io.Out)
	_, err = fmt.Fprintln(o.io.Out, strings.Join(renderRuns(&page, &s), "\n"))
	return err
}

// shortID is how much of an id is shown on a terminal: the time, and enough of the
// rest to tell runs apart.
const shortID = 14

// renderRuns returns a page of runs as lines.
const (
	keyColumn  = 3   // after the workflow
	wideEnough = 100 // columns of a terminal that has room for keys
	longestKey = 24  // of a key in a list; 'tideover show' has the rest
)

func renderRuns(page *engine.Page, s *screen) []string {
	if len(page.Runs) == 0 {
		return []string{"no runs"}
	}
	// On a narrow terminal the error matters more.
	keyed := (s.width == 0 || s.width >= wideEnough) && slices.ContainsFunc(page.Runs, func(r engine.Info) bool { return r.Key != "" })
	t := &table{heads: []string{"ID", "STATE", "WORKFLOW", "STEP", "TRIES", "AGE", "NEXT", "ERROR"}}
	if keyed {
		t.heads = slices.Insert(t.heads, keyColumn, "KEY")
	}
	for i := range page.Runs {
		r := &page.Runs[i]
		id := r.ID
		if s.terminal {
			id = id[:min(len(id), shortID)]
		}
		row := []cell{
			plain(id), stateCell(r.State), plain(r.Workflow), plain(r.Step), plain(strconv.Itoa(r.Attempts)),
			plain(s.ago(r.Created)), {s.until(r.Next), "33"}, {firstLine(r.Error), "2"},
		}
		if keyed {
			row = slices.Insert(row, keyColumn, plain(textfmt.ClipWithin(r.Key, longestKey, "…")))
		}
		t.add(row...)
	}
	lines := t.render(s)
	if page.Next != "" {
		lines = append(lines, s.paint("2", "there are more; see --limit"))
	}
	if page.Behind > 0 {
		lines = append(lines, s.paint("2", fmt.Sprintf("%d runs are not searchable yet", page.Behind)))
	}
	return lines
}

// watchEvery is how often the list is asked for.
const watchEvery = time.Second

// watchRuns keeps the list up to date.
func (o *runsOptions) watchRuns(ctx context.Context, c *client.Client, f control.Filter) error {
	w := &watcher{runsOptions: o, seen: map[string]string{}}
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for first := true; ; first = false {
		page, err := c.List(ctx, f)
		if _, away := errors.AsType[*client.UnreachableError](err); err != nil && (first || !away) {
			return err
		}
		if err := w.show(&page, err); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// watcher shows a list again and again.
type watcher struct {
	*runsOptions
	redrawn
	seen   map[string]string // what was last said of each run
	silent string            // what was last said of shards
}

func (w *watcher) show(page *engine.Page, away error) error {
	s := screenOf(w.io.Out)
	if !s.terminal || w.json {
		return w.changes(page)
	}
	lines := renderRuns(page, &s)
	if text := control.Silent(page.Silent); text != "" {
		lines = append(lines, s.paint("31", textfmt.ClipWithin(text, s.width, "…")))
	}
	if away != nil {
		lines = []string{textfmt.ClipWithin(visible(away.Error()), s.width, "…")}
	}
	return w.redraw(w.io.Out, lines)
}

// redrawn is lines of a terminal that are written again and again.
type redrawn int

// redraw writes lines over those that were written before.
func (n *redrawn) redraw(out *os.File, lines []string) error {
	if height := rows(out); height > 2 && len(lines) > height-1 {
		lines = lines[:height-1] // one that scrolled away could not be rewritten
	}
	text := strings.Join(lines, "\x1b[K\n") + "\x1b[K\n\x1b[J"
	if *n > 0 {
		text = fmt.Sprintf("\x1b[%dF", *n) + text
	}
	*n = redrawn(len(lines))
	_, err := out.WriteString(text)
	return err
}

// changes prints a line for each run that has changed.
func (w *watcher) changes(page *engine.Page) error {
	if text := control.Silent(page.Silent); text != w.silent {
		w.silent = text
		w.missing(page.Silent)
	}
	for i := range page.Runs {
		r := &page.Runs[i]
		mark := fmt.Sprint(r.State, r.Step, r.Attempts, r.Updated.UnixNano())
		if w.seen[r.ID] == mark {
			continue
		}
		w.seen[r.ID] = mark
		var err error
		if w.json {
			err = w.printJSON(r)
		} else {
			err = w.say("%s", changeLine(r))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// changeLine says where a run is.
func changeLine(r *engine.Info) string {
	parts := []string{r.Updated.Local().Format(time.RFC3339), r.ID, r.Workflow, r.State}
	if r.Step != "" {
		parts = append(parts, "step="+r.Step)
	}
	parts = append(parts, "attempts="+strconv.Itoa(r.Attempts))
	if r.Next != nil {
		parts = append(parts, "next="+r.Next.Local().Format(time.RFC3339))
	}
	if r.Error != "" {
		parts = append(parts, fmt.Sprintf("error=%q", textfmt.ClipWithin(firstLine(r.Error), 200, "…")))
	}
	return strings.Join(parts, " ")
}
