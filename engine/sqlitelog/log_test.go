package sqlitelog

import (
	"testing"

	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/engine/journal/journaltest"
)

func TestConformance(t *testing.T) {
	for _, d := range []Durability{Full, OS} {
		t.Run(d.String(), func(t *testing.T) {
			journaltest.Run(t, func(t *testing.T, dir string) journal.Log {
				t.Helper()
				log, err := Open(t.Context(), Config{Dir: dir, Durability: d})
				if err != nil {
					t.Fatal(err)
				}
				return log
			})
		})
	}
}
