package nip90

// recent remembers the last runs that have ended. The event of a start comes after it was
// recorded, and the run may have ended by then.
type recent struct {
	known map[string]bool
	order []string
	next  int
}

const recentRuns = 4096

func (r *recent) has(run string) bool { return r.known[run] }

func (r *recent) add(run string) {
	if r.known == nil {
		r.known, r.order = map[string]bool{}, make([]string, recentRuns)
	}
	if r.known[run] {
		return
	}
	delete(r.known, r.order[r.next])
	r.known[run], r.order[r.next] = true, run
	r.next = (r.next + 1) % recentRuns
}
