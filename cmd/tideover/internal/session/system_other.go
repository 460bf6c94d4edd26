//go:build !unix

package session

import (
	"os"

	"github.com/tideover/tideover/cmd/tideover/internal/process"
)

// Terminal is not supported on this system.
func Terminal(_, _, _ *os.File) func(*Spec) (Streams, error) {
	return func(*Spec) (Streams, error) { return Streams{}, process.ErrUnsupported }
}

// fileID returns 0: files have no stable number on this system.
func fileID(*os.File) uint64 { return 0 }
