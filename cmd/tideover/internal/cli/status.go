package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tideover/tideover/cmd/tideover/internal/admin"
	"github.com/tideover/tideover/cmd/tideover/internal/client"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/textfmt"
)

func newStatus(io Streams) *cobra.Command {
	o := newRemote(io)
	return o.command(&cobra.Command{
		Use:     "status [flags]",
		Short:   "Show the state of the server",
		Long:    "Shows the state of the server: runs by workflow and state, the next timer, problems, scheduled\nstarts that were rejected, and errors of the last reload of the configuration.",
		Example: "  tideover status\n  tideover status --json | jq .troubles",
		RunE: query(&o, func(ctx context.Context, c *client.Client, _ []string) (admin.Status, error) {
			st, err := c.Status(ctx)
			o.warnSilentShards(st.Silent)
			return st, err
		}, renderStatus),
	}, nil)
}

func renderStatus(st admin.Status, s *screen) []string {
	lines := []string{visible(fmt.Sprintf("tideover %s; up for %s", strings.TrimPrefix(st.Version, "tideover "), textfmt.CoarseDuration(time.Duration(st.Uptime*float64(time.Second)))))}
	fact := textfmt.PluralOf(st.Running, "attempt running", "attempts running") + ", " + textfmt.Plural(st.Timers, "timer")
	if st.Next != nil {
		fact += ", next in " + s.until(st.Next)
	}
	if st.Stuck > 0 {
		fact += ", " + textfmt.PluralOf(int(st.Stuck), "handler stuck", "handlers stuck")
	}
	lines = append(lines, fact)
	if st.ViewBehind > 0 {
		lines = append(lines, "lists lack the latest changes of "+textfmt.Plural(st.ViewBehind, "run"))
	}
	for _, h := range slices.Sorted(maps.Keys(st.NeedsHandler)) {
		lines = append(lines, s.paint("35", visible(textfmt.PluralOf(st.NeedsHandler[h], "step waits", "steps wait")+" for the handler "+h)))
	}
	for _, w := range st.Workflows {
		if w.Paused != nil {
			lines = append(lines, s.paint("33", visible("workflow "+w.Name+" is "+pausedWorkflowText(w.Paused, s))))
		}
	}
	for _, line := range unlistedDeadRuns(&st) {
		lines = append(lines, s.paint("31", line))
	}
	if line := reloadProblem(&st.Config, s); line != "" {
		lines = append(lines, s.paint("31", visible(line)))
	}
	lines = append(lines, renderTroubles(st.Troubles, s, "31")...)
	lines = append(lines, renderTroubles(st.Warnings, s, "33")...)
	if len(st.Workflows) == 0 {
		return append(lines, "no runs yet")
	}
	t := &table{heads: []string{"WORKFLOW", "SCHEDULED", "QUEUED", "RUNNING", "WAITING", "NEEDS-HANDLER", "PAUSED", "UNDOING", "DEAD", "SUCCEEDED", "CANCELED", "FAILURES"}}
	number := func(n uint64, state string) cell {
		if n == 0 {
			return plain("")
		}
		return cell{strconv.FormatUint(n, 10), stateColours[state]}
	}
	for _, w := range st.Workflows {
		row := []cell{plain(w.Name)}
		for _, state := range []string{"scheduled", "queued", "running", "waiting", "needs-handler", "paused", "undoing", "dead"} {
			row = append(row, number(uint64(max(w.States[state], 0)), state))
		}
		t.add(append(row, number(w.Totals.Succeeded, "succeeded"), number(w.Totals.Canceled, "canceled"), number(w.Totals.Failures, ""))...)
	}
	return append(append(lines, ""), t.render(s)...)
}

// renderTroubles returns a line for each problem.
func renderTroubles(list []engine.Trouble, s *screen, colour string) (lines []string) {
	for _, t := range list {
		lines = append(lines, s.paint(colour, visible(fmt.Sprintf("%s since %s: %s", t.What, s.stamp(t.Since), t.Error))))
	}
	return lines
}

// reloadProblem says why the server could not load its latest configuration file and uses an older
// version; empty if the server uses the latest one.
func reloadProblem(c *admin.ConfigFile, s *screen) string {
	if c.Problem == "" {
		return ""
	}
	text := fmt.Sprintf("the configuration was not reloaded at %s: %s", s.stamp(c.Read), c.Problem)
	if c.More > 0 {
		text += fmt.Sprintf(", and %d more errors: run tideover config check", c.More)
	}
	return text
}

const healthLong = `Checks whether the server can do its work, for containers, load balancers and
scripts. The server is unhealthy while a problem stops it, such as a full disk; it
keeps running and recovers by itself. A scheduled start that was rejected is a
warning and does not make the server unhealthy. "tideover status" shows more.`

func newHealth(io Streams) *cobra.Command {
	o := newRemote(io)
	return o.command(&cobra.Command{
		Use:     "health [flags]",
		Short:   "Check whether the server is healthy (exit code 0)",
		Long:    healthLong,
		Example: "  tideover health\n  tideover health --server http://127.0.0.1:7878",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.withClient(cmd, func(ctx context.Context, c *client.Client) error {
				h, err := c.Healthy(ctx)
				return printHealth(&o.resultPrinter, h, err)
			})
		},
	}, exits{CodeFailed: "the server answers, but can't work; the output says why"})
}

// printHealth prints the health and its warnings, unless err is not nil. It returns an exit error if
// the server is unhealthy.
func printHealth(p *resultPrinter, h admin.Health, err error) error {
	err = printFetched(p, h, err, func(h admin.Health, _ *screen) []string {
		lines := []string{"healthy"}
		if !h.OK {
			lines[0] = visible(strings.Join(append([]string{"unhealthy"}, h.Troubles...), ": "))
		}
		for _, w := range h.Warnings {
			lines = append(lines, visible("warning: "+w))
		}
		return lines
	})
	if err != nil || h.OK {
		return err
	}
	return exitError{Code: CodeFailed}
}
