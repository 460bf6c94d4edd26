package chaos

// maxCursors is how many values of a header are distinguished at a time.
const maxCursors = 10_000

// cursors are the positions in a script: one for each value of a header, or just one.
// The oldest is dropped when there are too many.
type cursors struct {
	by    map[string]*cursor
	order []string
}

func (t *cursors) get(key string) *cursor {
	if at := t.by[key]; at != nil {
		return at
	}
	if t.by == nil {
		t.by = map[string]*cursor{}
	}
	if len(t.order) == maxCursors {
		delete(t.by, t.order[0])
		t.order = t.order[1:]
	}
	at := new(cursor)
	t.by[key], t.order = at, append(t.order, key)
	return at
}

// cursor is a position in a script.
type cursor struct {
	seen int // requests so far
	step int // of the script
	done int // times that the step came
}

// advance returns the next answer of the script.
func (t *cursor) advance(r *Rule) Answer {
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
