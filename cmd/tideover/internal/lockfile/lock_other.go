//go:build !unix

package lockfile

import (
	"errors"
	"fmt"
	"os"
)

// NoFollow is 0, because this system has no flag for it.
const NoFollow = 0

// Try fails with [errors.ErrUnsupported].
func Try(*os.File) (held bool, err error) {
	return false, fmt.Errorf("%w on this system: serve, gateway and watch run on Linux and macOS", errors.ErrUnsupported)
}

// Release does nothing, because Try takes no lock.
func Release(*os.File) {}
