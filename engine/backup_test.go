package engine

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/engine/journal/memlog"
	"github.com/tideover/tideover/retry"
)

func TestABackupOfACluster(t *testing.T) {
	t.Parallel()
	synctest.Test(t, backupOfACluster)
}

func backupOfACluster(t *testing.T) {
	t.Helper()
	w := one(t, func(_ context.Context, n int) (int, error) {
		if n%3 == 0 {
			return 0, retry.Permanent(errors.New("no"))
		}
		return n, nil
	})
	s := &memlog.Store{Shards: 5}
	dir := t.TempDir()
	var all []*member
	for _, name := range []string{"a", "b"} {
		all = append(all, joined(t, s, name, Config{Dir: filepath.Join(dir, name), Workflows: []*Workflow{w}, snapshotAfter: 2000}))
	}
	settled(t, all...)
	want := map[string]string{} // state by id
	start := func(i int, opts ...StartOption) {
		run := started(t, all[i%2].Engine, w, i, append(opts, Key(fmt.Sprint(i)))...)
		want[run.ID] = "scheduled"
		if len(opts) == 0 {
			want[run.ID] = waited(t, run).State
		}
	}
	for i := range 60 {
		start(i)
	}
	for i := range 20 {
		start(100+i, In(time.Hour))
	}
	copied := filepath.Join(dir, "copy")
	if err := all[0].Backup(t.Context(), copied); err != nil {
		t.Fatal(err)
	}
	if err := all[0].Backup(t.Context(), copied); err == nil {
		t.Error("a second backup into the folder succeeds")
	}
	for i := range 10 {
		start(200 + i) // the cluster goes on
	}
	e := opened(t, Config{Dir: copied, Workflows: []*Workflow{w}, uptime: noUptime})
	for id, state := range want {
		info, err := e.Get(t.Context(), id)
		if errors.Is(err, ErrNotFound) {
			continue
		}
		if err != nil || info.State != state {
			t.Errorf("run %s is %+v, %v; want %s", id, info, err, state)
		}
		delete(want, id)
	}
	if len(want) != 10 {
		t.Errorf("%d runs are not in the copy, want the 10 that came later", len(want))
	}
	if again := started(t, e, w, 1, Key("1")); !again.Existing {
		t.Error("the copy does not know a key")
	}
}
