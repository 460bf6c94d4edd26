//go:build unix

package clitest

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/tideover/tideover/internal/testfile"
)

// FakeTool creates a program with this name that records its arguments and then runs a script. It
// returns its path.
func FakeTool(t *testing.T, dir, name, script string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	text := fmt.Sprintf("#!/bin/sh\necho \"$*\" >> %s/calls\n%s\n", dir, script)
	testfile.WriteScript(t, path, text)
	return path
}
