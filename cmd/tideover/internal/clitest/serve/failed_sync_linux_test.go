//go:build unix

package serve_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tideover/tideover/internal/testwait"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

// failSyncs makes all fsync calls of a process fail. It returns the path of a file that gets a line
// for each call, and a function that ends the fault. The test is skipped if strace is missing or
// not allowed.
func failSyncs(t *testing.T, pid int) (log string, end func()) {
	t.Helper()
	path, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("needs strace")
	}
	log = filepath.Join(t.TempDir(), "syncs")
	cmd := exec.CommandContext(testwait.Context(t), path, "-f", "-o", log, "-e", "trace=fsync,fdatasync",
		"-e", "inject=fsync,fdatasync:error=EIO", "-p", fmt.Sprint(pid))
	messages := new(clitest.SyncBuffer)
	cmd.Stderr = messages
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	end = func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		<-ended
		ended <- nil
	}
	t.Cleanup(end)
	testwait.Until(t, "strace has attached, or has ended", func() bool {
		return strings.Contains(messages.String(), "attached") || len(ended) > 0
	})
	if !strings.Contains(messages.String(), "attached") {
		t.Skipf("strace must not attach: %s", messages)
	}
	return log, end
}

func TestAStartIsNotAcknowledgedWhileSyncsFail(t *testing.T) {
	t.Parallel()
	s := clitest.Serve(t, "version: 1\nworkflows:\n  hello:\n    steps:\n      - {id: say, run: [echo, hello]}\n", "")
	clitest.WantCode(t, s.RunCommand("run", "hello", "--wait"), 0)
	log, end := failSyncs(t, s.Process.Pid)
	failed := func() int {
		text, _ := os.ReadFile(log)
		return strings.Count(string(text), "INJECTED")
	}
	// A client gives up after a while and starts again with the same key.
	acknowledged := make(chan string, 1)
	cmd, _ := clitest.Command(t, "run", "hello", "--key", "k", "--server", "unix:"+filepath.Join(s.Data, "tideover.sock"))
	go func() {
		o := clitest.Finish(t, cmd)
		acknowledged <- o.Out
	}()
	testwait.Until(t, "several syncs have failed", func() bool { return failed() >= 8 || len(acknowledged) > 0 })
	select {
	case id := <-acknowledged:
		if id != "" {
			t.Fatalf("run %s was acknowledged after %d failed syncs", id, failed())
		}
	default:
	}
	o := s.RunCommand("status")
	clitest.WantIn(t, "status", o.Out+o.Stderr, "can't store what happens")
	end()
	testwait.Until(t, "the start is acknowledged, and the run ends", func() bool {
		return s.RunCommand("run", "hello", "--key", "k", "--wait").Code == 0
	})
	s.Signal(syscall.SIGTERM)
	clitest.WantCode(t, s.End(), 0)
}
