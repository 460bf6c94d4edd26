package view

import (
	"strings"
	"testing"

	"zombiezen.com/go/sqlite"
)

// plan returns how SQLite would run a statement.
func plan(t *testing.T, c *sqlite.Conn, query string) string {
	t.Helper()
	var b strings.Builder
	if err := each(c, "EXPLAIN QUERY PLAN "+query, func(s *sqlite.Stmt) error {
		b.WriteString(s.ColumnText(3) + "\n")
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestListsWalkAnIndexAndNeverSort(t *testing.T) {
	t.Parallel()
	v := openTest(t)
	n := 100_000
	if raceEnabled {
		n = 200
	}
	fill(t, v, n, 20)
	type test struct{ query, want string }
	tests := map[string]test{
		"a run":                     {"SELECT " + columns + " FROM runs WHERE place=?", "SEARCH runs USING INTEGER PRIMARY KEY (rowid=?)"},
		"the next state":            {nextState, "SEARCH runs USING COVERING INDEX runs_state (workflow=? AND state>?)"},
		"the next workflow":         {nextWorkflow, "SEARCH runs USING COVERING INDEX runs_state (workflow>?)"},
		"the next state failing":    {nextFailingState, "SEARCH runs USING COVERING INDEX runs_error (error=? AND workflow=? AND state>?)"},
		"the next workflow failing": {nextFailingWorkflow, "SEARCH runs USING COVERING INDEX runs_error (error=? AND workflow>?)"},
		"the next step failing":     {nextFailure, "SEARCH runs USING COVERING INDEX runs_error (error>? AND error<?)"},
		"groups": {(&selection{from: minPlace, to: maxPlace, anyState: true, order: Newest}).groupQuery(10),
			"SEARCH runs USING COVERING INDEX runs_error (error>?)\nUSE TEMP B-TREE FOR ORDER BY"},
		"groups without some": {(&selection{from: minPlace, to: maxPlace, anyState: true, order: Newest, excluded: []int64{2, 3}}).groupQuery(10),
			"SEARCH runs USING COVERING INDEX runs_error (error>?)\nUSE TEMP B-TREE FOR ORDER BY"},
	}
	for _, order := range []Order{Newest, Oldest} {
		s := selection{order: order}
		tests["all by "+string(order)] = test{s.ordered(listAll), "SEARCH runs USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"}
		tests["a state by "+string(order)] = test{s.ordered(listCreated), "SEARCH runs USING COVERING INDEX runs_state (workflow=? AND state=? AND rowid>? AND rowid<?)"}
		often := selection{order: order, attempts: many}
		tests["many attempts by "+string(order)] = test{often.ordered(listMany), "SEARCH runs USING INDEX runs_many (workflow=? AND state=? AND rowid>? AND rowid<?)"}
		tests["an error by "+string(order)] = test{s.ordered(listFailed), "SEARCH runs USING COVERING INDEX runs_error (error=? AND workflow=? AND state=? AND rowid>? AND rowid<?)"}
	}
	soonest := selection{order: Soonest}
	tests["a state by due time"] = test{soonest.ordered(listSoonest), "SEARCH runs USING COVERING INDEX runs_next (workflow=? AND state=? AND next>?)"}
	if err := v.read(t.Context(), "explain", func(c *sqlite.Conn) error {
		for name, tt := range tests {
			if got := strings.TrimSpace(plan(t, c, tt.query)); got != tt.want {
				t.Errorf("%s: the plan is\n%s\nwant\n%s", name, got, tt.want)
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}
