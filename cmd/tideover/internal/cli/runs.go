package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tideover/tideover/cmd/tideover/internal/client"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/console/control"
	"github.com/tideover/tideover/internal/textfmt"
)

// filterFlags holds the flags that select runs.
type filterFlags struct {
	states                      []string
	workflow, search, errorLike string
	since, until                string
	minAttempts                 int
	tags                        []string
	asking                      bool
	internal                    bool
}

// register adds the flags with these names to a command, in this order.
func (f *filterFlags) register(cmd *cobra.Command, names ...string) {
	s := pflag.NewFlagSet("all flags", pflag.ContinueOnError)
	s.StringSliceVar(&f.states, "state", nil, "only runs in these `states`: "+strings.Join(control.States(), ", "))
	s.StringVar(&f.workflow, "workflow", "", "only runs of the workflow with this `name`")
	s.StringVar(&f.search, "search", "", "only runs with these `words` in id, key, input, error, status or tags")
	s.StringVar(&f.errorLike, "error-like", "", "only runs with a similar `error`; numbers and ids are ignored")
	s.StringVar(&f.since, "since", "", "only runs started after this `time`, or at most this duration ago")
	s.StringVar(&f.until, "until", "", "only runs started before this `time`, or at least this duration ago")
	s.IntVar(&f.minAttempts, "min-attempts", 0, "only runs with at least `N` attempts")
	s.StringArrayVar(&f.tags, "tag", nil, "only runs with this `tag`, as name=value; several flags mean all of them")
	s.BoolVar(&f.asking, "asking", false, "only runs that wait for the answer to a question")
	s.BoolVar(&f.internal, "internal", false, "also runs of sessions, messages and on-give-up")
	for _, name := range names {
		cmd.Flags().AddFlag(s.Lookup(name))
	}
}

// filter returns the filter that the flags describe, or an error for a flag with a wrong value.
func (f *filterFlags) filter() (out control.Filter, err error) {
	out = control.Filter{States: f.states, Workflow: f.workflow, Search: f.search, Error: f.errorLike, MinAttempts: f.minAttempts, Tags: f.tags, Asking: f.asking, Internal: f.internal}
	for _, s := range f.states {
		if !slices.Contains(control.States(), s) {
			return out, fmt.Errorf("--state: %w", unknownWord("state", s, control.States()))
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
	for _, tag := range f.tags {
		if name, value, ok := strings.Cut(tag, "="); !ok || name == "" || value == "" {
			return out, fmt.Errorf("--tag: %q is not a tag such as city=Oslo", tag)
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

const runsLong = `Lists runs with their state, the attempts of all steps (ATTEMPTS), the remaining wait
and the last error. Runs of sessions, of messages to notifiers and of on-give-up are
not listed: 'tideover sessions ls' lists sessions, --internal lists all.

A terminal shows the beginning of each id and key, and lines are cut at its width. With
fewer than 100 columns, the first sentence of the error is a line below its run.
Elsewhere all is complete; set COLUMNS to cut the lines.

With --watch the list is updated in place on a terminal. Otherwise a line is printed
for each run that has changed.`

const runsExample = `  tideover runs                              the newest
  tideover runs --state waiting,running      those in progress
  tideover runs --state waiting --order next --watch
  tideover runs --workflow order --search 4711
  tideover runs --tag city=Oslo --tag phase=pack
  tideover runs --asking                     those that wait for an answer
  tideover runs --state dead --json | jq -r '.runs[].id'`

func newRuns(io Streams) *cobra.Command {
	o := &runsOptions{remote: newRemote(io)}
	cmd := &cobra.Command{
		Use:     "runs [flags]",
		Short:   "List runs",
		Long:    runsLong,
		Example: runsExample,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f, err := o.filter()
			if err != nil {
				return err
			}
			return o.withClient(cmd, func(ctx context.Context, c *client.Client) error { return o.list(ctx, c, f) })
		},
	}
	o.register(cmd, "state", "workflow", "search", "error-like", "since", "until", "min-attempts", "tag", "asking", "internal")
	f := cmd.Flags()
	f.StringVar(&o.order, "order", "newest", "`order`: newest, oldest, or next (waiting runs, by the end of the wait)")
	f.IntVarP(&o.limit, "limit", "n", 20, "list at most `N` runs; the maximum is 1000")
	f.BoolVar(&o.watch, "watch", false, "update the list every second")
	return o.command(cmd, exitsWorkflow)
}

func (o *runsOptions) list(ctx context.Context, c *client.Client, f control.Filter) error {
	if err := o.checkLimit(); err != nil {
		return err
	}
	if !slices.Contains([]string{"newest", "oldest", "next"}, o.order) {
		return fmt.Errorf("--order: %q is not newest, oldest or next", o.order)
	}
	f.Order, f.Limit = o.order, o.limit
	if o.watch {
		return o.watchRuns(ctx, c, f)
	}
	page, err := c.List(ctx, f)
	o.warnSilentShards(page.Silent)
	return printFetched(&o.resultPrinter, &page, err, renderRuns)
}

func (o *runsOptions) checkLimit() error {
	if o.limit < 1 || o.limit > 1000 {
		return fmt.Errorf("--limit: %d is not between 1 and 1000", o.limit)
	}
	return nil
}

// shortID is the number of characters of an id on a terminal: enough to tell runs apart.
const shortID = 14

// Layout of the list of runs.
const (
	keyColumn  = 3   // position of the column KEY, after WORKFLOW
	wideEnough = 100 // width from which a terminal shows keys, and errors beside their runs
	longestKey = 24  // characters of a key in the list

	longestStatus = 40 // characters of the status and the tags in the list
)

// renderRuns renders a page of runs as lines.
func renderRuns(page *engine.Page, s *screen) []string {
	if len(page.Runs) == 0 {
		return []string{"no runs"}
	}
	wide := s.width == 0 || s.width >= wideEnough
	keyed := wide && slices.ContainsFunc(page.Runs, func(r engine.Info) bool { return r.Key != "" })
	t := &table{heads: []string{"ID", "STATE", "WORKFLOW", "STEP", "ATTEMPTS", "AGE", "NEXT", "ERROR"}}
	if keyed {
		t.heads = slices.Insert(t.heads, keyColumn, "KEY")
	}
	described := slices.ContainsFunc(page.Runs, func(r engine.Info) bool { return statusText(&r) != "" })
	if described {
		t.heads = slices.Insert(t.heads, len(t.heads)-1, "STATUS")
	}
	clip := func(text string, most int) cell {
		if s.width == 0 {
			return plain(text)
		}
		return plain(textfmt.ClipWithin(text, most, "…"))
	}
	for i := range page.Runs {
		r := &page.Runs[i]
		id := r.ID
		if s.terminal {
			id = id[:min(len(id), shortID)]
		}
		row := []cell{
			plain(id), runState(r), plain(r.Workflow), plain(r.Step), plain(strconv.Itoa(r.Attempts)),
			plain(s.ago(r.Created)), {s.until(r.Next), "33"}, {firstLine(r.Error), "2"},
		}
		if keyed {
			row = slices.Insert(row, keyColumn, clip(r.Key, longestKey))
		}
		if described {
			row = slices.Insert(row, len(row)-1, clip(statusText(r), longestStatus))
		}
		if !wide {
			row[len(row)-1].text, t.below = "", append(t.below, firstSentence(r.Error))
		}
		t.add(row...)
	}
	lines := t.render(s)
	if page.Next != "" {
		lines = append(lines, s.paint("2", "more runs match; raise --limit to list them"))
	}
	if page.Behind > 0 {
		lines = append(lines, s.paint("2", fmt.Sprintf("%d runs are not indexed yet", page.Behind)))
	}
	return lines
}

// firstSentence returns the first line of a text up to the first full stop that a space follows.
func firstSentence(text string) string {
	line := firstLine(text)
	sentence, _, _ := strings.Cut(line, ". ")
	return sentence
}

// runState returns the state of a run for a list, and whether it asks a question.
func runState(r *engine.Info) cell {
	c := stateCell(r.State)
	if r.Asking {
		c.text += ", asks"
	}
	if r.WorkflowPaused != nil {
		c.text += ", workflow paused"
	}
	return c
}

// statusText returns the status of a run and its tags on one line; "" if it has neither.
func statusText(r *engine.Info) string {
	tags := strings.Join(control.TagList(r), " ")
	if status := firstLine(r.Status); status != "" {
		return status + optional("  ", tags, "")
	}
	return tags
}

// watchRuns shows the list until the context ends, with an update every second.
func (o *runsOptions) watchRuns(ctx context.Context, c *client.Client, f control.Filter) error {
	silent := "" // latest warning about shards that do not answer
	w := &listWatch[engine.Page]{
		resultPrinter: o.resultPrinter, isAway: unreachable,
		get: func(ctx context.Context) (engine.Page, error) { return c.List(ctx, f) },
		render: func(page engine.Page, s *screen) []string {
			lines := renderRuns(&page, s)
			if text := control.Silent(page.Silent); text != "" {
				lines = append(lines, s.paint("31", textfmt.ClipWithin(text, s.width, "…")))
			}
			return lines
		},
		changes: func(page engine.Page, emit printChange) {
			if text := control.Silent(page.Silent); text != silent {
				silent = text
				o.warnSilentShards(page.Silent)
			}
			for i := range page.Runs {
				r := &page.Runs[i]
				state := fmt.Sprint(r.State, r.Step, r.Attempts, r.Updated.UnixNano(), r.Asking, r.WorkflowPaused != nil, statusText(r))
				emit(r.ID, state, r, changeLine(r))
			}
		},
	}
	return w.run(ctx)
}

// changeLine returns the state of a run as one line.
func changeLine(r *engine.Info) string {
	line := fmt.Sprintf("%s %s %s %s%s attempts=%d", r.Updated.Local().Format(time.RFC3339), r.ID, r.Workflow, r.State,
		optional(" step=", r.Step, ""), r.Attempts)
	if r.Asking {
		line += " asking=true"
	}
	if r.WorkflowPaused != nil {
		line += " workflow_paused=true"
	}
	if r.Next != nil {
		line += " next=" + r.Next.Local().Format(time.RFC3339)
	}
	if text := statusText(r); text != "" {
		line += fmt.Sprintf(" status=%q", textfmt.ClipWithin(text, 200, "…"))
	}
	if r.Error != "" {
		line += fmt.Sprintf(" error=%q", textfmt.ClipWithin(firstLine(r.Error), 200, "…"))
	}
	return line
}
