package api

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

func TestABackupWithoutShards(t *testing.T) {
	t.Parallel()
	f := serve(t)
	dir := filepath.Join(t.TempDir(), "copy")
	for body, want := range map[string]string{
		`[1]`:   "shard 1 can't be left out: this is no cluster",
		`[-1]`:  "this is no cluster",
		`1`:     "is of the wrong type",
		`["1"]`: "is of the wrong type",
		`null`:  "is null",
	} {
		got := f.ask(false, "POST", Prefix+"backup", fmt.Sprintf(`{"dir":%q,"without_shards":%s}`, dir, body))
		if p := got.problem(t); got.status != 400 || p.Field != "without_shards" || !strings.Contains(p.Message, want) {
			t.Errorf("%s: %d %s, want 400 and %q", body, got.status, got.text, want)
		}
	}
	b, err := f.client().BackupWithout(t.Context(), dir, nil)
	if err != nil || b.Dir != dir || b.Shards != 0 || b.LeftOut != nil {
		t.Errorf("BackupWithout = %+v, %v; want a copy of all", b, err)
	}
}
