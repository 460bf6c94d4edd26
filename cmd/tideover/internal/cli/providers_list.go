package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tideover/tideover/cmd/tideover/internal/admin"
	"github.com/tideover/tideover/cmd/tideover/internal/client"
	"github.com/tideover/tideover/gateway"
	"github.com/tideover/tideover/internal/textfmt"
)

// get returns the provider with this name, or all providers if name is empty.
func (o *providersOptions) get(ctx context.Context, c *client.Client, name string) (admin.ProviderList, error) {
	if name == "" {
		return c.Providers(ctx)
	}
	st, err := c.Provider(ctx, name)
	return admin.ProviderList{Providers: []gateway.Status{st}}, err
}

func (o *providersOptions) list(ctx context.Context, c *client.Client, name string) error {
	all, err := o.get(ctx, c, name)
	if err != nil {
		return err
	}
	problem := ""
	err = o.printRendered(all, func(s *screen) []string {
		problem = reloadProblem(&all.Config, s)
		return renderProviders(all.Providers, s)
	})
	if problem != "" {
		o.warn("%s", problem)
	}
	return err
}

// providerColours has the terminal code of each state's colour. The codes are among the 16 colours
// that every terminal has.
var providerColours = map[string]string{
	gateway.Up: "32", gateway.Throttled: "33", gateway.Refused: "33", gateway.Recovering: "36", gateway.Probing: "36", gateway.Down: "31", gateway.Opened: "35", gateway.Draining: "35",
}

const noProviders = "no providers: add one under providers: in the configuration; see docs/gateway.md"

// roomForNext is the width that the column NEXT needs. If the terminal has no room for it, its text
// goes on a second line.
const roomForNext = 16

func renderProviders(all []gateway.Status, s *screen) []string {
	if len(all) == 0 {
		return []string{noProviders}
	}
	t := &table{heads: []string{"NAME", "STATE", "IN-FLIGHT", "WAITING", "TTFB", "ATTEMPTS/REQ", "FAILOVERS", "NEXT"}}
	next := make([]string, len(all))
	for i := range all {
		st := &all[i]
		next[i] = nextProbe(st, s)
		t.add(plain(st.Name), cell{stateOf(st), providerColours[st.State]}, plain(strconv.Itoa(st.InFlight)), plain(strconv.Itoa(st.Waiting)),
			plain(latency(st.TTFB)), plain(ratio(st)), plain(strconv.FormatUint(st.Totals.Failovers, 10)), plain(""))
	}
	if s.width > 0 && utf8.RuneCountInString(t.render(&screen{})[0])+roomForNext > s.width {
		return notesBelow(t.render(s), next, s)
	}
	for i, row := range t.rows {
		row[len(row)-1] = cell{next[i], "33"}
	}
	return t.render(s)
}

// stateOf returns the state, with "held" if an operator has set it.
func stateOf(st *gateway.Status) string {
	if st.Held {
		return st.State + ", held"
	}
	return st.State
}

// ratio returns the mean number of attempts per request; empty before the first request.
func ratio(st *gateway.Status) string {
	if st.Totals.Requests == 0 {
		return ""
	}
	return strconv.FormatFloat(st.Totals.Amplified, 'f', 2, 64)
}

// nextProbe says when the provider, or the first of its throttled keys, is probed.
func nextProbe(st *gateway.Status, s *screen) string {
	if r := recovery(st); r != nil && r.Next != nil {
		return "probe " + s.when(r.Next)
	}
	if st.State != gateway.Throttled || len(st.Throttles) == 0 {
		return ""
	}
	first := slices.MinFunc(st.Throttles, func(a, b gateway.Throttle) int { return a.NextProbe.Compare(b.NextProbe) })
	return "probe " + s.when(&first.NextProbe)
}

// recovery returns the forecast for the current outage; nil if there is no outage, or if an
// operator has overridden the state.
func recovery(st *gateway.Status) *gateway.Recovery {
	if st.State != gateway.Down && st.State != gateway.Probing {
		return nil
	}
	return st.Recovery
}

// when formats the time until t as "in 5m"; "now" if t is in the past.
func (s *screen) when(t *time.Time) string {
	if !t.After(s.now) {
		return "now"
	}
	return "in " + s.until(t)
}

// latency formats a number of seconds as a short duration, such as 450ms or 1.25s, like the pages.
// 0 means unknown, for which it returns an empty string.
func latency(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	if d <= 0 {
		return ""
	}
	return textfmt.MeasuredDuration(d)
}

// watch shows the list until the context ends, with an update every second.
func (o *providersOptions) watch(ctx context.Context, c *client.Client, name string) error {
	w := &listWatch[admin.ProviderList]{
		resultPrinter: o.resultPrinter, isAway: unreachable, warnsAway: true,
		get: func(ctx context.Context) (admin.ProviderList, error) {
			all, err := o.get(ctx, c, name)
			return all, noGateway(err)
		},
		render: func(all admin.ProviderList, s *screen) []string { return renderProviders(all.Providers, s) },
		changes: func(all admin.ProviderList, emit printChange) {
			for i := range all.Providers {
				st := &all.Providers[i]
				emit(st.Name, providerMark(st), st, time.Now().Format(time.RFC3339)+" "+providerLine(st))
			}
		},
	}
	return w.run(ctx)
}

// providerMark returns the values that --watch compares: it prints a line if one of them has
// changed. Values that change with every request are left out.
func providerMark(st *gateway.Status) string {
	var mark strings.Builder
	fmt.Fprintln(&mark, st.State, st.Held, st.Breaker, st.Totals.Failovers)
	if r := recovery(st); r != nil {
		fmt.Fprintln(&mark, r.Probes)
	}
	for _, k := range st.Keys {
		// The time in CoolUntil is left out: the server computes it anew for each answer, and each
		// rejection moves it.
		fmt.Fprintln(&mark, k.Name, k.CoolUntil != nil, k.Refused, k.Reason)
	}
	for _, x := range st.Throttles {
		fmt.Fprintln(&mark, x.Key, x.Route, x.Model, x.Reason)
	}
	return mark.String()
}

// providerLine returns the state of a provider as one line of key=value pairs.
func providerLine(st *gateway.Status) string {
	line := st.Name + " " + st.State
	if st.Held {
		line += " held"
	}
	line += fmt.Sprintf(" in-flight=%d waiting=%d", st.InFlight, st.Waiting)
	line += optional(" ttfb=", latency(st.TTFB), "") + optional(" attempts-per-request=", ratio(st), "")
	line += fmt.Sprintf(" failovers=%d", st.Totals.Failovers)
	if r := recovery(st); r != nil && r.Next != nil {
		line += " next-probe=" + r.Next.Local().Format(time.RFC3339)
	}
	for _, k := range st.Keys {
		if k.CoolUntil != nil && k.CoolUntil.After(time.Now()) {
			line += fmt.Sprintf(" cooling=%q", k.Name+" "+k.Reason)
		}
	}
	for _, x := range st.Throttles {
		line += fmt.Sprintf(" throttled=%q", strings.Join(strings.Fields(x.Key+" "+x.Route+" "+x.Model+" "+x.Reason), " "))
	}
	return line
}
