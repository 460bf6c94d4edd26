package cluster

import (
	"os"
	"path/filepath"
	"testing"
)

func TestClusterRecord(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if got := readClusterRecord(dir, "shop"); got != "" {
		t.Errorf("a new folder was in %q", got)
	}
	for _, id := range []string{"first", "first", "second"} {
		if err := writeClusterRecord(dir, "shop", id); err != nil {
			t.Fatal(err)
		}
		if got := readClusterRecord(dir, "shop"); got != id {
			t.Errorf("the folder was in %q; want %q", got, id)
		}
	}
	if got := readClusterRecord(dir, "other"); got != "" {
		t.Errorf("the record of a cluster with another name is %q", got)
	}
	if err := os.WriteFile(clusterRecordPath(dir), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := readClusterRecord(dir, "shop"); got != "" {
		t.Errorf("a damaged record is of %q", got)
	}
	if err := writeClusterRecord(filepath.Join(dir, "none"), "shop", "id"); err == nil {
		t.Error("a record was written to a missing folder")
	}
}
