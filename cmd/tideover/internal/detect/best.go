package detect

// Best returns the index of the most credible verdict of several packs on the same output, in the
// order of [Names]; -1 if there are none. The criteria, in order: a rule that is not a fallback; an
// event before text, and both before the exit code; a rule of a specific pack before one of
// generic, unless the generic match is far below it; more trusted evidence; a later line; a stated
// time.
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
		// An exit code has a meaning only for its program, and the program is unknown here.
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
