package chaos

// maxTurns is how many values of a header are told apart at a time.
const maxTurns = 10_000

// turns are those who go through a script: one for each value of a header, or
// just one. The one that came first is forgotten when there are too many.
type turns struct {
	by    map[string]*turn
	order []string
}

func (t *turns) of(key string) *turn {
	if at := t.by[key]; at != nil {
		return at
	}
	if t.by == nil {
		t.by = map[string]*turn{}
	}
	if len(t.order) == maxTurns {
		delete(t.by, t.order[0])
		t.order = t.order[1:]
	}
	at := new(turn)
	t.by[key], t.order = at, append(t.order, key)
	return at
}

// turn is how far somebody is.
type turn struct {
	seen int // requests
	step int // of the script
	done int // times that the step came
}

// advance returns the next answer of the script.
func (t *turn) advance(r *Rule) Answer {
	s := r.Script[t.step]
	switch t.done++; {
	case t.done < s.Times:
	case t.step+1 < len(r.Script):
		t.step, t.done = t.step+1, 0
	case r.Cycle:
		t.step, t.done = 0, 0
	default:
		t.done = 0 // the last is repeated
	}
	return s.Answer
}
