//go:build unix

package audit_test

import (
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tideover/tideover/cmd/tideover/internal/audit"
)

const fullEnv = "AUDIT_TEST_FULL"

// A limit on the file size, set in a separate process, ends a write in the middle of a line. When there
// is room again, the whole line must be written.
func TestAFullDiskCutsOneLine(t *testing.T) {
	if os.Getenv(fullEnv) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestAFullDiskCutsOneLine$")
		cmd.Env = append(os.Environ(), fullEnv+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	signal.Ignore(syscall.SIGXFSZ)
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &old); err != nil {
		t.Fatal(err)
	}
	const room, all = 3030, 100
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: room, Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "audit.jsonl")
		s := open(t, audit.Config{Path: path, Logger: slog.New(slog.DiscardHandler)})
		for i := range all {
			s.Observe(event(i))
		}
		time.Sleep(time.Minute)
		if got := size(path); got != room {
			t.Errorf("%d bytes were written, want %d", got, room)
		}
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &old); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		closed(t, s)
		list, broken := events(t, path)
		if len(list) != all || len(broken) != 1 {
			t.Errorf("%d events, %q broken, want %d and one", len(list), broken, all)
		}
		for i, e := range list {
			if e.Attempt != i+1 {
				t.Fatalf("event %d is %+v", i, e)
			}
		}
	})
}
