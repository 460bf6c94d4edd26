//go:build unix

package exec_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
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

func TestOutputAtFlatMemory(t *testing.T) {
	t.Parallel()
	clitest.OnlyLinux(t)
	for _, way := range outputWays[:3] {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			pass := func(size int) (peak int) {
				got := checker{block: clitest.RandomBlock()}
				args := append([]string{"exec", "--policy", clitest.Quick}, way.flags...)
				cmd, _ := clitest.Command(t, append(args, "--", clitest.TestBinary(t), "helper:generate", fmt.Sprint(size))...)
				r, err := cmd.StdoutPipe()
				if err := errors.Join(err, cmd.Start()); err != nil {
					t.Fatal(err)
				}
				// The rest does not fit into a pipe, so the process is still running.
				if _, err := io.CopyN(&got, r, int64(size-4<<20)); err != nil {
					t.Fatal(err)
				}
				peak = clitest.PeakMemory(t, cmd.Process.Pid)
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
			if small == 0 || large > small+clitest.MemorySlack {
				t.Errorf("%d MiB for 8 MiB of output, %d MiB for 64 MiB", small>>20, large>>20)
			}
		})
	}
}
