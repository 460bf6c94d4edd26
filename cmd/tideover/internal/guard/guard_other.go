//go:build !unix

package guard

import (
	"context"
	"os"
	"os/exec"
)

// keep does nothing: commands are run on Unix only.
func keep(*os.File) {}

// lock does nothing: commands are run on Unix only.
func lock(context.Context, string) (unlock func(), err error) { return func() {}, nil }

// SweepLocks does nothing.
func SweepLocks(string) error { return nil }

// apart does nothing.
func apart(*exec.Cmd, bool) {}
