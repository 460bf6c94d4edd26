package cli

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tideover/tideover/cmd/tideover/internal/admin"
	"github.com/tideover/tideover/cmd/tideover/internal/client"
	"github.com/tideover/tideover/gateway"
	"github.com/tideover/tideover/limit"
)

const providersShowLong = `Shows a provider: its state and what that means, the next probe, its requests and
their outcomes, its keys, quotas, latest outages, failovers, and the retry budgets.

The totals count from the start of the server. "first byte" is the mean time to the
first byte of recent successes; those of the last 10 s count most. "pressure" is above
0 while fewer than half of the attempts of the last minute succeed. FAILURES of a key
are those in a row.

"attempts" counts the attempts that were sent to the provider, including those for
requests to other providers. "sent" counts the attempts of the provider's own
requests, wherever they were sent. An outage lasted "at least" until its last failure
if no request was there to see its end.`

const providersShowExample = `  tideover providers show anthropic
  tideover providers show anthropic --json | jq '.outages[] | {seconds, predicted_seconds}'`

func newProvidersShow(io Streams) *cobra.Command {
	o := &providersOptions{newRemote(io)}
	return o.command(&cobra.Command{
		Use: "show [flags] NAME", Short: "Show a provider with its keys, quotas and outages", Long: providersShowLong, Example: providersShowExample,
		Args: exactlyOne("provider"), ValidArgsFunction: single(o.completeNames),
		RunE: query(&o.remote, func(ctx context.Context, c *client.Client, args []string) (gateway.Status, error) {
			return c.Provider(ctx, args[0])
		}, func(st gateway.Status, s *screen) []string { return renderProvider(&st, s) }),
	})
}

func renderProvider(st *gateway.Status, s *screen) []string {
	p := &details{screen: s}
	p.line("%s  %s  %s", p.paint("1", visible(st.Name)), p.paint(providerColours[st.State], visible(stateOf(st))), p.paint("2", visible(st.Preset+" at "+st.BaseURL)))
	p.providerState(st)
	p.providerWork(st)
	if st.Format != st.Preset {
		p.field("format", st.Format)
	}
	p.field("fallback", strings.Join(st.Fallback, ", "))
	p.field("policy", st.Policy)
	addTable(p, "keys", []string{"NAME", "IN-FLIGHT", "FAILURES", "SCORE", "COOLS", "REASON"}, st.Keys, p.keyRow)
	addTable(p, "throttled", []string{"ROUTE", "MODEL", "KEY", "UNTIL", "NEXT PROBE", "REASON"}, st.Throttles,
		p.throttleRow)
	addTable(p, "quotas", []string{"NAME", "KEY", "LEFT", "OF", "RESETS"}, st.Quotas, p.quotaRow)
	addTable(p, "outages", []string{"BEGAN", "LASTED", "PREDICTED", "OFF BY", "PROBES", "CAUSE"}, st.Outages, p.outageRow)
	addTable(p, "failovers", []string{"AT", "FROM", "TO", "WHY"}, st.Failovers, p.failoverRow)
	addTable(p, "retry budgets", []string{"ROUTE", "LEFT", "OF"}, st.Budgets, budgetRow)
	return p.lines
}

// providerState adds the state and the forecast of an outage.
func (p *details) providerState(st *gateway.Status) {
	p.field("meaning", admin.ProviderMeaning(st))
	p.field("since", p.moment(st.Since))
	if r := recovery(st); r != nil {
		p.field("next probe", p.moment(r.Next))
		p.field("expected", p.expected(r))
		p.field("probes", fmt.Sprintf("%d failed", r.Probes))
	}
	p.field("breaker", st.Breaker)
}

// expected returns the current forecast of the end of the outage, and the forecast that was made
// when the outage began.
func (p *details) expected(r *gateway.Recovery) string {
	switch {
	case r.Outages == 0:
		return "unknown: no earlier outage to learn from"
	case r.Expected == nil:
		return ""
	}
	predicted := optional("; predicted ", latency(r.Predicted), " at its start")
	return p.moment(r.Expected) + ", " + learned(r.Outages) + predicted
}

// learned says how many outages an estimate is based on. Old outages count less than 1 each.
func learned(outages float64) string {
	text := strings.TrimSuffix(strconv.FormatFloat(outages, 'f', 1, 64), ".0")
	switch text {
	case "0":
		return "learned from outages long ago"
	case "1":
		return "learned from 1 outage"
	}
	return "learned from " + text + " outages"
}

// providerWork adds the current requests and the totals.
func (p *details) providerWork(st *gateway.Status) {
	p.field("in flight", strconv.Itoa(st.InFlight))
	p.field("waiting", strconv.Itoa(st.Waiting)+optional(": ", byClass(st.ByClass), ""))
	p.field("first byte", optional("", latency(st.TTFB), ", the mean of recent successes"))
	if st.Pressure > 0 {
		p.field("pressure", strconv.FormatFloat(st.Pressure, 'f', 2, 64)+": fewer than half of the attempts of the last minute succeeded, so waits are longer")
	}
	p.field("rate", rate(st.Rate))
	t := &st.Totals
	p.field("totals", "since the start of the server:")
	p.field("requests", counts(t.Requests, "", t.Succeeded, "succeeded", t.Failed, "failed", t.Canceled, "canceled", t.CutShort, "cut short", t.NotKept, "too long to retry"))
	p.field("attempts", counts(t.Attempts, " here, including those for other providers", t.Throttled, "throttled", t.Probes, "probing"))
	sent := counts(t.Sent, " for its own requests", t.Retries, "retried", t.Hedges, "hedged")
	p.field("sent", sent+optional("; ", ratio(st), " per request"))
	p.field("failovers", strconv.FormatUint(t.Failovers, 10))
}

// byClass lists the number of waiting requests per priority, highest first.
func byClass(counts map[string]int) string {
	var parts []string
	for c := limit.Highest; c >= limit.Lowest; c-- {
		if n := counts[c.String()]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, c))
		}
	}
	return strings.Join(parts, ", ")
}

// counts formats a total and its parts, such as "7 of its own requests: 2 retried, 1 hedged". of is
// the text after the total. parts holds a number (uint64) and a name for each part; parts that are
// 0 are left out.
func counts(total uint64, of string, parts ...any) string {
	var list []string
	for i := 0; i+1 < len(parts); i += 2 {
		if n, _ := parts[i].(uint64); n > 0 {
			list = append(list, fmt.Sprintf("%d %s", n, parts[i+1]))
		}
	}
	return strconv.FormatUint(total, 10) + of + optional(": ", strings.Join(list, ", "), "")
}

// rate formats the rate limit and the concurrency limit; empty if there are none.
func rate(l *gateway.Limits) string {
	if l == nil {
		return ""
	}
	var parts []string
	if l.PerSecond > 0 {
		text := strconv.FormatFloat(l.PerSecond, 'g', 3, 64) + "/s"
		if l.Adaptive {
			text += " (learned)"
		}
		parts = append(parts, text)
	}
	if l.Concurrent > 0 {
		parts = append(parts, fmt.Sprintf("%d at once", l.Concurrent))
	}
	return strings.Join(parts, ", ")
}

// addTable adds a heading and a table with a row for each entry of list, unless list is empty.
func addTable[T any](p *details, name string, heads []string, list []T, row func(T) []cell) {
	if len(list) == 0 {
		return
	}
	t := &table{heads: heads}
	for _, entry := range list {
		t.add(row(entry)...)
	}
	p.line("\n%s", p.paint("1", name))
	s := *p.screen
	if s.width > 2 {
		s.width -= 2
	}
	for _, line := range t.render(&s) {
		p.line("  %s", line)
	}
}

func (p *details) keyRow(k gateway.KeyInfo) []cell {
	cools := ""
	if k.CoolUntil != nil && k.CoolUntil.After(p.now) {
		cools = "for " + p.until(k.CoolUntil)
		if k.Refused {
			cools = "avoided " + cools
		}
	}
	return []cell{
		plain(k.Name), plain(strconv.Itoa(k.InFlight)), plain(strconv.Itoa(k.Failures)), plain(latency(k.Score)),
		{cools, "33"}, plain(k.Reason),
	}
}

func (p *details) throttleRow(x gateway.Throttle) []cell {
	return []cell{
		plain(cmp.Or(x.Route, "all")), plain(x.Model), plain(x.Key), {p.when(&x.Until), "33"}, plain(p.when(&x.NextProbe)),
		plain(x.Reason),
	}
}

func (p *details) quotaRow(q gateway.Quota) []cell {
	left, of, resets := plain(strconv.FormatInt(q.Remaining, 10)), "", ""
	if q.Remaining <= 0 {
		left.colour = "31"
	}
	if q.Limit > 0 {
		of = strconv.FormatInt(q.Limit, 10)
	}
	if q.Reset != nil {
		resets = p.when(q.Reset)
	}
	return []cell{plain(q.Name), plain(q.Key), left, plain(of), plain(resets)}
}

func (p *details) outageRow(o gateway.Outage) []cell {
	lasted, predicted, off := latency(o.Seconds), "", ""
	if o.Predicted > 0 {
		predicted, off = latency(o.Predicted), offBy(o.Seconds-o.Predicted)
	}
	if o.AtLeast { // the end of the outage was not observed
		lasted, off = cmp.Or(optional("at least ", lasted, ""), "unknown"), ""
	}
	return []cell{
		plain(p.stamp(o.Began)), plain(lasted), plain(predicted), plain(off), plain(strconv.Itoa(o.Probes)), plain(o.Cause),
	}
}

// offBy formats the difference between the actual and the predicted length of an outage, with a
// sign.
func offBy(seconds float64) string {
	if seconds < 0 {
		return "-" + cmp.Or(latency(-seconds), "0s")
	}
	return "+" + cmp.Or(latency(seconds), "0s")
}

func (p *details) failoverRow(f gateway.Failover) []cell {
	return []cell{plain(p.stamp(f.Time) + " (" + p.ago(f.Time) + " ago)"), plain(f.From), plain(f.To), plain(f.Why)}
}

func budgetRow(b gateway.Budget) []cell {
	return []cell{plain(b.Route), plain(fmt.Sprintf("%.0f", b.Tokens)), plain(fmt.Sprintf("%.0f", b.Max))}
}
