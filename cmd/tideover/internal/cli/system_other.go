//go:build !unix

package cli

import (
	"errors"
	"os"
)

func descriptor(int) (*os.File, error) {
	return nil, errors.New("file descriptors are not supported on this system: name a file")
}

// terminalSize returns 0: the size of a terminal is unknown on this system.
func terminalSize(*os.File) (columns, rows int) { return 0, 0 }
