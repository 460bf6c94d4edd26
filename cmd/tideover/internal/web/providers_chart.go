package web

import (
	"cmp"
	"fmt"
	"time"

	"github.com/tideover/tideover/gateway"
	"github.com/tideover/tideover/internal/console/pages"
	"github.com/tideover/tideover/limit"
)

// gauge is a bar that shows an amount, such as the rest of a quota.
type gauge struct {
	Name  string
	Of    string // key to which a quota belongs
	Text  string
	W     string     // width in percent; "" if the limit is unknown
	Class string     // good, wait or bad
	Reset *time.Time // when the quota is reset
}

// classes returns gauges for the waiting requests of each priority, the highest first.
func classes(counts map[string]int) (list []gauge) {
	most := 1
	for _, n := range counts {
		most = max(most, n)
	}
	for c := limit.Highest; c >= limit.Lowest; c-- {
		if n := counts[c.String()]; n > 0 {
			list = append(list, gauge{Name: c.String(), Text: fmt.Sprint(n), W: pages.Percent(100 * float64(n) / float64(most)), Class: "wait"})
		}
	}
	return list
}

// level returns the CSS class of a gauge for the share of a limit that is left.
func level(part float64) string {
	switch {
	case part < 0.1:
		return "bad"
	case part < 0.3:
		return "wait"
	}
	return "good"
}

// newGauge returns a gauge for the rest of a limit. A limit of 0 means that it is unknown.
func newGauge(name string, left, limit float64) gauge {
	if limit <= 0 {
		return gauge{Name: name, Text: fmt.Sprintf("%.0f left", left)}
	}
	part := min(max(left/limit, 0), 1)
	return gauge{Name: name, Text: fmt.Sprintf("%.0f of %.0f left", left, limit), W: pages.Percent(100 * part), Class: level(part)}
}

func quotas(list []gateway.Quota) (out []gauge) {
	for _, q := range list {
		g := newGauge(q.Name, float64(q.Remaining), float64(q.Limit))
		g.Of, g.Reset = q.Key, q.Reset
		out = append(out, g)
	}
	return out
}

func budgets(list []gateway.Budget) (out []gauge) {
	for _, b := range list {
		out = append(out, newGauge(b.Route, b.Tokens, b.Max))
	}
	return out
}

// outage shows the actual and the predicted duration of an outage as two bars.
type outage struct {
	Began  time.Time
	Lasted string // actual duration
	Wanted string // predicted duration; "" if unknown
	W, P   string // widths of the bars of Lasted and Wanted, in percent
	Probes int
	Cause  string
	Now    bool // it is the current outage
}

// outageBars returns the outages of a provider, the newest first, including the current one. All bars
// have the same scale.
func outageBars(st *gateway.Status, now time.Time) (list []outage) {
	all := st.Outages
	if r := recovery(st); r != nil && st.Since != nil {
		o := gateway.Outage{Began: *st.Since, Seconds: max(now.Sub(*st.Since).Seconds(), 0), Predicted: r.Predicted, Probes: r.Probes}
		all = append([]gateway.Outage{o}, all...)
		list = make([]outage, 0, len(all))
	}
	longest := 0.0
	for _, o := range all {
		longest = max(longest, o.Seconds, o.Predicted)
	}
	for i, o := range all {
		lasted := cmp.Or(seconds(o.Seconds), "0 s")
		switch {
		case o.AtLeast && o.Seconds <= 0:
			lasted = "unknown"
		case o.AtLeast:
			lasted = "at least " + lasted
		}
		list = append(list, outage{
			Began: o.Began, Lasted: lasted, Wanted: seconds(o.Predicted), W: share(o.Seconds, longest), P: share(o.Predicted, longest),
			Probes: o.Probes, Cause: o.Cause, Now: i == 0 && len(all) > len(st.Outages),
		})
	}
	return list
}

// share returns part/whole in percent, and at least a visible width unless part is 0.
func share(part, whole float64) string {
	if part <= 0 || whole <= 0 {
		return pages.Percent(0)
	}
	return pages.Percent(max(100*min(part/whole, 1), 2*pages.Thinnest))
}

// seconds formats a number of seconds. It returns "" for 0, which means unknown.
func seconds(f float64) string {
	if f <= 0 {
		return ""
	}
	return pages.Exact(time.Duration(f * float64(time.Second)))
}
