package breaker

// trips returns the rule that opens a breaker with these counts, if any does.
func (c *Config) trips(n Counts) Cause {
	switch {
	case c.ConsecutiveFailures > 0 && n.ConsecutiveFailures >= c.ConsecutiveFailures:
		return CauseConsecutive
	case n.Calls < c.MinCalls:
		return ""
	case c.FailureRate > 0 && reaches(n.Failures, n.Calls, c.FailureRate):
		return CauseFailureRate
	case c.SlowRate > 0 && reaches(n.Slow, n.Calls, c.SlowRate):
		return CauseSlowRate
	}
	return ""
}

// reaches reports whether part is at least the share rate of all.
//
// The quotient is compared and not the product rate×all. 0.07 is not exactly
// seven hundredths, and times 100 it is more than 7. But the quotient 7/100 is
// rounded in the same way as the number 0.07 was when it was written down, so
// the two are equal, and for fewer than 10^11 calls no other fraction rounds to
// a rate of up to four decimals.
func reaches(part, all int, rate float64) bool {
	return part > 0 && float64(part)/float64(all) >= rate
}
