package sqlitelog

import (
	"os"
	"path/filepath"
	"testing"
)

func TestTheLinkedSQLiteHasNoKnownDefect(t *testing.T) {
	if err := CheckVersion(); err != nil {
		t.Error(err)
	}
	for number, ok := range map[int]bool{
		3_049_002: false, 3_051_002: false, 3_051_003: true, 3_052_000: false, 3_052_001: true, 3_053_004: true,
	} {
		if err := checkVersion(number); (err == nil) != ok {
			t.Errorf("checkVersion(%d) = %v", number, err)
		}
	}
}

func TestInspectFindsAnEmptyLog(t *testing.T) {
	for _, dir := range []string{t.TempDir(), filled(t, 3, 10)} {
		if _, err := inspect(dir, Config{}); err != nil {
			t.Errorf("inspect: %v", err)
		}
	}
	dir := filled(t, 3, 10)
	if err := os.Truncate(filepath.Join(dir, "log.db"), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := inspect(dir, Config{}); err == nil {
		t.Error("an empty log was not found")
	}
}
