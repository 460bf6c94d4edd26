//go:build !unix

package cli

import (
	"errors"
	"os"
)

// tryLock is for systems on which nothing is watched.
func tryLock(*os.File) (held bool, err error) { return false, errors.ErrUnsupported }
