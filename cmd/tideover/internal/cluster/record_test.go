package cluster

import (
	"os"
	"path/filepath"
	"testing"
)

func TestAFolderRemembersItsCluster(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if got := before(dir, "shop"); got != "" {
		t.Errorf("a new folder was in %q", got)
	}
	for _, id := range []string{"first", "first", "second"} {
		if err := remember(dir, "shop", id); err != nil {
			t.Fatal(err)
		}
		if got := before(dir, "shop"); got != id {
			t.Errorf("the folder was in %q; want %q", got, id)
		}
	}
	if got := before(dir, "other"); got != "" {
		t.Errorf("of a cluster with another name it knows %q", got)
	}
	if err := os.WriteFile(markPath(dir), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := before(dir, "shop"); got != "" {
		t.Errorf("a damaged mark is of %q", got)
	}
	if err := remember(filepath.Join(dir, "none"), "shop", "id"); err == nil {
		t.Error("a folder that is not there remembers")
	}
}
