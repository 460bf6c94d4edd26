package view

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// preview returns the runs of a list as a list shows them.
func (s *selection) preview(c *sqlite.Conn, keys []key) ([]Run, error) {
	runs := make([]Run, 0, len(keys))
	for _, k := range keys {
		err := each(c, "SELECT "+columns+" FROM runs WHERE place=?", func(st *sqlite.Stmt) error {
			r, _, _, err := s.names.scan(st)
			r.Input, r.Output, r.Detail = slices.Clone(preview(r.Input)), slices.Clone(preview(r.Output)), nil
			runs = append(runs, r)
			return err
		}, k.place)
		if err != nil {
			return nil, err
		}
	}
	return runs, nil
}

// keys returns where the runs of a page are, and one more if there is another.
func (s *selection) keys(c *sqlite.Conn) ([]key, error) {
	switch {
	case s.from >= s.to:
		return nil, nil
	case s.search != "":
		return s.find(c)
	case s.order == Soonest:
		return s.merge(c, pairs, s.soonest)
	case s.errorLast != 0:
		return s.merge(c, s.failures, s.failed)
	case s.anyState && s.workflow == 0 && len(s.excluded) == 0 && s.attempts < many:
		return s.collect(c, nil, listAll, []int64{s.from, s.to})
	default:
		return s.merge(c, pairs, s.created)
	}
}

// The statements of lists. Each walks a part of one index, or of the table, and
// stops when it has a page; a test holds them to that.
const (
	listAll     = "SELECT place, 0 FROM runs WHERE place>=? AND place<?"
	listCreated = `SELECT place, 0 FROM runs INDEXED BY runs_state
		WHERE workflow=? AND state=? AND place>=? AND place<?`
	listMany = `SELECT place, 0 FROM runs INDEXED BY runs_many
		WHERE workflow=? AND state=? AND place>=? AND place<? AND attempts>=4`
	listFailed = `SELECT place, 0 FROM runs INDEXED BY runs_error
		WHERE error IS NOT NULL AND error=? AND workflow=? AND state=? AND place>=? AND place<?`
	listSoonest = `SELECT place, next FROM runs INDEXED BY runs_next
		WHERE workflow=? AND state=? AND next IS NOT NULL AND next>=? AND (next>? OR place>?) AND place>=? AND place<?`
	nextState           = "SELECT workflow, state, 0 FROM runs INDEXED BY runs_state WHERE workflow=? AND state>? ORDER BY state LIMIT 1"
	nextWorkflow        = "SELECT workflow, state, 0 FROM runs INDEXED BY runs_state WHERE workflow>? ORDER BY workflow, state LIMIT 1"
	nextFailingState    = "SELECT workflow, state, error FROM runs INDEXED BY runs_error WHERE error IS NOT NULL AND error=? AND workflow=? AND state>? ORDER BY state LIMIT 1"
	nextFailingWorkflow = "SELECT workflow, state, error FROM runs INDEXED BY runs_error WHERE error IS NOT NULL AND error=? AND workflow>? ORDER BY workflow, state LIMIT 1"
	nextFailure         = "SELECT workflow, state, error FROM runs INDEXED BY runs_error WHERE error IS NOT NULL AND error>? AND error<=? ORDER BY error, workflow, state LIMIT 1"
)

// pair is a part of an index within which places are in order.
type pair struct{ workflow, state, error int64 }

// pairs returns each workflow and state that occur together. It skips from one
// to the next in the index, independent of the number of runs. A comparison of both at
// once would read shorter, but SQLite then looks at every run it skips.
func pairs(c *sqlite.Conn) (all []pair, err error) {
	for p, ok := (pair{}), true; ok; all = append(all, p) {
		if ok, err = p.next(c, nextState, p.workflow, p.state); err == nil && !ok {
			ok, err = p.next(c, nextWorkflow, p.workflow)
		}
		if err != nil || !ok {
			return all, err
		}
	}
	return all, nil
}

// failures returns the same of the index of errors, for one pattern.
func (s *selection) failures(c *sqlite.Conn) (all []pair, err error) {
	for p, ok := (pair{error: s.errorFirst - 1}), true; ok; all = append(all, p) {
		if ok, err = p.next(c, nextFailingState, p.error, p.workflow, p.state); err == nil && !ok {
			ok, err = p.next(c, nextFailingWorkflow, p.error, p.workflow)
		}
		if err == nil && !ok {
			ok, err = p.next(c, nextFailure, p.error, s.errorLast)
		}
		if err != nil || !ok {
			return all, err
		}
	}
	return all, nil
}

// next moves to what a statement finds, if it finds something.
func (p *pair) next(c *sqlite.Conn, query string, args ...int64) (ok bool, err error) {
	err = each(c, query, func(s *sqlite.Stmt) error {
		*p, ok = pair{s.ColumnInt64(0), s.ColumnInt64(1), s.ColumnInt64(2)}, true
		return nil
	}, args...)
	return ok, err
}

// merge takes the beginning of each part that is wanted, and of these the first.
func (s *selection) merge(c *sqlite.Conn, parts func(*sqlite.Conn) ([]pair, error),
	from func(*sqlite.Conn, pair, []key) ([]key, error),
) (keys []key, err error) {
	all, err := parts(c)
	if err != nil {
		return nil, err
	}
	for _, p := range all {
		if !s.wants(p) {
			continue
		}
		if keys, err = from(c, p, keys); err != nil {
			return nil, err
		}
		// Short of what a page needs there is nothing to throw away.
		if len(keys) > 8*MaxLimit {
			keys = s.first(keys)
		}
	}
	return s.first(keys), nil
}

// wants reports whether runs of a workflow and state are wanted. What is left out
// is not read: however many runs that are, the page costs the same.
func (s *selection) wants(p pair) bool {
	return (s.workflow == 0 || p.workflow == s.workflow) && !slices.Contains(s.excluded, p.workflow) &&
		(s.anyState || slices.Contains(s.states, p.state))
}

// first returns the keys of a page in order, and one more.
func (s *selection) first(keys []key) []key {
	slices.SortFunc(keys, func(a, b key) int {
		switch s.order {
		case Newest:
			return cmp.Compare(b.place, a.place)
		case Oldest:
			return cmp.Compare(a.place, b.place)
		default:
			return cmp.Or(cmp.Compare(a.next, b.next), cmp.Compare(a.place, b.place))
		}
	})
	return keys[:min(len(keys), s.limit+1)]
}

// created appends the runs of one workflow and state.
func (s *selection) created(c *sqlite.Conn, p pair, keys []key) ([]key, error) {
	query := listCreated
	if s.attempts >= many {
		query = listMany
	}
	return s.collect(c, keys, query, []int64{p.workflow, p.state, s.from, s.to})
}

// failed appends the runs of one error, workflow and state.
func (s *selection) failed(c *sqlite.Conn, p pair, keys []key) ([]key, error) {
	return s.collect(c, keys, listFailed, []int64{p.error, p.workflow, p.state, s.from, s.to})
}

// soonest appends the runs of one workflow and state that something is due for.
func (s *selection) soonest(c *sqlite.Conn, p pair, keys []key) ([]key, error) {
	query := listSoonest
	past := s.past()
	args := []int64{p.workflow, p.state, past.next, past.next, past.place, s.from, s.to}
	if s.errorLast != 0 {
		query += " AND error BETWEEN ? AND ?"
		args = append(args, s.errorFirst, s.errorLast)
	}
	return s.collect(c, keys, query, args)
}

// collect appends what a query finds in the order of the selection.
func (s *selection) collect(c *sqlite.Conn, keys []key, query string, args []int64) ([]key, error) {
	if s.attempts > firstName {
		args = append(args, s.attempts)
	}
	err := each(c, s.ordered(query), func(st *sqlite.Stmt) error {
		keys = append(keys, key{st.ColumnInt64(1), st.ColumnInt64(0)})
		return nil
	}, append(args, int64(s.limit+1))...)
	return keys, err
}

// ordered completes a statement. Only if it matters does it ask for attempts, for
// which it needs the rows.
func (s *selection) ordered(query string) string {
	if s.attempts > firstName {
		query += " AND attempts>=?"
	}
	switch s.order {
	case Newest:
		query += " ORDER BY place DESC"
	case Oldest:
		query += " ORDER BY place"
	default:
		query += " ORDER BY next, place"
	}
	return query + " LIMIT ?"
}

// Group is a number of runs that failed alike: with the same pattern of error,
// in the same step of the same workflow.
type Group struct {
	Error    string // of the newest run
	Pattern  string // for Filter.Error
	Workflow string
	Step     string
	Count    int
	First    time.Time // Created of the oldest run
	Last     time.Time // Created of the newest
}

// groups returns the groups of the selection.
func (s *selection) groups(c *sqlite.Conn, most int) (groups []Group, err error) {
	err = sqlitex.ExecuteTransient(c, s.groupQuery(most), &sqlitex.ExecOptions{ResultFunc: func(st *sqlite.Stmt) error {
		g, err := readGroup(s.names, c, st)
		groups = append(groups, g)
		return err
	}})
	return groups, err
}

func (s *selection) groupQuery(most int) string {
	return fmt.Sprintf(`SELECT count(*), min(place), max(place) FROM runs INDEXED BY runs_error
		WHERE error IS NOT NULL AND place>=%d AND place<%d%s
		GROUP BY error, workflow ORDER BY count(*) DESC, max(place) DESC LIMIT %d`, s.from, s.to, s.conditions(), most)
}

// readGroup describes a group by its oldest and its newest run.
func readGroup(n *names, c *sqlite.Conn, st *sqlite.Stmt) (Group, error) {
	oldest, ok, err := n.at(c, st.ColumnInt64(1))
	if err != nil || !ok {
		return Group{}, err
	}
	newest, ok, err := n.at(c, st.ColumnInt64(2))
	if err != nil || !ok {
		return Group{}, err
	}
	return Group{
		Error: newest.Error, Pattern: Pattern(newest.Error), Workflow: newest.Workflow, Step: newest.Step,
		Count: st.ColumnInt(0), First: oldest.Created, Last: newest.Created,
	}, nil
}
