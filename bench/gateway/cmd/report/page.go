package main

import (
	"fmt"
	"strings"

	"github.com/tideover/tideover/bench/gateway"
)

const intro = `# Gateway benchmarks

This page compares the gateway with other ways to reach the same server. ` + "`make bench-gateway`" + ` generates it; do not edit
it. The explanations at the end come from ` + "`bench/gateway/notes.md`" + `.

`

const method = `What is counted:

- Every proxy is a separate process, started again for each round. In each scenario the next system has its turn every
  half second, until each had its time; then comes the next scenario.
- %s
  Upstream and load use handwritten HTTP/1.1 code, so that they do not dominate the measurement.
- Numbers are medians over the rounds. A ratio, or a difference to *direct*, is the median of those inside one round.
- *GET* and *POST*: a closed loop of %s connections that stay open, each with the next request when it has the last
  answer. The answer is 80 bytes of JSON. Only good answers count.
- *Latency*: %s GETs fall due in a second, at equal distances, whether or not earlier ones were answered. Each counts
  from the time at which it was due to the last byte of its answer.
- *Stream*: 16 connections request, with a POST of 1 KiB, one stream of five events after the other. The upstream sends
  the first event with the headers of its answer and the others every 20 ms. The first event counts from the first byte
  of the request, a later one from the time at which the upstream sent it.
- *Processor time* is user and system time of the proxy's process per good answer, of which a stream is one. *By
  processor time* is the throughput of a core that does nothing else. *Busy* is the share of the core that the proxy
  had. If it is well below 100 %% in a closed loop, something else limited the proxy: other processes, or the upstream.
  Then answers per s mean little, and processor time means more.
- *Resident* is VmRSS after the first answer of the process, and at the end of the round; the peak is VmHWM. MB are 10⁶
  bytes.
- *Failed* counts requests without a complete answer with status 200, in all rounds.
- *direct*: the upstream without a proxy.
- *bare*: ` + "`httputil.NewSingleHostReverseProxy`" + ` with the default transport, which keeps two idle connections.
- *tuned*: ` + "`httputil.ReverseProxy`" + ` with its own transport, which keeps 1024 idle connections and does not request
  compression, a pool of buffers, and ` + "`FlushInterval: -1`" + `.
- *caddy*: its ` + "`reverse_proxy`" + ` and its HTTP server as a program without its other modules; HTTP/1.1 only, no access log,
  1024 idle connections; the rest is default.
- *tideover*: ` + "`tideover gateway`" + ` with one provider of the preset ` + "`generic`" + ` and the policy ` + "`http attempts=3`" + `; the rest is
  default.
`

// compose returns the page.
func compose(text, notes string) string {
	if notes = strings.TrimSpace(notes); notes != "" {
		notes = "\n## Shortfalls and oddities\n\n" + notes + "\n"
	}
	return intro + text + notes
}

// text is the measured part of the page.
func (r *results) text() string {
	parts := []string{r.setting()}
	if goals := r.goals(); goals != "" {
		parts = append(parts, "## The goals", goals)
	}
	return join(append(parts, "## The measurements", r.table(rows), "## Beside the tuned proxy", r.table(ratios),
		fmt.Sprintf(method, r.about["pinning"], r.about["connections"], r.about["rate"]))...)
}

func (r *results) setting() string {
	var b strings.Builder
	fmt.Fprintf(&b, "- %s, %s, %s cores, %s rounds, %s s for each measurement\n", r.about["date"], r.about["go"], r.about["cores"],
		r.about["rounds"], r.about["seconds"])
	if len(r.modules) > 0 {
		fmt.Fprintf(&b, "- %s\n", strings.Join(r.modules, ", "))
	}
	fmt.Fprintf(&b, "- load average before the rounds: %s (the measurements themselves raise it)\n", strings.Join(r.loads, ", "))
	b.WriteString("- to reproduce: `make bench-gateway`\n")
	return b.String()
}

// row is a line of a table: one value of each system, or several.
type row struct {
	what   string
	values []string
	of     func(r *results, system, value string) (float64, bool)
	whole  bool // it counts things
}

var rows = []row{
	{"GET, answers per s", []string{"get/s"}, (*results).median, false},
	{"its processor time, µs", []string{"get µs"}, (*results).median, false},
	{"busy, %", []string{"get busy"}, (*results).median, false},
	{"POST of 1 KiB, answers per s", []string{"post/s"}, (*results).median, false},
	{"its processor time, µs", []string{"post µs"}, (*results).median, false},
	{"busy, %", []string{"post busy"}, (*results).median, false},
	{"latency at a steady rate, p50 / p99, ms", []string{"steady p50", "steady p99"}, (*results).median, false},
	{"more than direct, p50 / p99, ms", []string{"steady p50", "steady p99"}, moreThanDirect, false},
	{"its answers per s", []string{"steady/s"}, (*results).median, false},
	{"its processor time, µs", []string{"steady µs"}, (*results).median, false},
	{"first event of a stream, p50 / p99, ms", []string{"first p50", "first p99"}, (*results).median, false},
	{"more than direct, p50 / p99, ms", []string{"first p50", "first p99"}, moreThanDirect, false},
	{"later events, p50 / p99, ms", []string{"later p50", "later p99"}, (*results).median, false},
	{"processor time of a stream, µs", []string{"stream µs"}, (*results).median, false},
	{"resident, started / after the load / peak, MB", []string{"VmRSS started", "VmRSS loaded", "VmHWM loaded"}, (*results).median, false},
	{"failed", []string{"failed"}, (*results).total, true},
}

var ratios = []row{
	{"GET, answers per s", []string{"get/s"}, besideTuned, false},
	{"POST of 1 KiB, answers per s", []string{"post/s"}, besideTuned, false},
	{"processor time, GET / POST / steady", []string{"get µs", "post µs", "steady µs"}, besideTuned, false},
	{"latency at a steady rate, p50 / p99", []string{"steady p50", "steady p99"}, besideTuned, false},
	{"first event of a stream, p50", []string{"first p50"}, besideTuned, false},
	{"resident after the load", []string{"VmRSS loaded"}, besideTuned, false},
}

func moreThanDirect(r *results, system, value string) (float64, bool) {
	v, ok := r.difference(value, system, gateway.Direct)
	return v, ok && system != gateway.Direct
}

func besideTuned(r *results, system, value string) (float64, bool) {
	return r.ratio(value, system, gateway.Tuned)
}

// table has a column for each system.
func (r *results) table(rows []row) string {
	var b strings.Builder
	b.WriteString("| |")
	for _, s := range r.systems {
		fmt.Fprintf(&b, " %s |", s)
	}
	b.WriteString("\n|---|" + strings.Repeat("--:|", len(r.systems)) + "\n")
	for _, row := range rows {
		fmt.Fprintf(&b, "| %s |", row.what)
		for _, s := range r.systems {
			fmt.Fprintf(&b, " %s |", r.cell(s, row))
		}
		b.WriteString("\n")
	}
	return b.String()
}

func (r *results) cell(system string, row row) string {
	var parts []string
	for _, value := range row.values {
		v, ok := row.of(r, system, value)
		if !ok {
			return "–"
		}
		text := threeDigits(v)
		if row.whole {
			text = fmt.Sprintf("%.0f", v)
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, " / ")
}

// threeDigits returns a number with about three digits.
func threeDigits(v float64) string {
	switch size := max(v, -v); {
	case size >= 100 || size == 0:
		return fmt.Sprintf("%.0f", v)
	case size >= 10:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2f", v)
	}
}

// join puts an empty line between the parts.
func join(parts ...string) string {
	for i := range parts {
		parts[i] = strings.TrimSuffix(parts[i], "\n")
	}
	return strings.Join(parts, "\n\n") + "\n"
}
