package journal_test

import (
	"errors"
	"testing"
	"time"

	"github.com/tideover/tideover/engine/journal"
)

func TestALossSaysWhatIsLostAndWhatToDo(t *testing.T) {
	part := journal.Loss{Log: "log.db", From: 8, To: 9, Shown: "view.db", Until: time.Date(2026, 11, 19, 10, 0, 0, 0, time.UTC)}
	whole := journal.Loss{Log: "log.db", Shown: "view.db"}
	const remedy = "nothing was changed: restore a backup"
	for want, err := range map[string]*journal.LossError{
		"log.db ends at entry 7, but view.db shows entry 9: 2 acknowledged entries (8 to 9, the last of them stored at 2026-11-19T10:00:00Z) are lost; " +
			remedy + ", or accept the loss with --accept-loss: the runs of these entries are then missing or in an earlier state": {part, "restore a backup", true},
		"log.db is another log than view.db names; " + remedy: {whole, "restore a backup", false},
	} {
		if want = journal.ErrDamaged.Error() + ": " + want; err.Error() != want || !errors.Is(err, journal.ErrDamaged) {
			t.Errorf("the error is\n%v\nwant\n%s", err, want)
		}
	}
}
