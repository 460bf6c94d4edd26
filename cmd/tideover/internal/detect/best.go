package detect

// Best returns the verdict to believe of those that several packs give on the
// same output, in the order of [Names]: the most trusted, then the one on the
// last line, then one that states a time, then one by a rule that is not
// everybody's. It returns its index, -1 if there are none.
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
	switch {
	case s.Trust != than.Trust:
		return s.Trust > than.Trust
	case s.Trust == ByExit:
		// A code means something only to the program that it comes from, and
		// nothing says which one it was.
		return s.Pack == "generic"
	case s.Number != than.Number:
		return s.Number > than.Number
	case s.Until.IsZero() != than.Until.IsZero():
		return than.Until.IsZero()
	default:
		return than.Pack == "generic" && s.Pack != "generic"
	}
}
