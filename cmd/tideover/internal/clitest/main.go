//go:build unix

// Package clitest helps the tests of the command: it starts tideover as a process, in the background, on a terminal, as a
// server or as several, and plays what stands around it. Below it are the tests that run the command from outside, one
// package for each of its parts.
package clitest

import (
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/browsertest"
	"github.com/tideover/tideover/engine/jetstream/natstest"
)

// RunFunc runs a command in this process, and returns its exit code as a shell sees it.
type RunFunc func(args []string, in, out, stderr *os.File) (code int)

// runInProcess is what [Main] got.
var runInProcess RunFunc

// Main runs the tests of a package, and ends the process. Helpers are commands that tideover runs in tests: the test
// binary runs one if its first argument is the name of it. more has helpers besides those of this package.
func Main(m *testing.M, run RunFunc, more map[string]func(args []string)) {
	if len(os.Args) > 1 && strings.HasPrefix(os.Args[1], "helper:") {
		help := helpers[os.Args[1]]
		if help == nil {
			help = more[os.Args[1]]
		}
		if help == nil {
			fmt.Fprintln(os.Stderr, "unknown", os.Args[1]) // and not the tests again
			os.Exit(2)
		}
		help(os.Args[2:])
		os.Exit(0)
	}
	runInProcess = run
	for _, sig := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT} {
		if signal.Ignored(sig) { // as under nohup, or in the background; commands would inherit that
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
	code := browsertest.Main(m)
	natstest.StopShared()
	os.Exit(code)
}
