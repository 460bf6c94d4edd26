package sqlitelog

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"testing"

	"github.com/tideover/tideover/engine/journal"
)

// childEnv names what this binary does instead of running tests, when a test
// needs another process.
const childEnv = "SQLITELOG_CHILD"

func TestMain(m *testing.M) {
	children := map[string]func(dir string) error{"writer": writeForEver}
	maps.Copy(children, systemChildren())
	child, ok := children[os.Getenv(childEnv)]
	if !ok {
		os.Exit(m.Run())
	}
	if err := child(os.Getenv("SQLITELOG_DIR")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func childCommand(t *testing.T, name, dir string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	// The race detector would wait a second at the end.
	cmd.Env = append(os.Environ(), childEnv+"="+name, "SQLITELOG_DIR="+dir, "GORACE=atexit_sleep_ms=0")
	cmd.Stderr = os.Stderr
	return cmd
}

// newLog returns a log that is closed at the end of the test.
func newLog(t *testing.T, dir string) *Log {
	t.Helper()
	log, err := Open(t.Context(), Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close() })
	return log
}

// leaseError tries to become the owner of a folder.
func leaseError(t *testing.T, dir string) error {
	t.Helper()
	log := newLog(t, dir)
	defer log.Close()
	_, err := log.Lease(t.Context(), 0)
	return err
}

// collect reads all entries.
func collect(t *testing.T, l journal.Lease) (entries []journal.Entry) {
	t.Helper()
	first, _, err := l.Bounds(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for e, err := range l.Read(t.Context(), first) {
		if err != nil {
			t.Fatal(err)
		}
		e.Data = append([]byte(nil), e.Data...)
		entries = append(entries, e)
	}
	return entries
}
