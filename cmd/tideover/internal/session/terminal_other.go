//go:build !unix

package session

import (
	"os"

	"github.com/tideover/tideover/cmd/tideover/internal/process"
)

// Terminal is for Unix only.
func Terminal(_, _, _ *os.File) func(*Spec) (Streams, error) {
	return func(*Spec) (Streams, error) { return Streams{}, process.ErrUnsupported }
}
