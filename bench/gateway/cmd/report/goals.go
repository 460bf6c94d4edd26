package main

import (
	"github.com/tideover/tideover/bench/gateway"
	"github.com/tideover/tideover/internal/benchreport"
)

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

// perProcessor is the ratio of the work of a core in the same time: the ratio
// of throughputs if nothing else limits them.
func perProcessor(value, beside string) benchreport.Measure {
	return benchreport.Of(beside, value).Over(benchreport.Of(gateway.Tideover, value))
}

func added(value string) benchreport.Measure {
	return benchreport.Of(gateway.Tideover, value).Minus(benchreport.Of(gateway.Direct, value))
}
