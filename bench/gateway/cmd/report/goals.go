package main

import (
	"fmt"
	"strings"

	"github.com/tideover/tideover/bench/gateway"
)

// goal is a goal that was set before the first measurement.
type goal struct {
	what    string
	measure func(r *results) (float64, bool)
	least   bool
	limit   float64
	unit    string
}

var goals = []goal{
	{"GET, throughput beside the tuned proxy", ratio("get/s", gateway.Tuned), true, 0.9, "×"},
	{"the same by processor time", perProcessor("get µs", gateway.Tuned), true, 0.9, "×"},
	{"POST of 1 KiB, throughput beside the tuned proxy", ratio("post/s", gateway.Tuned), true, 0.9, "×"},
	{"the same by processor time", perProcessor("post µs", gateway.Tuned), true, 0.9, "×"},
	{"GET, throughput beside Caddy", ratio("get/s", gateway.Caddy), true, 1.3, "×"},
	{"the same by processor time", perProcessor("get µs", gateway.Caddy), true, 1.3, "×"},
	{"POST of 1 KiB, throughput beside Caddy", ratio("post/s", gateway.Caddy), true, 1.3, "×"},
	{"the same by processor time", perProcessor("post µs", gateway.Caddy), true, 1.3, "×"},
	{"latency at a steady rate, p50, more than direct", added("steady p50"), false, 1, "ms"},
	{"latency at a steady rate, p99, beside Caddy", ratio("steady p99", gateway.Caddy), false, 1, "×"},
	{"first event of a stream, p50, more than direct", added("first p50"), false, 5, "ms"},
}

func ratio(value, beside string) func(*results) (float64, bool) {
	return func(r *results) (float64, bool) { return r.ratio(value, gateway.Tideover, beside) }
}

// perProcessor is the ratio of the work of a core in the same time: the ratio
// of throughputs if nothing else limits them.
func perProcessor(value, beside string) func(*results) (float64, bool) {
	return func(r *results) (float64, bool) { return r.ratio(value, beside, gateway.Tideover) }
}

func added(value string) func(*results) (float64, bool) {
	return func(r *results) (float64, bool) { return r.difference(value, gateway.Tideover, gateway.Direct) }
}

// goals compares the measurements with the goals. It is empty if tideover was
// not measured.
func (r *results) goals() string {
	var b strings.Builder
	for _, g := range goals {
		v, ok := g.measure(r)
		if !ok {
			continue
		}
		if b.Len() == 0 {
			b.WriteString("| what | goal | measured | met |\n|---|--:|--:|---|\n")
		}
		sign, met := "≤", "yes"
		if g.least {
			sign = "≥"
		}
		if g.least && v < g.limit || !g.least && v > g.limit {
			met = "**no**"
		}
		fmt.Fprintf(&b, "| %s | %s %g %s | %s %s | %s |\n", g.what, sign, g.limit, g.unit, threeDigits(v), g.unit, met)
	}
	return b.String()
}
