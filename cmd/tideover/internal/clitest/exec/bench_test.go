//go:build unix

package exec_test

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

// BenchmarkOutput sends a GiB through a pipe: with cat alone, and with cat under tideover exec, for
// each way in which exec handles output.
func BenchmarkOutput(b *testing.B) {
	const mebibytes = 1 << 10
	name := filepath.Join(b.TempDir(), "data")
	f, err := os.Create(name)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	for range mebibytes {
		if _, err := f.Write(clitest.RandomBlock()); err != nil {
			b.Fatal(err)
		}
	}
	binary := clitest.CommandPath(b)
	run := func(b *testing.B, name string, args ...string) {
		b.Helper()
		b.SetBytes(mebibytes << 20)
		for b.Loop() {
			cmd := exec.CommandContext(b.Context(), name, args...)
			out, err := cmd.StdoutPipe()
			if err == nil {
				err = cmd.Start()
			}
			if err != nil {
				b.Fatal(err)
			}
			if n, _ := io.Copy(io.Discard, out); n != mebibytes<<20 {
				b.Fatalf("%d bytes came through", n)
			}
			if err := cmd.Wait(); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.Run("cat", func(b *testing.B) { run(b, "cat", name) })
	for _, way := range outputWays {
		b.Run(way.name, func(b *testing.B) {
			run(b, binary, append(append(append([]string{"exec"}, way.flags...), "--", "cat"), name)...)
		})
	}
}

// BenchmarkStart measures the cost of a command that does nothing.
func BenchmarkStart(b *testing.B) {
	binary := clitest.CommandPath(b)
	run := func(b *testing.B, name string, args ...string) {
		b.Helper()
		for b.Loop() {
			cmd := exec.CommandContext(b.Context(), name, args...)
			if err := cmd.Run(); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.Run("true", func(b *testing.B) { run(b, "true") })
	b.Run("exec true", func(b *testing.B) { run(b, binary, "exec", "--", "true") })
}
