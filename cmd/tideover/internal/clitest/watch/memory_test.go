//go:build unix

package watch_test

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

func TestWatchPassesMuchOutputOnWithLittleMemory(t *testing.T) {
	t.Parallel()
	clitest.OnlyLinux(t)
	pass := func(size int) (peak int) {
		w := newWatchEnv(t, fmt.Sprintf(`yes "compiling module 429 of 900, and the rate limit of the disk resets now and then" | head -c %d; echo; head -c %d /dev/zero; read x`, size, size))
		cmd := w.command("--detect", "claude-code")
		cmd.Env = append(cmd.Environ(), "GOGC=100") // the default, which users have
		out, err1 := cmd.StdoutPipe()
		in, err2 := cmd.StdinPipe()
		if err := errors.Join(err1, err2, cmd.Start()); err != nil {
			t.Fatal(err)
		}
		if n, err := io.CopyN(io.Discard, out, int64(2*size+1)); err != nil {
			t.Fatalf("%d bytes came through, want %d; %v", n, 2*size+1, err)
		}
		peak = clitest.PeakMemory(t, cmd.Process.Pid)
		if err := errors.Join(in.Close(), cmd.Wait()); err != nil {
			t.Error(err)
		}
		return peak
	}
	small, large := pass(1<<20), pass(24<<20)
	t.Logf("%d MiB for 2 MiB, %d MiB for 48 MiB", small>>20, large>>20)
	if small == 0 || large > small+clitest.MemorySlack {
		t.Errorf("%d MiB for 2 MiB of output, %d MiB for 48 MiB", small>>20, large>>20)
	}
}
