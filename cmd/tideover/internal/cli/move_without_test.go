//go:build unix

package cli

import (
	"strings"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/admin"
	"github.com/tideover/tideover/engine/move"
)

func TestWhatWasLeftOutForPeople(t *testing.T) {
	t.Parallel()
	lost := []move.LeftOut{{Shard: 3, Error: "the stream was \x1bdeleted"}, {Shard: 7, Error: "it is empty"}}
	if got, want := incomplete(lost), "NOT COMPLETE: shards 3, 7 left out"; got != want {
		t.Errorf("incomplete = %q, want %q", got, want)
	}
	s := &screen{}
	b := &admin.Backup{Dir: "/copy", Shards: 8, Runs: map[string]int{"dead": 1, "succeeded": 4}, Keys: 1, Schedules: 2, LeftOut: lost}
	want := `copied to /copy, from 6 of 8 shards: 5 runs, 1 key, 2 schedules
LEFT OUT shard 3, with all its runs, keys, schedules and history: the stream was \x1bdeleted
LEFT OUT shard 7, with all its runs, keys, schedules and history: it is empty`
	if got := strings.Join(renderBackup(b, s), "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := strings.Join(renderBackup(&admin.Backup{Dir: "/copy"}, s), "\n"); got != "copied to /copy" {
		t.Errorf("a copy of all: %s", got)
	}
}
