//go:build unix

package config_test

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/config"
)

// TestOnlyRegularFilesAreRead would hang if Load opened a pipe without a writer.
func TestOnlyRegularFilesAreRead(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		pipe: "is not a regular file, but a pipe", dir: "is not a regular file, but a folder", "/dev/null": "is not a regular file, but a device",
	} {
		if _, err := config.Load(config.Source{Path: path, Environ: environ}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Load(%s) = %v, want %q", path, err, want)
		}
	}
}
