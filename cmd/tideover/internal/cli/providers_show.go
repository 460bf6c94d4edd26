package cli

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tideover/tideover/cmd/tideover/internal/client"
	"github.com/tideover/tideover/cmd/tideover/internal/control"
	"github.com/tideover/tideover/gateway"
	"github.com/tideover/tideover/limit"
)

const providersShowLong = `Shows a provider: what its state means, since when, and when somebody looks again; its
requests and what became of them; its keys, which of them may not be used for now and
why; the quotas that it told of; its latest outages, how long they lasted and how
long they were expected to; the requests that others took over; and what is left for
retries. Attempts are those of its own requests, wherever they were sent; sent here are
those that it got, also of the requests of others. An outage whose end nobody was there
to see lasted at least until its last failure.`

const providersShowExample = `  tideover providers show anthropic
  tideover providers show anthropic --json | jq '.outages[] | {seconds, predicted_seconds}'`

func newProvidersShow(io Streams) *cobra.Command {
	o := &providersOptions{remote{io: io}}
	cmd := &cobra.Command{
		Use: "show [flags] NAME", Short: "Show a provider, its keys, quotas and outages", Long: providersShowLong, Example: providersShowExample,
		Args: one("provider"), ValidArgsFunction: o.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.ask(cmd, func(ctx context.Context, c *client.Client) error { return o.show(ctx, c, args[0]) })
		},
	}
	o.command(cmd)
	return cmd
}

func (o *providersOptions) show(ctx context.Context, c *client.Client, name string) error {
	st, err := c.Provider(ctx, name)
	if err != nil {
		return err
	}
	if o.json {
		return o.printJSON(st)
	}
	s := screenOf(o.io.Out)
	_, err = o.io.Out.WriteString(renderProvider(&st, &s))
	return err
}

func renderProvider(st *gateway.Status, s *screen) string {
	p := &portrait{screen: s}
	p.line("%s  %s  %s", p.paint("1", visible(st.Name)), p.paint(providerColours[st.State], visible(stateOf(st))), p.paint("2", visible(st.Preset+" at "+st.BaseURL)))
	p.providerState(st)
	p.providerWork(st)
	if st.Format != st.Preset {
		p.fact("format", st.Format)
	}
	p.fact("fallback", strings.Join(st.Fallback, ", "))
	p.fact("policy", st.Policy)
	p.keys(st.Keys)
	p.throttles(st.Throttles)
	p.quotas(st.Quotas)
	p.outages(st.Outages)
	p.failovers(st.Failovers)
	p.budgets(st.Budgets)
	return p.String()
}

// providerState tells where it is, and what is expected.
func (p *portrait) providerState(st *gateway.Status) {
	p.fact("meaning", control.ProviderMeaning(st))
	p.fact("since", p.moment(st.Since))
	if r := recovery(st); r != nil {
		p.fact("next probe", p.moment(r.Next))
		p.fact("expected", p.expected(r))
		p.fact("probes", fmt.Sprintf("%d that failed", r.Probes))
	}
	p.fact("breaker", st.Breaker)
}

// expected tells when it is thought to be back, now that the outage has lasted so
// long, and what was thought when it began.
func (p *portrait) expected(r *gateway.Recovery) string {
	switch {
	case r.Outages == 0:
		return "nobody knows: no outage was seen before"
	case r.Expected == nil:
		return ""
	}
	text := p.moment(r.Expected) + ", " + learned(r.Outages)
	if r.Predicted > 0 {
		text += "; predicted " + latency(r.Predicted) + " when it began"
	}
	return text
}

// learned says what an estimate rests on. Old outages count less than one.
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

// providerWork tells what it does, and what became of what it did.
func (p *portrait) providerWork(st *gateway.Status) {
	p.fact("in flight", strconv.Itoa(st.InFlight))
	waiting := strconv.Itoa(st.Waiting)
	if by := byClass(st.ByClass); by != "" {
		waiting += ": " + by
	}
	p.fact("waiting", waiting)
	p.fact("first byte", latency(st.TTFB))
	t := &st.Totals
	p.fact("requests", counts(t.Requests, "", t.Succeeded, "succeeded", t.Failed, "failed", t.Canceled, "canceled", t.CutShort, "cut short", t.NotKept, "too long to be sent again"))
	attempts := counts(t.Sent, " of its own requests", t.Retries, "retried", t.Hedges, "hedged")
	if text := ratio(st); text != "" {
		attempts += "; " + text + " per request"
	}
	p.fact("attempts", attempts)
	p.fact("sent here", counts(t.Attempts, ", also for others", t.Throttled, "throttled", t.Probes, "probing"))
	p.fact("failovers", strconv.FormatUint(t.Failovers, 10))
	if st.Pressure > 0 {
		p.fact("in vain", strconv.FormatFloat(100*st.Pressure, 'f', 0, 64)+"% of what is sent")
	}
	p.fact("rate", rate(st.Rate))
}

// byClass names how many wait with which priority, the most urgent first.
func byClass(counts map[string]int) string {
	var parts []string
	for c := limit.Highest; c >= limit.Lowest; c-- {
		if n := counts[c.String()]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, c))
		}
	}
	return strings.Join(parts, ", ")
}

// counts writes a total, what it is of, and the parts of it that are not 0, in which
// numbers and names take turns.
func counts(total uint64, of string, parts ...any) string {
	text := strconv.FormatUint(total, 10) + of
	var list []string
	for i := 0; i+1 < len(parts); i += 2 {
		if n, _ := parts[i].(uint64); n > 0 {
			list = append(list, fmt.Sprintf("%d %s", n, parts[i+1]))
		}
	}
	if len(list) > 0 {
		text += ": " + strings.Join(list, ", ")
	}
	return text
}

// rate writes what is allowed.
func rate(l *gateway.Limits) string {
	if l == nil {
		return ""
	}
	var parts []string
	if l.PerSecond > 0 {
		text := strconv.FormatFloat(l.PerSecond, 'g', 3, 64) + "/s"
		if l.Adaptive {
			text += " (found out)"
		}
		parts = append(parts, text)
	}
	if l.Concurrent > 0 {
		parts = append(parts, fmt.Sprintf("%d at once", l.Concurrent))
	}
	return strings.Join(parts, ", ")
}

// section adds a table under a heading, unless it has no rows.
func (p *portrait) section(name string, t *table) {
	if len(t.rows) == 0 {
		return
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

func (p *portrait) keys(list []gateway.KeyInfo) {
	t := &table{heads: []string{"NAME", "IN-FLIGHT", "FAILURES", "SCORE", "COOLS", "REASON"}}
	for _, k := range list {
		cools := ""
		if k.CoolUntil != nil && k.CoolUntil.After(p.now) {
			cools = "for " + p.until(k.CoolUntil)
			if k.Refused {
				cools = "avoided " + cools
			}
		}
		t.add(plain(k.Name), plain(strconv.Itoa(k.InFlight)), plain(strconv.Itoa(k.Failures)), plain(latency(k.Score)), cell{cools, "33"}, plain(k.Reason))
	}
	p.section("keys", t)
}

func (p *portrait) throttles(list []gateway.Throttle) {
	t := &table{heads: []string{"ROUTE", "MODEL", "KEY", "UNTIL", "NEXT PROBE", "REASON"}}
	for _, x := range list {
		t.add(plain(cmp.Or(x.Route, "all")), plain(x.Model), plain(x.Key), cell{p.when(&x.Until), "33"}, plain(p.when(&x.NextProbe)), plain(x.Reason))
	}
	p.section("told to wait", t)
}

func (p *portrait) quotas(list []gateway.Quota) {
	t := &table{heads: []string{"NAME", "KEY", "LEFT", "OF", "RESETS"}}
	for _, q := range list {
		of := ""
		if q.Limit > 0 {
			of = strconv.FormatInt(q.Limit, 10)
		}
		left := cell{strconv.FormatInt(q.Remaining, 10), ""}
		if q.Remaining <= 0 {
			left.colour = "31"
		}
		resets := ""
		if q.Reset != nil {
			resets = p.when(q.Reset)
		}
		t.add(plain(q.Name), plain(q.Key), left, plain(of), plain(resets))
	}
	p.section("quotas", t)
}

func (p *portrait) outages(list []gateway.Outage) {
	t := &table{heads: []string{"BEGAN", "LASTED", "PREDICTED", "OFF BY", "PROBES", "CAUSE"}}
	for _, o := range list {
		lasted, predicted, off := latency(o.Seconds), "", ""
		if o.Predicted > 0 {
			predicted, off = latency(o.Predicted), offBy(o.Seconds-o.Predicted)
		}
		if o.AtLeast {
			lasted, off = atLeast(lasted), ""
		}
		t.add(plain(p.stamp(o.Began)), plain(lasted), plain(predicted), plain(off), plain(strconv.Itoa(o.Probes)), plain(o.Cause))
	}
	p.section("outages", t)
}

// atLeast writes how long an outage lasted whose end nobody saw.
func atLeast(lasted string) string {
	if lasted == "" {
		return "unknown"
	}
	return "at least " + lasted
}

// offBy writes how much longer something took than was expected.
func offBy(seconds float64) string {
	if seconds < 0 {
		return "-" + cmp.Or(latency(-seconds), "0s")
	}
	return "+" + cmp.Or(latency(seconds), "0s")
}

func (p *portrait) failovers(list []gateway.Failover) {
	t := &table{heads: []string{"AT", "FROM", "TO", "WHY"}}
	for _, f := range list {
		t.add(plain(p.stamp(f.Time)+" ("+p.ago(f.Time)+" ago)"), plain(f.From), plain(f.To), plain(f.Why))
	}
	p.section("failovers", t)
}

func (p *portrait) budgets(list []gateway.Budget) {
	t := &table{heads: []string{"ROUTE", "LEFT", "OF"}}
	for _, b := range list {
		number := func(f float64) string { return strconv.FormatFloat(f, 'f', 0, 64) }
		t.add(plain(b.Route), plain(number(b.Tokens)), plain(number(b.Max)))
	}
	p.section("budgets for retries", t)
}
