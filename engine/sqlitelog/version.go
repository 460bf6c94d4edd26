package sqlitelog

import (
	"fmt"
	"path/filepath"

	"zombiezen.com/go/sqlite"
)

// CheckVersion returns an error if the linked SQLite has a defect that can cost data.
func CheckVersion() error { return checkVersion(sqlite.VersionNumber) }

// checkVersion takes a version as 1000000*major + 1000*minor + patch.
func checkVersion(number int) error {
	const restart = 3_051_003 // https://sqlite.org/wal.html#walresetbug
	const withdrawn = 3_052_000
	switch {
	case number < restart:
		return fmt.Errorf("SQLite %s can damage a database when its write-ahead log starts over; 3.51.3 can't", versionText(number))
	case number == withdrawn:
		return fmt.Errorf("SQLite %s was withdrawn by its authors", versionText(number))
	default:
		return nil
	}
}

func versionText(number int) string {
	return fmt.Sprintf("%d.%d.%d", number/1_000_000, number/1000%1000, number%1000)
}

// CheckFolder returns an error if the folder has had a log and has lost it. It changes
// nothing.
func CheckFolder(dir string) error {
	path := filepath.Join(dir, "log.db")
	size, err := fileSize(path)
	if err != nil || size > 0 {
		return err
	}
	why := "it is missing"
	if size == 0 {
		why = "it is empty"
	}
	blobs, _ := filepath.Glob(filepath.Join(dir, "blobs", "[^.]*")) // the pattern is right
	return refuseNew(path, why, tracesOfLog(dir, len(blobs)))
}
