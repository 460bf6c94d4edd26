//go:build unix

package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
)

// checker counts the bytes written to it, and compares them with the output of helper:generate.
type checker struct {
	n     int
	block []byte
	wrong bool
}

func (c *checker) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		want := c.block[c.n%len(c.block):]
		n := min(len(want), len(rest))
		c.wrong = c.wrong || !bytes.Equal(rest[:n], want[:n])
		c.n, rest = c.n+n, rest[n:]
	}
	return len(p), nil
}

// peakMemory returns the peak memory of the process in bytes.
func peakMemory(t *testing.T, pid int) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	return atoi(strings.Fields(rest + " 0")[0]) << 10
}

// memorySlack is how many bytes more a process may use for a lot of output than for a little.
const memorySlack = 32 << 20

func TestOutputAtFlatMemory(t *testing.T) {
	t.Parallel()
	onlyLinux(t)
	for _, way := range outputWays[:3] {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			pass := func(size int) (peak int) {
				got := checker{block: randomBlock()}
				args := append([]string{"exec", "--policy", quick}, way.flags...)
				cmd, _ := command(t, append(args, "--", self(t), "helper:generate", fmt.Sprint(size))...)
				r, err := cmd.StdoutPipe()
				if err := errors.Join(err, cmd.Start()); err != nil {
					t.Fatal(err)
				}
				// The rest does not fit into a pipe, so the process is still running.
				if _, err := io.CopyN(&got, r, int64(size-4<<20)); err != nil {
					t.Fatal(err)
				}
				peak = peakMemory(t, cmd.Process.Pid)
				_, _ = io.Copy(&got, r)
				if err := cmd.Wait(); err != nil {
					t.Fatal(err)
				}
				if got.n != size || got.wrong {
					t.Errorf("%d bytes came through of %d, wrong: %v", got.n, size, got.wrong)
				}
				return peak
			}
			small, large := pass(8<<20), pass(64<<20)
			t.Logf("%d MiB for 8 MiB, %d MiB for 64 MiB", small>>20, large>>20)
			if small == 0 || large > small+memorySlack {
				t.Errorf("%d MiB for 8 MiB of output, %d MiB for 64 MiB", small>>20, large>>20)
			}
		})
	}
}

func TestWatchPassesMuchOutputOnWithLittleMemory(t *testing.T) {
	t.Parallel()
	onlyLinux(t)
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
		peak = peakMemory(t, cmd.Process.Pid)
		if err := errors.Join(in.Close(), cmd.Wait()); err != nil {
			t.Error(err)
		}
		return peak
	}
	small, large := pass(1<<20), pass(24<<20)
	t.Logf("%d MiB for 2 MiB, %d MiB for 48 MiB", small>>20, large>>20)
	if small == 0 || large > small+memorySlack {
		t.Errorf("%d MiB for 2 MiB of output, %d MiB for 48 MiB", small>>20, large>>20)
	}
}
