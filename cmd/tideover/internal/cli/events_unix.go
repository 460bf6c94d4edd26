//go:build unix

package cli

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// descriptor returns the open descriptor as a file that the command does not
// inherit, unless it is one of its standard streams.
func descriptor(fd int) (*os.File, error) {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	if err != nil || flags&unix.FD_CLOEXEC != 0 {
		// One that is closed by exec was not inherited: the number is one that we
		// use ourselves.
		return nil, fmt.Errorf("descriptor %d is not open", fd)
	}
	if mode, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0); err == nil && mode&unix.O_ACCMODE == unix.O_RDONLY {
		return nil, fmt.Errorf("descriptor %d is open for reading only", fd)
	}
	copied, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, fmt.Errorf("descriptor %d is not open", fd)
	}
	if fd > 2 {
		unix.CloseOnExec(fd)
	}
	return os.NewFile(uintptr(copied), fmt.Sprintf("descriptor %d", fd)), nil
}
