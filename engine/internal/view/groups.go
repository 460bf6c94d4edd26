package view

import (
	"context"
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

// Groups returns the runs that have an error and match a filter, grouped, the
// largest groups first. It reads the index of errors and nothing else, unless
// the filter asks for attempts or words. Order, After and Limit do not matter,
// and Search does not look for ids and pieces.
func (v *View) Groups(ctx context.Context, f Filter, most int) (groups []Group, err error) {
	if most <= 0 || f.Search != "" && query(f.Search, false) == "" {
		return nil, nil
	}
	f.After, f.Order = "", ""
	err = v.read(ctx, "group", func(c *sqlite.Conn) error {
		s, ok, err := v.resolve(f)
		if err != nil || !ok {
			return err
		}
		groups, err = v.groups(c, &s, most, false)
		if err == nil && len(groups) == 0 && s.search != "" {
			groups, err = v.groups(c, &s, most, true)
		}
		return err
	})
	return groups, err
}

func (v *View) groups(c *sqlite.Conn, s *selection, most int, stems bool) (groups []Group, err error) {
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
		g, err := v.group(c, st)
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

// group describes a group by its oldest and its newest run.
func (v *View) group(c *sqlite.Conn, st *sqlite.Stmt) (Group, error) {
	oldest, ok, err := v.names.at(c, st.ColumnInt64(1))
	if err != nil || !ok {
		return Group{}, err
	}
	newest, ok, err := v.names.at(c, st.ColumnInt64(2))
	if err != nil || !ok {
		return Group{}, err
	}
	return Group{
		Error: newest.Error, Pattern: Pattern(newest.Error), Workflow: newest.Workflow, Step: newest.Step,
		Count: st.ColumnInt(0), First: oldest.Created, Last: newest.Created,
	}, nil
}
