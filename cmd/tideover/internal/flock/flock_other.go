//go:build !unix

package flock

import (
	"errors"
	"fmt"
	"os"
)

// NoFollow is nothing on systems without the flag.
const NoFollow = 0

// Try is for systems on which no server runs, and nothing is watched.
func Try(*os.File) (held bool, err error) {
	return false, fmt.Errorf("%w on this system: serve, gateway and watch run on Linux and macOS", errors.ErrUnsupported)
}

// Release does nothing, because Try takes no lock.
func Release(*os.File) {}
