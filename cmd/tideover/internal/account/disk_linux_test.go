package account

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/internal/testwait"
)

// A full disk does not stop work. There is one warning, and the state is kept in this process.
func TestAFullDiskStopsNothing(t *testing.T) {
	t.Parallel()
	mount := t.TempDir()
	holder := exec.CommandContext(testwait.Context(t), "sh", "-c", "mount -t tmpfs -o size=64k,mode=700 none "+mount+" && echo mounted && read end")
	holder.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	in, err := holder.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Skipf("no mount namespace: %v", err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = holder.Wait()
	})
	if n, _ := out.Read(make([]byte, 10)); n == 0 {
		t.Skip("mounting a file system is not allowed")
	}
	root := filepath.Join(fmt.Sprintf("/proc/%d/root", holder.Process.Pid), mount)
	synctest.Test(t, func(t *testing.T) {
		g, said := gate(t, filepath.Join(root, "accounts"))
		enter(t, g, "a").Leave()
		ballast := filepath.Join(root, "ballast")
		if err := os.WriteFile(ballast, make([]byte, 1<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("the disk is not full: %v", err)
		}
		p := enter(t, g, "a")
		p.Limited(Reset{In: time.Hour}, "limited", 0)
		p.Leave()
		for _, id := range []string{"b", "c", "d"} {
			wantHeld(t, g, id, time.Hour+90*time.Second)
		}
		if len(*said) != 1 || !strings.Contains((*said)[0], "no space left on device") {
			t.Errorf("said %q", *said)
		}
		if err := os.Remove(ballast); err != nil {
			t.Fatal(err)
		}
		wantHeld(t, g, "b", time.Hour+90*time.Second) // and the unsaved state is written now
		other, _ := gate(t, filepath.Join(root, "accounts"))
		wantHeld(t, other, "b", time.Hour+90*time.Second)
	})
}
