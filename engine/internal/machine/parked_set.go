package machine

// parkedSet has the steps that wait for a handler, by its name.
type parkedSet struct {
	parked map[string]map[place]struct{}
}

// Parked calls yield with the steps that wait for the handler.
func (s *parkedSet) Parked(handler string, yield func(*Run, int)) {
	for p := range s.parked[handler] {
		yield(p.run, int(p.step))
	}
}

// ParkedHandlers returns how many steps wait for each handler.
func (s *parkedSet) ParkedHandlers() map[string]int {
	n := make(map[string]int, len(s.parked))
	for h, set := range s.parked {
		n[h] = len(set)
	}
	return n
}

func (s *parkedSet) park(r *Run, step int) {
	h := r.Def.Steps[step].Handler
	if s.parked[h] == nil {
		s.parked[h] = map[place]struct{}{}
	}
	s.parked[h][place{r, int32(step)}] = struct{}{}
}

func (s *parkedSet) unpark(r *Run, step int) {
	h := r.Def.Steps[step].Handler
	if set := s.parked[h]; set != nil {
		delete(set, place{r, int32(step)})
		if len(set) == 0 {
			delete(s.parked, h)
		}
	}
}
