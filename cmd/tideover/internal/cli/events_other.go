//go:build !unix

package cli

import (
	"errors"
	"os"
)

func descriptor(int) (*os.File, error) {
	return nil, errors.New("file descriptors are not supported on this system: name a file")
}
