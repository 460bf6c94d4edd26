package view

import (
	"cmp"
	"fmt"
	"slices"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/tideover/tideover/engine/info"
)

// preview reads the runs of a list, with Input and Output shortened and without Detail.
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

// keys returns the keys of the runs of a page, and one more if there is another page.
func (s *selection) keys(c *sqlite.Conn) ([]key, error) {
	switch {
	case s.from >= s.to:
		return nil, nil
	case s.search != "":
		return s.find(c)
	case len(s.tags) > 0:
		return s.withTags(c)
	case s.order == Soonest:
		return s.merge(c, pairs, s.soonest)
	case s.errorLast != 0:
		return s.merge(c, s.failures, func(c *sqlite.Conn, p pair, keys []key) ([]key, error) {
			return s.collect(c, keys, listFailed, p.error, p.workflow, p.state, s.from, s.to)
		})
	case s.anyState && s.workflow == 0 && len(s.excluded) == 0 && s.attempts < many:
		return s.collect(c, nil, listAll, s.from, s.to)
	default:
		return s.merge(c, pairs, s.created)
	}
}

// The statements of lists. Each reads a range of one index, or of the table, and stops when it
// has a page. A test checks their query plans.
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

// pair identifies a range of an index within which the entries are ordered by place.
type pair struct{ workflow, state, error int64 }

// pairs returns all combinations of workflow and state that occur. It jumps from one to the next
// in the index, so its cost does not depend on the number of runs. One statement that compares
// both columns would be shorter, but then SQLite reads every run in between.
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

// failures returns all combinations of error, workflow and state for the error pattern of the
// selection.
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

// next sets p to the row that a statement finds. It returns false if the statement finds none.
func (p *pair) next(c *sqlite.Conn, query string, args ...any) (ok bool, err error) {
	err = each(c, query, func(s *sqlite.Stmt) error {
		*p, ok = pair{s.ColumnInt64(0), s.ColumnInt64(1), s.ColumnInt64(2)}, true
		return nil
	}, args...)
	return ok, err
}

// merge reads the first keys of each range that the selection includes, and returns the first of
// all these in order.
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
		// Drop the keys that can't be in the page, but not too often.
		if len(keys) > 8*MaxLimit {
			keys = s.first(keys)
		}
	}
	return s.first(keys), nil
}

// wants reports whether the selection includes the runs of a workflow and state. Other ranges are
// not read, so their size does not matter.
func (s *selection) wants(p pair) bool {
	return (s.workflow == 0 || p.workflow == s.workflow) && !slices.Contains(s.excluded, p.workflow) &&
		(s.anyState || slices.Contains(s.states, p.state))
}

// first sorts the keys and returns the first ones: as many as a page has, and one more.
func (s *selection) first(keys []key) []key {
	slices.SortFunc(keys, s.compare)
	return keys[:min(len(keys), s.limit+1)]
}

// compare compares keys by the order of the selection.
func (s *selection) compare(a, b key) int {
	switch s.order {
	case Newest:
		return cmp.Compare(b.place, a.place)
	case Oldest:
		return cmp.Compare(a.place, b.place)
	default:
		return cmp.Or(cmp.Compare(a.next, b.next), cmp.Compare(a.place, b.place))
	}
}

// created appends the keys of runs of one workflow and state, in order of creation.
func (s *selection) created(c *sqlite.Conn, p pair, keys []key) ([]key, error) {
	query := listCreated
	if s.attempts >= many {
		query = listMany
	}
	return s.collect(c, keys, query, p.workflow, p.state, s.from, s.to)
}

// soonest appends the keys of runs of one workflow and state, in order of Next.
func (s *selection) soonest(c *sqlite.Conn, p pair, keys []key) ([]key, error) {
	query := listSoonest
	past := s.past()
	args := []any{p.workflow, p.state, past.next, past.next, past.place, s.from, s.to}
	if s.errorLast != 0 {
		query += " AND error BETWEEN ? AND ?"
		args = append(args, s.errorFirst, s.errorLast)
	}
	return s.collect(c, keys, query, args...)
}

// collect appends the keys that a query finds, in the order of the selection.
func (s *selection) collect(c *sqlite.Conn, keys []key, query string, args ...any) ([]key, error) {
	if s.attempts > firstName {
		args = append(args, s.attempts)
	}
	err := each(c, s.ordered(query), func(st *sqlite.Stmt) error {
		keys = append(keys, key{st.ColumnInt64(1), st.ColumnInt64(0)})
		return nil
	}, append(args, int64(s.limit+1))...)
	return keys, err
}

// ordered adds the order, the limit and, if needed, the condition on attempts to a statement. That
// condition is expensive, because the index does not have the attempts.
func (s *selection) ordered(query string) string {
	if s.attempts > firstName {
		query += " AND attempts>=?"
	}
	return query + " ORDER BY " + orderBy[s.order] + " LIMIT ?"
}

// groups returns up to most groups of the selection, the largest first.
func (s *selection) groups(c *sqlite.Conn, most int) (groups []info.Group, err error) {
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

// readGroup makes a group from a row of groupQuery, by reading its oldest and newest run.
func readGroup(n *names, c *sqlite.Conn, st *sqlite.Stmt) (info.Group, error) {
	oldest, ok, err := n.at(c, st.ColumnInt64(1))
	if err != nil || !ok {
		return info.Group{}, err
	}
	newest, ok, err := n.at(c, st.ColumnInt64(2))
	if err != nil || !ok {
		return info.Group{}, err
	}
	return info.Group{
		Error: newest.Error, Pattern: Pattern(newest.Error), Workflow: newest.Workflow, Step: newest.Step,
		Count: st.ColumnInt(0), First: oldest.Created, Last: newest.Created,
	}, nil
}
