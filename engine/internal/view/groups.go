package view

import (
	"fmt"
	"time"

	"zombiezen.com/go/sqlite"
)

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

// groups returns the groups of the selection. stems says that the words of the search
// may be beginnings of words.
func (s *selection) groups(c *sqlite.Conn, most int, stems bool) (groups []Group, err error) {
	st, _, err := c.PrepareTransient(s.groupQuery(most))
	if err != nil {
		return nil, err
	}
	defer st.Finalize() //nolint:errcheck // it repeats the error of Step
	if s.search != "" {
		st.BindText(1, query(s.search, stems))
	}
	for {
		row, err := st.Step()
		if err != nil || !row {
			return groups, err
		}
		g, err := readGroup(s.names, c, st)
		if err != nil {
			return nil, err
		}
		groups = append(groups, g)
	}
}

func (s *selection) groupQuery(most int) string {
	q := fmt.Sprintf("WHERE error IS NOT NULL AND place>=%d AND place<%d", s.from, s.to) + s.conditions()
	if s.search != "" {
		q += " AND place IN (SELECT rowid FROM words WHERE words MATCH ?)"
	}
	return fmt.Sprintf(`SELECT count(*), min(place), max(place) FROM runs INDEXED BY runs_error %s
		GROUP BY error, workflow ORDER BY count(*) DESC, max(place) DESC LIMIT %d`, q, most)
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
