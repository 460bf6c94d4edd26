package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tideover/tideover/cmd/tideover/internal/client"
	"github.com/tideover/tideover/cmd/tideover/internal/control"
	"github.com/tideover/tideover/gateway"
	"github.com/tideover/tideover/internal/textfmt"
)

// get returns all providers, or the one of the name.
func (o *providersOptions) get(ctx context.Context, c *client.Client, name string) (control.ProviderList, error) {
	if name == "" {
		return c.Providers(ctx)
	}
	st, err := c.Provider(ctx, name)
	return control.ProviderList{Providers: []gateway.Status{st}}, err
}

func (o *providersOptions) list(ctx context.Context, c *client.Client, name string) error {
	all, err := o.get(ctx, c, name)
	if err != nil {
		return err
	}
	if o.json {
		return o.printJSON(all)
	}
	s := screenOf(o.io.Out)
	_, err = fmt.Fprintln(o.io.Out, strings.Join(renderProviders(all.Providers, &s), "\n"))
	if text := notTaken(&all.Config, &s); text != "" {
		o.warn("%s", text)
	}
	return err
}

// providerColours are of the 16 that every terminal has.
var providerColours = map[string]string{
	gateway.Up: "32", gateway.Throttled: "33", gateway.Refused: "33", gateway.Recovering: "36", gateway.Probing: "36", gateway.Down: "31", gateway.Opened: "35", gateway.Draining: "35",
}

const noProviders = "no providers: add some under providers: in the configuration; docs/gateway.md"

// roomForNext is how much of a line what comes next needs. If there is less, it
// stands below.
const roomForNext = 16

func renderProviders(all []gateway.Status, s *screen) []string {
	if len(all) == 0 {
		return []string{noProviders}
	}
	t := &table{heads: []string{"NAME", "STATE", "IN-FLIGHT", "WAITING", "TTFB", "ATTEMPTS/REQ", "FAILOVERS", "NEXT"}}
	next := make([]string, len(all))
	for i := range all {
		st := &all[i]
		next[i] = comingUp(st, s)
		t.add(plain(st.Name), cell{stateOf(st), providerColours[st.State]}, plain(strconv.Itoa(st.InFlight)), plain(strconv.Itoa(st.Waiting)),
			plain(latency(st.TTFB)), plain(ratio(st)), plain(strconv.FormatUint(st.Totals.Failovers, 10)), plain(""))
	}
	if s.width > 0 && utf8.RuneCountInString(t.render(&screen{})[0])+roomForNext > s.width {
		return below(t.render(s), next, s)
	}
	for i, row := range t.rows {
		row[len(row)-1] = cell{next[i], "33"}
	}
	return t.render(s)
}

// stateOf names the state, and says if somebody holds it.
func stateOf(st *gateway.Status) string {
	if st.Held {
		return st.State + ", held"
	}
	return st.State
}

// ratio writes how many attempts a request takes. Before the first there is none.
func ratio(st *gateway.Status) string {
	if st.Totals.Requests == 0 {
		return ""
	}
	return strconv.FormatFloat(st.Totals.Amplified, 'f', 2, 64)
}

// comingUp says what the provider waits for.
func comingUp(st *gateway.Status, s *screen) string {
	if r := recovery(st); r != nil && r.Next != nil {
		return "probe " + s.when(r.Next)
	}
	if st.State != gateway.Throttled {
		return ""
	}
	var first *time.Time
	for i := range st.Throttles {
		if t := &st.Throttles[i].NextProbe; first == nil || t.Before(*first) {
			first = t
		}
	}
	if first == nil {
		return ""
	}
	return "probe " + s.when(first)
}

// recovery returns what is expected of the outage, unless somebody has said what
// counts more.
func recovery(st *gateway.Status) *gateway.Recovery {
	if st.State != gateway.Down && st.State != gateway.Probing {
		return nil
	}
	return st.Recovery
}

// when writes how far away a time is.
func (s *screen) when(t *time.Time) string {
	if !t.After(s.now) {
		return "now"
	}
	return "in " + s.until(t)
}

// latency writes seconds with as many digits as matter. Nothing is known of 0.
func latency(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	switch {
	case d <= 0:
		return ""
	case d < time.Millisecond:
		return "<1ms"
	case d >= 10*time.Second || d < time.Second:
		return textfmt.CoarseDuration(d)
	}
	return strconv.FormatFloat(seconds, 'f', 2, 64) + "s"
}

// watch keeps the list up to date.
func (o *providersOptions) watch(ctx context.Context, c *client.Client, name string) error {
	w := &providersWatcher{providersOptions: o, seen: map[string]string{}}
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for first := true; ; first = false {
		all, err := o.get(ctx, c, name)
		if _, away := errors.AsType[*client.UnreachableError](err); err != nil && (first || !away) {
			return err
		}
		if err := w.show(all.Providers, noGateway(err)); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// providersWatcher shows a list again and again.
type providersWatcher struct {
	*providersOptions
	redrawn
	seen map[string]string // what was last said of each provider
	away bool              // that the server is not there was said
}

func (w *providersWatcher) show(all []gateway.Status, away error) error {
	s := screenOf(w.io.Out)
	switch {
	case !s.terminal || w.json:
		return w.changes(all, away)
	case away != nil:
		return w.redraw(w.io.Out, []string{textfmt.ClipWithin(visible(away.Error()), s.width, "…")})
	}
	return w.redraw(w.io.Out, renderProviders(all, &s))
}

// changes prints a line for each provider that has changed. What changes with each
// request is no reason.
func (w *providersWatcher) changes(all []gateway.Status, away error) error {
	if away != nil {
		if !w.away {
			w.warn("%s", away)
		}
		w.away = true
		return nil
	}
	w.away = false
	for i := range all {
		st := &all[i]
		mark := providerMark(st)
		if w.seen[st.Name] == mark {
			continue
		}
		w.seen[st.Name] = mark
		var err error
		if w.json {
			err = w.printJSON(st)
		} else {
			err = w.say("%s %s", time.Now().Format(time.RFC3339), providerLine(st))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// providerMark is what has to change for a line.
func providerMark(st *gateway.Status) string {
	var mark strings.Builder
	fmt.Fprintln(&mark, st.State, st.Held, st.Breaker, st.Totals.Failovers)
	if r := recovery(st); r != nil {
		fmt.Fprintln(&mark, r.Probes)
	}
	for _, k := range st.Keys {
		// Not until when: that is worked out anew whenever somebody looks, and moves with
		// each refusal.
		fmt.Fprintln(&mark, k.Name, k.CoolUntil != nil, k.Refused, k.Reason)
	}
	for _, x := range st.Throttles {
		fmt.Fprintln(&mark, x.Key, x.Route, x.Model, x.Reason)
	}
	return mark.String()
}

// providerLine says where a provider is.
func providerLine(st *gateway.Status) string {
	parts := []string{st.Name, st.State}
	if st.Held {
		parts = append(parts, "held")
	}
	parts = append(parts, fmt.Sprintf("in-flight=%d waiting=%d", st.InFlight, st.Waiting))
	if text := latency(st.TTFB); text != "" {
		parts = append(parts, "ttfb="+text)
	}
	if text := ratio(st); text != "" {
		parts = append(parts, "attempts-per-request="+text)
	}
	parts = append(parts, fmt.Sprintf("failovers=%d", st.Totals.Failovers))
	if r := recovery(st); r != nil && r.Next != nil {
		parts = append(parts, "next-probe="+r.Next.Local().Format(time.RFC3339))
	}
	for _, k := range st.Keys {
		if k.CoolUntil != nil && k.CoolUntil.After(time.Now()) {
			parts = append(parts, fmt.Sprintf("cooling=%q", k.Name+" "+k.Reason))
		}
	}
	for _, x := range st.Throttles {
		parts = append(parts, fmt.Sprintf("throttled=%q", strings.Join(strings.Fields(x.Key+" "+x.Route+" "+x.Model+" "+x.Reason), " ")))
	}
	return strings.Join(parts, " ")
}
