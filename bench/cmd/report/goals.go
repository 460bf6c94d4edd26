package main

import "fmt"

// goal is a limit for one scenario.
type goal struct {
	row      string // name of the goal in the documentation
	what     string
	scenario string
	peer     string  // which peer of ours the goal is for; a scenario may have several
	ratio    float64 // largest ratio to the baseline
	allocs   float64 // most allocations; free means any number
}

const free = -1

var goals = []goal{
	{"a", "Do, success at once", "Do", "tideover", 1.15, 0},
	{"a'", "the same, the operation a closure", "DoClosure", "tideover", 1.2, 0},
	{"b", "the same with a value", "Value", "tideover", 1.2, 0},
	{"loop", "the same as a loop", "Loop", "tideover", 3.5, 0},
	{"c", "3 failures then success, no delay", "Fail3", "tideover", 5, 0},
	{"c'", "the same, 1 ns delay, beside time.Sleep", "Fail3Wait", "tideover", 1.3, free},
	{"d", "next delay, exponential with jitter, compiled", "Delay", "tideover-compiled", 1, 0},
	{"d'", "the same, not compiled", "Delay", "tideover", 1.75, 0},
	{"e", "a from all processors", "DoParallel", "tideover", 1.25, 0},
	{"e", "d from all processors", "DelayParallel", "tideover-compiled", 1, 0},
	{"f", "closed breaker with a window of calls", "Breaker", "tideover-count", 2.2, 0},
	{"f", "the same from all processors", "BreakerParallel", "tideover-count", 2.2, 0},
	{"g", "retry, breaker and attempt timeout", "Stack", "tideover", 0.25, free},
	{"g", "the same from all processors", "StackParallel", "tideover", 0.25, free},
	{"g", "the same, the operation asks for Done", "StackDone", "tideover", 1.15, free},
	{"g", "the same from all processors", "StackDoneParallel", "tideover", 1.15, free},
	{"h", "GET through the transport, beside none", "HTTPGet", "tideover", 1.1, 1},
	{"h", "POST of 1 KiB through the transport", "HTTPPost", "tideover", 1.1, 1},
	{"k", "give up after 4 attempts", "GiveUp", "tideover", 14, 1},
	{"i", "hedge that does not start", "Hedge", "tideover", 0.5, free},
	{"i", "concurrency limit", "Concurrency", "tideover", 0.5, 0},
	{"i", "rate limit", "Rate", "tideover", 1.1, 0},
}

// String returns the goal as a cell of the table.
func (g goal) String() string {
	return fmt.Sprintf("≤ %g ×", g.ratio) + g.allocations(g.allocs)
}

// measured returns the measured values that the goal limits, in the same form as
// String.
func (g goal) measured(c *scenario, s *series) string {
	return fmt.Sprintf("%.2f ×", c.ratio(s)) + g.allocations(s.allocs)
}

func (g goal) allocations(n float64) string {
	switch {
	case g.allocs == free:
		return ""
	case n == 1:
		return ", 1 alloc"
	default:
		return fmt.Sprintf(", %.0f allocs", n)
	}
}

// met reports whether the measurement meets the goal. It compares rounded numbers: 1.004
// meets a goal of 1.
func (g goal) met(c *scenario, s *series) bool {
	const rounding = 0.005
	return (g.allocs == free || s.allocs <= g.allocs) && c.ratio(s) < g.ratio+rounding
}
