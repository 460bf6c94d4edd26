package detect

// Best returns the verdict to believe of those that several packs give on the
// same output, in the order of [Names]: by a rule that is no fallback; by an event before one by text, and both
// before one by the exit code; then that of a rule that is not everybody's,
// unless everybody's matches far below it; then the most trusted; then the one on
// the last line; then one that states a time. It returns its index, -1 if there
// are none.
func Best(stops []Stop) int {
	best := -1
	for i, s := range stops {
		if best < 0 || s.better(stops[best]) {
			best = i
		}
	}
	return best
}

func (s Stop) better(than Stop) bool {
	own, other := s.Pack != "generic", than.Pack != "generic"
	switch {
	case s.fallback && than.Rule != "" && !than.fallback:
		return false
	case than.fallback && s.Rule != "" && !s.fallback:
		return true
	case s.Trust != than.Trust && (max(s.Trust, than.Trust) == ByEvent || min(s.Trust, than.Trust) == ByExit):
		return s.Trust > than.Trust
	case s.Trust == ByExit:
		// A code means something only to the program that it comes from, and
		// nothing says which one it was.
		return !own
	case own && !other:
		return s.Number+together >= than.Number
	case other && !own:
		return s.Number > than.Number+together
	case s.Trust != than.Trust:
		return s.Trust > than.Trust
	case s.Number != than.Number:
		return s.Number > than.Number
	default:
		return than.Until.IsZero() && !s.Until.IsZero()
	}
}
