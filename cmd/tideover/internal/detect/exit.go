package detect

// stopByExit returns the verdict of the exit code alone.
func stopByExit(pack *Pack, code int, signaled bool) Stop {
	s := Stop{Trust: ByExit, Pack: pack.Name()}
	if signaled && code > 0 && code < 128 {
		code += 128
	}
	known, ok := pack.exits[code]
	switch {
	case ok:
		s.Reason, s.Meaning = known.Reason, known.Meaning
		s.Terminal = known.Reason == Terminal
	case code == 0 && !signaled:
		s.Reason = Completed
	case code == 129, code == 130, code == 143: // of HUP, INT and TERM
		s.Reason, s.Meaning = UserExit, "ended by HUP, INT or TERM"
	case code < 0 && !signaled:
		s.Reason = Unknown
	default:
		s.Reason = Crashed
	}
	return s
}

// givenUp returns the verdict on a program that printed that it is retrying, and ended because of
// the failure that it retried. It states no time: the time until the next retry is not the end of a
// limit.
func givenUp(list []match, alive int, byExit Stop) Stop {
	m := &list[alive]
	last := m.count
	for i := alive - 1; i >= 0 && m.rule.Reason == Unknown && m.rule.trust != ByEvent; i-- { // an event reports success
		if last-list[i].count <= lastWords && list[i].rule.Reason != Unknown {
			m = &list[i]
		}
	}
	if m.rule.Reason == Unknown {
		return byExit
	}
	m.verdict = "decides: the program was retrying and then failed"
	return Stop{
		Reason: m.rule.Reason, Note: "the program was retrying when it ended", Trust: m.rule.trust,
		Pack: m.rule.pack, Rule: m.rule.ID, Line: m.line, Number: m.number,
	}
}
