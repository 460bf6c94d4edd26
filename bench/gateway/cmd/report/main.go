// Report reads the measurements of run.sh from standard input, prints them, and
// writes them into a page of the documentation.
package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/tideover/tideover/bench/gateway"
	"github.com/tideover/tideover/internal/benchreport"
)

func main() { benchreport.Main(run) }

func run(in io.Reader, out io.Writer, page string) error {
	r, err := benchreport.Parse(in)
	if err != nil {
		return err
	}
	return benchreport.Publish(out, page, benchreport.Section{Name: "measurements", Text: report(r)})
}

func report(r *benchreport.Results) string {
	parts := []string{setting(r)}
	if goals := r.Goals(goals); goals != "" {
		parts = append(parts, "## The goals", goals)
	}
	return benchreport.Join(append(parts, "## The measurements", r.Table(rows), "## Beside the tuned proxy", r.Table(ratios))...)
}

func setting(r *benchreport.Results) string {
	var b strings.Builder
	fmt.Fprintf(&b, "- %s, %s, %s cores, %s rounds, %s s for each measurement\n", r.About["date"], r.About["go"], r.About["cores"],
		r.About["rounds"], r.About["seconds"])
	if len(r.Modules) > 0 {
		fmt.Fprintf(&b, "- %s\n", strings.Join(r.Modules, ", "))
	}
	fmt.Fprintf(&b, "- %s connections; at a steady rate, %s requests per s\n- %s\n", r.About["connections"], r.About["rate"], r.About["pinning"])
	fmt.Fprintf(&b, "- load average before the rounds: %s (measuring raises it)\n", strings.Join(r.Loads, ", "))
	b.WriteString("- to reproduce: `make bench-gateway`\n")
	return b.String()
}

var rows = []benchreport.Row{
	benchreport.Medians("GET, answers per s", "get/s"),
	benchreport.Medians("its processor time, µs", "get µs"),
	benchreport.Medians("busy, %", "get busy"),
	benchreport.Medians("POST of 1 KiB, answers per s", "post/s"),
	benchreport.Medians("its processor time, µs", "post µs"),
	benchreport.Medians("busy, %", "post busy"),
	benchreport.Medians("latency at a steady rate, p50 / p99, ms", "steady p50", "steady p99"),
	{What: "more than direct, p50 / p99, ms", Values: []string{"steady p50", "steady p99"}, Of: moreThanDirect},
	benchreport.Medians("its answers per s", "steady/s"),
	benchreport.Medians("its processor time, µs", "steady µs"),
	benchreport.Medians("first event of a stream, p50 / p99, ms", "first p50", "first p99"),
	{What: "more than direct, p50 / p99, ms", Values: []string{"first p50", "first p99"}, Of: moreThanDirect},
	benchreport.Medians("later events, p50 / p99, ms", "later p50", "later p99"),
	benchreport.Medians("processor time of a stream, µs", "stream µs"),
	benchreport.Medians("resident, started / after the load / peak, MB", "VmRSS started", "VmRSS loaded", "VmHWM loaded"),
	{What: "failed", Values: []string{"failed"}, Of: total, Whole: true},
}

var ratios = []benchreport.Row{
	{What: "GET, answers per s", Values: []string{"get/s"}, Of: besideTuned},
	{What: "POST of 1 KiB, answers per s", Values: []string{"post/s"}, Of: besideTuned},
	{What: "processor time, GET / POST / steady", Values: []string{"get µs", "post µs", "steady µs"}, Of: besideTuned},
	{What: "latency at a steady rate, p50 / p99", Values: []string{"steady p50", "steady p99"}, Of: besideTuned},
	{What: "first event of a stream, p50", Values: []string{"first p50"}, Of: besideTuned},
	{What: "resident after the load", Values: []string{"VmRSS loaded"}, Of: besideTuned},
}

func moreThanDirect(system, value string) benchreport.Measure {
	more := benchreport.Of(system, value).Minus(benchreport.Of(gateway.Direct, value))
	return func(r *benchreport.Results) (float64, bool) {
		v, ok := more(r)
		return v, ok && system != gateway.Direct
	}
}

func besideTuned(system, value string) benchreport.Measure {
	return benchreport.Of(system, value).Over(benchreport.Of(gateway.Tuned, value))
}

func total(system, value string) benchreport.Measure { return benchreport.Of(system, value).Total }

var goals = []benchreport.Goal{
	benchreport.AtLeast("GET, throughput beside the tuned proxy", ratio("get/s", gateway.Tuned), 0.9, "×"),
	benchreport.AtLeast("the same by processor time", perProcessor("get µs", gateway.Tuned), 0.9, "×"),
	benchreport.AtLeast("POST of 1 KiB, throughput beside the tuned proxy", ratio("post/s", gateway.Tuned), 0.9, "×"),
	benchreport.AtLeast("the same by processor time", perProcessor("post µs", gateway.Tuned), 0.9, "×"),
	benchreport.AtLeast("GET, throughput beside Caddy", ratio("get/s", gateway.Caddy), 1.3, "×"),
	benchreport.AtLeast("the same by processor time", perProcessor("get µs", gateway.Caddy), 1.3, "×"),
	benchreport.AtLeast("POST of 1 KiB, throughput beside Caddy", ratio("post/s", gateway.Caddy), 1.3, "×"),
	benchreport.AtLeast("the same by processor time", perProcessor("post µs", gateway.Caddy), 1.3, "×"),
	benchreport.AtMost("latency at a steady rate, p50, more than direct", added("steady p50"), 1, "ms"),
	benchreport.AtMost("latency at a steady rate, p99, beside Caddy", ratio("steady p99", gateway.Caddy), 1, "×"),
	benchreport.AtMost("first event of a stream, p50, more than direct", added("first p50"), 5, "ms"),
}

func ratio(value, beside string) benchreport.Measure {
	return benchreport.Of(gateway.Tideover, value).Over(benchreport.Of(beside, value))
}

// perProcessor returns how many times as many answers our gateway gives per unit of
// processor time as the system beside. This is the ratio of their throughputs if only
// the processor limits them.
func perProcessor(value, beside string) benchreport.Measure {
	return benchreport.Of(beside, value).Over(benchreport.Of(gateway.Tideover, value))
}

func added(value string) benchreport.Measure {
	return benchreport.Of(gateway.Tideover, value).Minus(benchreport.Of(gateway.Direct, value))
}
